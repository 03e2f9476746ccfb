use std::{collections::HashMap, error::Error, fs, path::Path, process::ExitCode};

use elinvar_core::{Device, DeviceKind};
use elinvar_cpu::CpuBackend;
use elinvar_kernels::conformance;
use elinvar_metal::{MetalBackend, Simulated, SimulatorOptions};

pub(crate) fn main() -> Result<ExitCode, Box<dyn Error>> {
    let (mut filter, mut seeds, mut texts) = (String::new(), 1, HashMap::new());
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--sources" => {
                let root = arguments.next().ok_or("--sources needs a folder")?;
                read_texts(Path::new(&root), Path::new(&root), &mut texts)?;
            }
            "--seeds" => seeds = arguments.next().ok_or("--seeds needs a number")?.parse()?,
            _ => filter = argument,
        }
    }
    let reference = Device::new(CpuBackend::new(None)?);
    let options = SimulatorOptions::default();
    let seed = options.seed.clone();
    let device = Device::new(MetalBackend::new(Simulated::new(options)?, DeviceKind::MetalSim).with_texts(texts));
    let cases: Vec<_> = conformance::cases().into_iter().filter(|case| case.name().contains(&filter)).collect();
    let (mut passed, mut failed) = (0, 0);
    for number in 0..seeds {
        seed.set(number);
        let tally = conformance::run_suite(&cases, &device, &reference, |_, placement, outcome| {
            if let Err(error) = outcome {
                println!("{placement:?} seed {number}: {error}");
            }
        });
        passed += tally.passed;
        failed += tally.failed;
    }
    println!("{passed} passed, {failed} failed");
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Every `.metal` file under `folder`, by its path under `root`.
fn read_texts(root: &Path, folder: &Path, texts: &mut HashMap<String, String>) -> Result<(), Box<dyn Error>> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            read_texts(root, &path, texts)?;
        } else if path.extension().is_some_and(|e| e == "metal") {
            texts.insert(path.strip_prefix(root)?.to_string_lossy().into_owned(), fs::read_to_string(&path)?);
        }
    }
    Ok(())
}
