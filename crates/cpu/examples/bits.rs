//! Prints a hash of every result of the conformance suite's strict cases: two processors have the same bits if their pages are the same.

use std::hash::{DefaultHasher, Hash, Hasher};

use elinvar_core::{Device, Result};
use elinvar_cpu::CpuBackend;
use elinvar_kernels::{
    Precision,
    conformance::{HostTensor, Placement, cases, run},
};

/// NaNs are one value, whatever their bits.
fn hash(results: &[HostTensor]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for value in results.iter().flat_map(HostTensor::to_f64) {
        if value.is_nan() { f64::NAN } else { value }.to_bits().hash(&mut hasher);
    }
    hasher.finish()
}

fn main() -> Result<()> {
    let device = Device::new(CpuBackend::new(None)?);
    for case in cases().into_iter().filter(|case| case.operator.precision() == Precision::Strict) {
        println!("{:016x} {}", hash(&run(&case, &device, Placement::Odd)?), case.name());
    }
    Ok(())
}
