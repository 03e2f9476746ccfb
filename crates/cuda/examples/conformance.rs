//! Runs conformance cases on a GPU: `conformance [--device N] [--list] [--shard I/N] [FILTER]`. Strict results must have the bits of the CPU.
//!
//! `--list` only prints the cases. `--shard` takes the I-th of N parts, for several processes side by side, under `compute-sanitizer` say.

use std::{error::Error, io::Write, process::ExitCode, time::Instant};

use elinvar_core::Device;
use elinvar_cpu::CpuBackend;
use elinvar_cuda::CudaBackend;
use elinvar_kernels::conformance;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let (mut filter, mut ordinal, mut list, mut shard) = (String::new(), 0, false, (0, 1));
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--device" => ordinal = arguments.next().ok_or("--device needs a number")?.parse()?,
            "--list" => list = true,
            "--shard" => {
                let text = arguments.next().ok_or("--shard needs I/N")?;
                let (index, parts) = text.split_once('/').ok_or("--shard needs I/N")?;
                shard = (index.parse()?, parts.parse()?);
            }
            _ => filter = argument,
        }
    }
    let (index, parts): (usize, usize) = shard;
    if index >= parts {
        return Err("--shard I/N takes I from 0 to N - 1".into());
    }
    let cases = conformance::cases().into_iter().filter(|case| case.name().contains(&filter));
    let cases: Vec<_> = cases.skip(index).step_by(parts).collect();
    if list {
        cases.iter().for_each(|case| println!("{}", case.name()));
        return Ok(ExitCode::SUCCESS);
    }
    let reference = Device::new(CpuBackend::new(None)?);
    let backend = CudaBackend::new(ordinal)?;
    println!("{}", backend.software());
    let device = Device::new(backend);
    let start = Instant::now();
    // Asking for every kernel first has them compiled side by side.
    conformance::compile(&cases, &device, |_, _| {});
    let mut failures = 0;
    let tally = conformance::run_suite(&cases, &device, &reference, |number, placement, outcome| {
        if let Err(error) = outcome {
            failures += 1;
            println!("{placement:?}: {error}");
        }
        if number % 100 == 0 {
            print!("\r{number} of {} cases, {failures} failures, {:.0} s", cases.len(), start.elapsed().as_secs_f64());
            let _ = std::io::stdout().flush();
        }
    });
    println!("\r{} passed, {} failed, {:.1} s", tally.passed, tally.failed, start.elapsed().as_secs_f64());
    Ok(if tally.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
