//! Indices that name nothing fail the submission, and nothing outside a buffer is touched.

use elinvar_core::{Device, DeviceKind};
use elinvar_cpu::CpuBackend;
use elinvar_kernels::{
    Operator,
    attention::paged::decode::PagedDecodeAttention,
    conformance::{self, Bound, Case, HostTensor, Placement},
    gather::{Gather, GatherElements, GatherNd},
    kv_append::KvAppend,
    rope::RotaryEmbedding,
    sample_argmax::SampleArgmax,
    scatter::{Reduction, ScatterElements, ScatterNd},
};
use elinvar_metal::{MetalBackend, Simulated, SimulatorOptions};

fn values(dims: &[usize]) -> HostTensor {
    HostTensor::new(dims, &vec![1.0f32; dims.iter().product()])
}

/// What becomes of an operator on `x [2, 4, 3]` with the index `at` among others.
fn outcome(device: &Device, operator: impl Operator + 'static, dims: &[usize], at: i32, updates: Option<&[usize]>) -> Result<(), String> {
    let mut indices = vec![0i32; dims.iter().product()];
    indices[1] = at;
    let mut inputs = vec![Some(values(&[2, 4, 3])), Some(HostTensor::new(dims, &indices))];
    inputs.extend(updates.map(|dims| Some(values(dims))));
    let case = Case::new(operator, inputs, Bound::EXACT, |_| Vec::new());
    conformance::run(&case, device, Placement::Odd).map(|_| ()).map_err(|e| e.to_string())
}

#[test]
fn indices_outside_their_axis_are_rejected() {
    let device = Device::new(MetalBackend::new(Simulated::new(SimulatorOptions::default()).unwrap(), DeviceKind::MetalSim));
    for (at, inside) in [(3, true), (-4, true), (4, false), (-5, false), (i32::MAX, false)] {
        let reduction = Reduction::Add;
        let outcomes = [
            outcome(&device, Gather { axis: 1 }, &[2], at, None),
            outcome(&device, GatherElements { axis: 1 }, &[2, 2, 3], at, None),
            outcome(&device, GatherNd { batch_dims: 0 }, &[2, 2], at, None),
            outcome(&device, ScatterElements { axis: 1, reduction }, &[2, 2, 3], at, Some(&[2, 2, 3])),
            outcome(&device, ScatterNd { reduction }, &[2, 2], at, Some(&[2, 3])),
        ];
        for outcome in outcomes {
            match outcome {
                Ok(()) => assert!(inside, "{at}"),
                Err(error) => assert!(!inside && error.contains("outside its axis") && error.contains("(number 1)"), "{at}: {error}"),
            }
        }
    }
}

#[test]
fn every_device_rejects_the_same_inputs() {
    let simulated = Device::new(MetalBackend::new(Simulated::new(SimulatorOptions::default()).unwrap(), DeviceKind::MetalSim));
    let cpu = Device::new(CpuBackend::new(None).unwrap());
    for case in conformance::rejected() {
        for placement in Placement::ALL {
            conformance::reject(&case, &cpu, *placement).unwrap();
            conformance::reject(&case, &simulated, *placement).unwrap();
        }
    }
}

#[test]
fn positions_outside_the_caches_are_rejected() {
    let device = Device::new(MetalBackend::new(Simulated::new(SimulatorOptions::default()).unwrap(), DeviceKind::MetalSim));
    for (at, inside) in [(4i64, true), (5, false), (-1, false), (i64::MIN, false), (i64::MAX, false)] {
        let inputs = [Some(values(&[1, 3, 2, 8])), Some(values(&[5, 4])), Some(values(&[5, 4])), Some(HostTensor::new(&[2], &[0, at]))];
        let case = Case::new(RotaryEmbedding::default(), inputs, Bound::EXACT, |_| Vec::new());
        match conformance::run(&case, &device, Placement::Odd) {
            Ok(_) => assert!(inside, "{at}"),
            Err(error) => assert!(!inside && error.to_string().contains("outside the caches") && error.to_string().contains("(number 1)"), "{error}"),
        }
    }
}

