//! Loads a model, generates and drops it, again and again: `cycles [FOLDER] [COUNT]`. The device's free memory must stay what it was.
//!
//! The device is the automatic choice, or the one that `ELINVAR_DEVICE` names. The first cycles are left out of the comparison: libraries and compiled
//! kernels settle in them.

use std::{error::Error, ops::ControlFlow, process::ExitCode, sync::Arc, time::Instant};

use elinvar::{DType, Executor};
use elinvar_llm::{Config, GenerationOptions, Generator, Model, ModelFiles, Session, Tokenizer, Weights};

/// Cycles before the comparison begins.
const SETTLING: usize = 10;

/// Bytes of difference that the driver's own bookkeeping may make.
const ALLOWED: usize = 4 << 20;

fn cycle(executor: &Executor, folder: &str) -> Result<String, Box<dyn Error>> {
    let files = ModelFiles::open(folder)?;
    let tokenizer = Tokenizer::open(&files)?;
    let model = Arc::new(Model::new(executor, Config::read(&files)?, &Weights::open(&files)?)?);
    let prompt = tokenizer.encode("ROMEO:")?;
    let mut generator = Generator::new(Session::new(model, 64, DType::F16)?, tokenizer, Vec::new())?;
    let options = GenerationOptions { max_tokens: 8, ..GenerationOptions::default() };
    Ok(generator.generate(&prompt, &options, &mut |_| ControlFlow::Continue(()))?.text)
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().unwrap_or_else(|| "models/shakespeare".into());
    let count: usize = arguments.next().map_or(Ok(1000), |text| text.parse())?;
    let executor = Executor::new_auto()?;
    println!("{}: {count} cycles", executor.properties().name);
    let start = Instant::now();
    let (mut first, mut settled, mut text) = (0, 0, String::new());
    for index in 0..count {
        let answer = cycle(&executor, &folder)?;
        if index > 0 && answer != text {
            return Err(format!("cycle {index} gives {answer:?}, the first gave {text:?}").into());
        }
        text = answer;
        let free = executor.memory().available;
        if index == 0 {
            first = free;
        }
        if index + 1 == SETTLING {
            settled = free;
        }
        if (index + 1) % 100 == 0 {
            println!("{} cycles, {:.1} s: {free} bytes free", index + 1, start.elapsed().as_secs_f64());
        }
    }
    let last = executor.memory().available;
    println!("free after the first cycle {first}, after {SETTLING} {settled}, after {count} {last}; text {text:?}");
    let lost = settled.saturating_sub(last);
    Ok(if lost <= ALLOWED { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
