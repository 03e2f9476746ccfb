//! The conformance suite on the CPU device, at several thread counts.

use std::{collections::BTreeSet, num::NonZeroUsize};

use elinvar_core::{Backend, Device, Error, NullBackend, Pipeline, Result, forward};
use elinvar_cpu::CpuBackend;
use elinvar_kernels::{
    Precision,
    conformance::{self, Case, HostTensor},
};

fn device(threads: usize) -> Device {
    Device::new(CpuBackend::new(NonZeroUsize::new(threads)).unwrap())
}

/// Names of the operators, of the cases of subnormals alone or of the others.
fn strict_operators_on_floats(cases: &[Case], tiny: bool) -> BTreeSet<String> {
    let strict = cases.iter().filter(|case| case.operator.precision() == Precision::Strict && case.name().ends_with("tiny") == tiny);
    let on_floats = strict.filter(|case| case.inputs.iter().flatten().map(HostTensor::dtype).any(|dtype| dtype.is_float()));
    on_floats.filter_map(|case| Some(format!("{:?}", case.operator).split([' ', '(']).next()?.to_owned())).collect()
}

#[test]
fn every_operator_agrees_with_its_oracle_at_any_number_of_threads() {
    let _level = crate::LEVEL.read().unwrap();
    let devices = [device(1), device(2), device(7)];
    let cases = conformance::cases();
    assert!(!cases.is_empty());
    assert_eq!(strict_operators_on_floats(&cases, true), strict_operators_on_floats(&cases, false), "not all have a case of subnormals");
    for (index, case) in cases.iter().enumerate() {
        let placement = conformance::Placement::ALL[index % 2];
        let [one, rest @ ..] = &devices;
        let results = conformance::run(case, one, placement).unwrap_or_else(|e| panic!("{}: {e}", case.name()));
        case.check(&results).unwrap();
        let updated = case.plan(one.properties()).unwrap();
        assert!(updated.updated_inputs().all(|input| case.operator.updates(input)), "{}: updates more than it says", case.name());
        for device in rest {
            let again = conformance::run(case, device, placement).unwrap();
            assert!(again == results, "{}: bits differ with {} threads", case.name(), device.properties().compute_units);
        }
    }
    println!("{} cases", cases.len());
}

#[test]
fn rows_have_the_bits_that_they_have_among_others() {
    let _level = crate::LEVEL.read().unwrap();
    for precision in [Precision::Strict, Precision::Invariant] {
        assert!(conformance::check_rows(&device(2), precision, None, [70, 40, 300]).unwrap() > 500);
    }
}

#[test]
fn a_fused_operator_has_the_bits_of_what_it_stands_for() {
    let tried = conformance::check_fused(&device(2), &conformance::cases()).unwrap();
    let expected = [
        "add_rms_norm",
        "attention",
        "cross_entropy_with_gradient",
        "decode_attention",
        "layer_norm_gradient",
        "lora_rows",
        "matmul_add",
        "paged_attention",
        "paged_decode_attention",
        "projection",
        "quantized_linear",
        "rms_norm",
        "rms_norm_gradient",
        "rope_append",
    ];
    assert_eq!(tried.into_iter().collect::<Vec<_>>(), expected);
}

/// Begins to compile at once, and reports later whether that succeeds.
struct Late(NullBackend, bool);

impl Backend for Late {
    forward!(0: properties memory allocate write read compile submit);

    fn ready(&self, _: &Pipeline) -> Result<()> {
        if self.1 { Ok(()) } else { Err(Error::compile_failed("on purpose")) }
    }
}

#[test]
fn compile_errors_are_reported_by_devices_that_compile_later_too() {
    let chosen: Vec<_> = conformance::cases().into_iter().filter(|case| case.name().starts_with("Softmax")).collect();
    let outcome = |succeeds| {
        let (kernels, rejected) = conformance::compile(&chosen, &Device::new(Late(NullBackend::new(), succeeds)), |_, _| {});
        (kernels, rejected.len())
    };
    let (kernels, rejected) = outcome(false);
    assert!(kernels > 0 && rejected == kernels, "{kernels} kernels, {rejected} rejected");
    assert_eq!(outcome(true), (kernels, 0));
}