#[test]
fn tokens_outside_the_cache_are_rejected() {
    let device = Device::new(MetalBackend::new(Simulated::new(SimulatorOptions::default()).unwrap(), DeviceKind::MetalSim));
    for (at, inside) in [(4, true), (5, false), (-1, false)] {
        let inputs = [Some(values(&[2, 5, 8])), Some(values(&[2, 2, 8])), Some(HostTensor::new(&[2], &[0, at]))];
        let case = Case::new(KvAppend, inputs, Bound::EXACT, |_| Vec::new()).updating(0);
        match conformance::run(&case, &device, Placement::Aligned) {
            Ok(_) => assert!(inside, "{at}"),
            Err(error) => assert!(!inside && error.to_string().contains("outside the cache") && error.to_string().contains("(number 1)"), "{error}"),
        }
    }
}

#[test]
fn slots_and_pages_that_the_cache_does_not_have_are_rejected() {
    let device = Device::new(MetalBackend::new(Simulated::new(SimulatorOptions::default()).unwrap(), DeviceKind::MetalSim));
    // Two texts of a page of 32 tokens each, in a cache of two pages.
    for (slot, page, number) in [(37, 1, None), (64, 1, Some(1)), (-1, 1, Some(1)), (i32::MIN, 1, Some(1)), (37, 2, Some(0)), (37, -1, Some(0))] {
        let (cache, row, [positions, slots, table]) = (values(&[1, 64, 8]), values(&[2, 1, 8]), [[3, 5], [3, slot], [0, page]]);
        let of_texts = |dims: &[usize], values: [i32; 2]| HostTensor::new(dims, &values);
        let (positions, slots, table) = (of_texts(&[2], positions), of_texts(&[2], slots), of_texts(&[2, 1], table));
        let inputs = [cache.clone(), row.clone(), positions, values(&[4]), cache, row.clone(), row, slots, table].map(Some);
        let case = Case::new(PagedDecodeAttention::default(), inputs, Bound::EXACT, |_| Vec::new()).updating(0).updating(4);
        match (conformance::run(&case, &device, Placement::Aligned).map_err(|error| error.to_string()), number) {
            (Ok(_), None) => {}
            (Err(error), Some(number)) => {
                assert!(error.contains("attention_paged_decode") && error.contains("that the cache does not have"), "{error}");
                assert!(error.contains(&format!("(number {number})")), "{slot} {page}: {error}");
            }
            (outcome, _) => panic!("{slot} {page}: {:?}", outcome.map(|_| ())),
        }
    }
}

#[test]
fn logits_that_are_no_numbers_are_rejected() {
    let device = Device::new(MetalBackend::new(Simulated::new(SimulatorOptions::default()).unwrap(), DeviceKind::MetalSim));
    for (logits, number) in
        [([1.0, 2.0, 3.0], None), ([1.0, f32::NAN, 3.0], Some(1)), ([1.0, 2.0, f32::INFINITY], Some(2)), ([f32::NEG_INFINITY; 3], Some(0))]
    {
        let inputs = [Some(HostTensor::new(&[2], &[5i32, 6])), Some(HostTensor::new(&[3], &logits))];
        let case = Case::new(SampleArgmax, inputs, Bound::EXACT, |_| Vec::new()).updating(0);
        match (conformance::run(&case, &device, Placement::Aligned), number) {
            (Ok(state), None) => assert_eq!(state[0].to_f64(), [2.0, 7.0]),
            (Err(error), Some(number)) => assert!(
                error
                    .to_string()
                    .contains(&format!("NaN or infinite: the model's weights are damaged, or its activations overflow (number {number})")),
                "{error}"
            ),
            (outcome, _) => panic!("{logits:?}: {outcome:?}"),
        }
    }
}
