//! `elinvar run`: an Atlas program on a device.

use std::{path::PathBuf, time::Instant};

use clap::Args;
use elinvar::{
    Error, ProgramArgument, ProgramKernel, Result, Tensor,
    atlas::{Constant, LaunchConfig, Limits, Program},
};

use super::emit;
use crate::output::print_line;
use crate::{
    args::DeviceArgs,
    kernel::{self, BufferArgument, ConstantArgument, ExtentArgument, PictureArgument},
    profile::{self, ProfileArgs, profiled},
    tensors,
};

/// Threads of a block, if neither the program nor the command line says it.
const BLOCK: [u32; 3] = [256, 1, 1];

/// Arguments of `elinvar run`.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  elinvar run examples/saxpy.atlas --threads 1000 --buffer x=f32:1000 --buffer y=f32:1000:1 --scalar a=2 --scalar n=1000\n  \
    elinvar run examples/mandelbrot.atlas --block 16,16 --grid 40,20 --buffer counts=u32:204800 --scalar width=640 --scalar height=320 \
    --png counts=640x320:mandelbrot.png"
)]
pub(crate) struct RunArgs {
    /// Program, as text or binary
    file: PathBuf,
    /// Launch this many blocks: X, X,Y or X,Y,Z
    #[arg(long, value_name = "EXTENT", default_value = "1", conflicts_with = "threads")]
    grid: ExtentArgument,
    /// Launch this many threads, rounded up to whole blocks, instead of --grid: X, X,Y or X,Y,Z
    #[arg(long, value_name = "EXTENT", alias = "linear")]
    threads: Option<ExtentArgument>,
    /// Use this many threads per block: X, X,Y or X,Y,Z [default: what the program demands, or 256]
    #[arg(long, value_name = "EXTENT")]
    block: Option<ExtentArgument>,
    /// Give the shared array without a length this many bytes
    #[arg(long, value_name = "BYTES", default_value_t = 0, hide_default_value = true)]
    shared_memory: u32,
    /// Bind a buffer: NAME=TYPE:COUNT (seeded random numbers), NAME=TYPE:COUNT:VALUE or NAME=FILE#TENSOR of a safetensors file; repeat for more
    #[arg(long, value_name = "NAME=CONTENTS")]
    buffer: Vec<BufferArgument>,
    /// Pass a scalar of the type that the program declares; repeat for more
    #[arg(long, value_name = "NAME=VALUE")]
    scalar: Vec<ConstantArgument>,
    /// Seed the random buffers
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Print this many elements of each buffer that the program writes
    #[arg(long, default_value_t = 8, value_name = "COUNT")]
    print: usize,
    /// Write all buffers to a safetensors file
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Write a buffer as a PNG image: BUFFER=WIDTHxHEIGHT:FILE; three u8 per pixel are RGB, one is grey, other types are scaled; repeat for more
    #[arg(long, value_name = "PICTURE")]
    png: Vec<PictureArgument>,
    /// Stop the launch after this many loop steps of a thread [default: 268435456]
    #[arg(long, value_name = "COUNT")]
    steps: Option<u32>,
    /// Allow 'bounds unchecked', for programs that you trust
    #[arg(long)]
    unchecked: bool,
    /// Time this many more launches, after the one whose results are saved, on the same buffers
    #[arg(long, default_value_t = 0, value_name = "COUNT")]
    repeat: usize,
    #[command(flatten)]
    profile: ProfileArgs,
    #[command(flatten)]
    device: DeviceArgs,
}

pub(crate) fn run(args: &RunArgs) -> Result<()> {
    let trace = args.profile.open()?;
    let executor = args.device.executor()?;
    let mut profiler = args.profile.profiler(&executor)?;
    let start = Instant::now();
    let defaults = Limits::default();
    let limits = Limits { steps: args.steps.or(defaults.steps), unchecked: args.unchecked, ..defaults };
    let program = executor.compile_program_within(emit::read(&args.file)?, &limits).map_err(|e| e.context(args.file.display()))?;
    let compiled = start.elapsed().as_secs_f64();
    let buffers = kernel::buffers(&executor, &args.buffer, &kernel::contents(&args.buffer, args.seed)?)?;
    let scalars = scalars(args, program.program())?;
    let mut arguments: Vec<_> = buffers.iter().map(|(name, tensor)| (*name, ProgramArgument::Tensor(tensor))).collect();
    arguments.extend(scalars.iter().map(|(name, value)| (*name, ProgramArgument::Scalar(*value))));
    let launch = launch(args, program.program());
    let (recording, ()) = executor.record(|recorded| program.on(recorded)?.launch(&launch, &arguments))?;
    profiled(&mut profiler, "first launch", || executor.replay(&recording)?.wait())?;
    print(args, &program, &buffers)?;
    for picture in &args.png {
        let buffer = buffers.iter().find(|(name, _)| *name == picture.name);
        let (_, tensor) = buffer.ok_or_else(|| Error::invalid_argument(format!("--png {}: there is no such buffer", picture.name)))?;
        picture.write(tensor)?;
    }
    if let Some(file) = &args.save {
        tensors::write_bytes(file, &kernel::saved(&buffers)?)?;
    }
    let took = kernel::shown_median(kernel::median_seconds(&executor, &recording, args.repeat, &mut profiler)?, args.repeat);
    profile::finish(profiler, trace.as_deref())?;
    print_line(format!("{} on {}: prepared in {compiled:.2} s{took}", program.program().name, executor.properties().name));
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
    let covering = |threads: ExtentArgument| [0, 1, 2].map(|axis| threads.0[axis].div_ceil(block[axis].max(1)));
    LaunchConfig::new(args.threads.map_or(args.grid.0, covering), block).with_shared_memory(args.shared_memory)
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
