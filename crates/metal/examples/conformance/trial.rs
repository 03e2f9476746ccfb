use std::{error::Error, process::ExitCode};

use elinvar_core::{Device, DeviceKind};
use elinvar_cpu::CpuBackend;
use elinvar_kernels::conformance;
use elinvar_metal::{Apple, MetalBackend, api::Api};

pub(crate) fn main() -> Result<ExitCode, Box<dyn Error>> {
    let filter = std::env::args().nth(1).unwrap_or_default();
    let apple = Apple::on_trial(0)?;
    let info = apple.info();
    println!("{}, {}, family Apple {}", info.name, info.system, info.family.map_or_else(|| "none".to_owned(), |family| family.to_string()));
    let (device, reference) = (Device::new(MetalBackend::new(apple, DeviceKind::Metal)), Device::new(CpuBackend::new(None)?));
    let cases: Vec<_> = conformance::cases().into_iter().filter(|case| case.name().contains(&filter)).collect();
    let (kernels, rejected) = conformance::compile(&cases, &device, |_, _| {});
    rejected.iter().for_each(|error| println!("{error}"));
    println!("{kernels} kernels, {} of them do not compile", rejected.len());
    let tally = conformance::run_suite(&cases, &device, &reference, |_, placement, outcome| {
        if let Err(error) = outcome {
            println!("{placement:?}: {error}");
        }
    });
    println!("{} passed, {} failed", tally.passed, tally.failed);
    Ok(if tally.failed == 0 && rejected.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
