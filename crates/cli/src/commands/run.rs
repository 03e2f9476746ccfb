//! `elinvar run`: an Atlas program on a device.

use std::{path::PathBuf, time::Instant};

use clap::Args;
use elinvar::{
    DType, Error, ProgramArgument, ProgramKernel, Result, Tensor,
    atlas::{Constant, LaunchConfig, Program},
};

use super::{bench::median, emit, print_line};
use crate::{
    args::DeviceArgs,
    kernel::{BufferArgument, ConstantArgument, ExtentArgument},
    tensors,
};

/// Threads of a block, if neither the program nor the command line says it.
const BLOCK: [u32; 3] = [256, 1, 1];

/// Arguments of `elinvar run`.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  elinvar run examples/saxpy.atlas --linear 1000 --buffer x=f32:1000 --buffer y=f32:1000:1 --scalar a=2 --scalar n=1000"
)]
pub(crate) struct RunArgs {
    /// Program, as text or binary
    file: PathBuf,
    /// Blocks, as X, X,Y or X,Y,Z
    #[arg(long, value_name = "EXTENT", default_value = "1", conflicts_with = "linear")]
    grid: ExtentArgument,
    /// As many blocks as make at least so many threads along x
    #[arg(long, value_name = "THREADS")]
    linear: Option<u64>,
    /// Threads of a block, as X, X,Y or X,Y,Z [default: what the program is written for, or 256]
    #[arg(long, value_name = "EXTENT")]
    block: Option<ExtentArgument>,
    /// A buffer: NAME=TYPE:COUNT (seeded random numbers), NAME=TYPE:COUNT:VALUE or NAME=FILE#TENSOR of a safetensors file; repeat for more
    #[arg(long, value_name = "NAME=CONTENTS")]
    buffer: Vec<BufferArgument>,
    /// A scalar, of the type that the program declares; repeat for more
    #[arg(long, value_name = "NAME=VALUE")]
    scalar: Vec<ConstantArgument>,
    /// Seed of random buffers
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Elements to print of each buffer that the program writes
    #[arg(long, default_value_t = 8, value_name = "COUNT")]
    print: usize,
    /// Write all buffers to a safetensors file
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Launches to time, after the one whose results are saved; they go on with its buffers
    #[arg(long, default_value_t = 0, value_name = "COUNT")]
    repeat: usize,
    #[command(flatten)]
    device: DeviceArgs,
}

pub(crate) fn run(args: &RunArgs) -> Result<()> {
    let executor = args.device.executor()?;
    let start = Instant::now();
    let kernel = executor.compile_program(emit::read(&args.file)?).map_err(|e| e.context(args.file.display()))?;
    let compiled = start.elapsed().as_secs_f64();
    let mut buffers = Vec::new();
    for (place, argument) in args.buffer.iter().enumerate() {
        let (dtype, bytes) = argument.bytes(args.seed, place).map_err(|e| e.context(format_args!("--buffer {}", argument.name)))?;
        buffers.push((argument.name.as_str(), executor.tensor_from_bytes(dtype, &[bytes.len() / dtype.size()], &bytes)?));
    }
    let scalars = scalars(args, kernel.program())?;
    let mut arguments: Vec<_> = buffers.iter().map(|(name, tensor)| (*name, ProgramArgument::Tensor(tensor))).collect();
    arguments.extend(scalars.iter().map(|(name, value)| (*name, ProgramArgument::Scalar(*value))));
    let launch = launch(args, kernel.program());
    let (recording, ()) = executor.record(|| kernel.launch(&launch, &arguments))?;
    executor.replay(&recording)?.wait()?;
    print(args, &kernel, &buffers)?;
    if let Some(file) = &args.save {
        let contents: Vec<(String, DType, Vec<u8>)> =
            buffers.iter().map(|(name, tensor)| Ok(((*name).to_owned(), tensor.dtype(), tensor.to_bytes()?))).collect::<Result<_>>()?;
        tensors::write_bytes(file, contents.into_iter())?;
    }
    let mut seconds = Vec::new();
    for _ in 0..args.repeat {
        let start = Instant::now();
        executor.replay(&recording)?.wait()?;
        seconds.push(start.elapsed().as_secs_f64());
    }
    let took = if seconds.is_empty() {
        String::new()
    } else {
        format!(", {:.1} µs a launch with its wait (median of {})", median(seconds) * 1e6, args.repeat)
    };
    print_line(format!("{} on {}: prepared in {compiled:.2} s{took}", kernel.program().name, executor.properties().name));
    Ok(())
}

fn scalars<'a>(args: &'a RunArgs, program: &Program) -> Result<Vec<(&'a str, Constant)>> {
    let scalar = |argument: &'a ConstantArgument| {
        let parameter = program.parameters.iter().find(|p| p.name == argument.name && p.access.is_none());
        let parameter = parameter.ok_or_else(|| Error::invalid_argument(format!("--scalar {}: the program has no such scalar", argument.name)))?;
        let value = Constant::parse(parameter.dtype, &argument.value).map_err(|e| e.context(format_args!("--scalar {}", argument.name)))?;
        Ok((argument.name.as_str(), value))
    };
    args.scalar.iter().map(scalar).collect()
}

fn launch(args: &RunArgs, program: &Program) -> LaunchConfig {
    let block = args.block.map(|block| block.0).or(program.block).unwrap_or(BLOCK);
    match args.linear {
        Some(threads) => LaunchConfig { block, ..LaunchConfig::linear(threads, block[0]) },
        None => LaunchConfig { grid: args.grid.0, block },
    }
}

/// Prints the first elements of what the program writes.
fn print(args: &RunArgs, kernel: &ProgramKernel, buffers: &[(&str, Tensor)]) -> Result<()> {
    let written = kernel.program().parameters.iter().filter(|p| p.access.is_some_and(|access| access.writes()));
    for parameter in written.filter(|_| args.print > 0) {
        let Some((name, tensor)) = buffers.iter().find(|(name, _)| *name == parameter.name) else { continue };
        let (bytes, size) = (tensor.to_bytes()?, parameter.dtype.size());
        let element = |bytes: &[u8]| {
            let bits = bytes.iter().rev().fold(0u64, |bits, byte| bits << 8 | u64::from(*byte));
            Constant { dtype: parameter.dtype, bits }.to_string()
        };
        let shown: Vec<_> = bytes.chunks_exact(size).take(args.print).map(element).collect();
        let more = if bytes.len() / size > args.print { " …" } else { "" };
        print_line(format!("{name}: {}{more}", shown.join(" ")));
    }
    Ok(())
}
