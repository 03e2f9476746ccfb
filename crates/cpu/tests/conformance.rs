//! The conformance suite on the CPU device, at several thread counts.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a helper that fails fails its test")]

use std::num::NonZeroUsize;

use elinvar_core::Device;
use elinvar_cpu::CpuBackend;
use elinvar_kernels::conformance;

fn device(threads: usize) -> Device {
    Device::new(CpuBackend::new(NonZeroUsize::new(threads)).unwrap())
}

#[test]
fn every_operator_agrees_with_its_oracle_at_any_number_of_threads() {
    let devices = [device(1), device(2), device(7)];
    let cases = conformance::cases();
    assert!(!cases.is_empty());
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
