//! The conformance suite on the CPU device, at several thread counts.

use std::{collections::BTreeSet, num::NonZeroUsize};

use elinvar_core::Device;
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
    let devices = [device(1), device(2), device(7)];
    let cases = conformance::cases();
    assert!(!cases.is_empty());
    assert_eq!(strict_operators_on_floats(&cases, true), strict_operators_on_floats(&cases, false), "not all have a case of subnormals");
    for (index, case) in cases.iter().enumerate() {
        let placement = conformance::Placement::ALL[index % 2];
        let [one, rest @ ..] = &devices;
        let results = conformance::run(case, one, placement).unwrap_or_else(|e| panic!("{}: {e}", case.name()));
        case.check(&results).unwrap();
        for device in rest {
            let again = conformance::run(case, device, placement).unwrap();
            assert!(again == results, "{}: bits differ with {} threads", case.name(), device.properties().compute_units);
        }
    }
    println!("{} cases", cases.len());
}
