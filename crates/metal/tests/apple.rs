//! The conformance suite on the Mac's own GPU, with the CPU device's bits; said aloud where there is none that the kernels can use.

#![cfg(target_vendor = "apple")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a helper that fails fails its test")]

use elinvar_core::{Device, DeviceKind};
use elinvar_cpu::CpuBackend;
use elinvar_kernels::conformance::{self, Placement};
use elinvar_metal::{Apple, MetalBackend};

#[test]
fn every_operator_has_the_bits_of_the_cpu() {
    let apple = match Apple::new(0) {
        Ok(apple) => apple,
        Err(why) => return println!("SKIPPED, nothing was run on a GPU: {why}"),
    };
    let metal = Device::new(MetalBackend::new(apple, DeviceKind::Metal));
    let cpu = Device::new(CpuBackend::new(None).unwrap());
    let cases = conformance::cases();
    let each = cases.iter().flat_map(|case| Placement::ALL.iter().map(move |&placement| (case, placement)));
    let failures: Vec<_> = each.filter_map(|(case, placement)| conformance::compare(case, &metal, &cpu, placement).err()).collect();
    println!("{} cases on {}, {} failures", cases.len(), metal.properties().name, failures.len());
    assert!(failures.is_empty(), "{}", failures.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"));
}
