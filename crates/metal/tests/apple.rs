//! The conformance suite on the Mac's own GPU, with the CPU device's bits. Where there is none that the kernels can use, it fails, unless
//! `ELINVAR_ALLOW_NO_GPU` is set: a test that was skipped must not look like one that passed.

#![cfg(target_vendor = "apple")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a helper that fails fails its test")]

use std::io::Write;

use elinvar_core::{Device, DeviceKind};
use elinvar_cpu::CpuBackend;
use elinvar_kernels::conformance;
use elinvar_metal::{Apple, MetalBackend};

#[test]
fn every_operator_has_the_bits_of_the_cpu() {
    let apple = match Apple::new(0) {
        Ok(apple) => apple,
        // Not captured, as what is printed would be.
        Err(why) if std::env::var_os("ELINVAR_ALLOW_NO_GPU").is_some() => {
            return drop(writeln!(std::io::stderr(), "SKIPPED, nothing was run on a GPU: {why}"));
        }
        Err(why) => panic!("nothing was run on a GPU: {why}; set ELINVAR_ALLOW_NO_GPU=1 to let that pass"),
    };
    let metal = Device::new(MetalBackend::new(apple, DeviceKind::Metal));
    let cpu = Device::new(CpuBackend::new(None).unwrap());
    let cases = conformance::cases();
    let mut failures = Vec::new();
    let tally = conformance::run_suite(&cases, &metal, &cpu, |_, placement, outcome| {
        failures.extend(outcome.as_ref().err().map(|error| format!("{placement:?}: {error}")));
    });
    println!("{tally:?} on {}", metal.properties().name);
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
