//! `elinvar launch`: anyone's Metal kernels, run on a device.

use std::time::Instant;

use clap::Args;
use elinvar::{ConstantValue, KernelArgument, MetalKernel, MetalLibrary, MetalSource, Result, Tensor};
#[cfg(target_os = "linux")]
use elinvar::{DeviceKind, Error};
#[cfg(target_os = "linux")]
use elinvar_sim::{Judge, Lint};
use serde_json::json;

use super::print_line;
use crate::{
    args::DeviceArgs,
    kernel::{self, KernelArgs},
};

/// Arguments of `elinvar launch`.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  elinvar launch k.metal --device cuda --kernel scale --grid 4 --threadgroup 64 \\\n    --buffer x=f32:256 --buffer out=f32:256 --value n=u32:256 --save out.safetensors\n\n\
    The same arguments given to `elinvar check` have the kernel checked by the simulator."
)]
pub(crate) struct LaunchArgs {
    #[command(flatten)]
    kernel: KernelArgs,
    /// Launches to time, after the one whose results are saved; they go on with its buffers
    #[arg(long, default_value_t = 0, value_name = "COUNT")]
    repeat: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    device: DeviceArgs,
}

/// Fails with what Apple's compiler would refuse.
#[cfg(target_os = "linux")]
fn refuse(lints: &[Lint]) -> Result<()> {
    let Some(first) = lints.first() else { return Ok(()) };
    let others = if lints.len() > 1 { format!(" (and {} others: see `elinvar check`)", lints.len() - 1) } else { String::new() };
    Err(Error::compile_failed(format!("{first}{others}; Apple's compiler would refuse it: --run-anyway launches it all the same")))
}

pub(crate) fn run(args: &LaunchArgs) -> Result<()> {
    let executor = args.device.executor()?;
    args.kernel.check_folders()?;
    let mut source = MetalSource::read(&args.kernel.file)?;
    source.include_folders = args.kernel.include.clone();
    source.defines = defines(&args.kernel);
    source.version = args.kernel.metal_version;
    source.fast_math = args.kernel.fast_math;
    let library = executor.compile_metal(&source)?;
    let name = args.kernel.kernel(library.module())?;
    #[cfg(target_os = "linux")]
    if executor.properties().kind == DeviceKind::MetalSim && !args.kernel.run_anyway {
        refuse(&Judge::open(None)?.judge(library.module(), &[name], args.kernel.metal_version)?)?;
    }
    let start = Instant::now();
    let compiled_kernel = compile(&library, name, &args.kernel)?;
    let compiled = start.elapsed().as_secs_f64();
    let buffers = kernel::buffers(&executor, &args.kernel.buffer, args.kernel.seed)?;
    let arguments = arguments(&args.kernel, &buffers);
    let (grid, threadgroup) = (args.kernel.grid.0, args.kernel.threadgroup.0);
    let (recording, ()) = executor.record(|| compiled_kernel.launch(grid, threadgroup, &arguments))?;
    executor.replay(&recording)?.wait()?;
    if let Some(file) = &args.kernel.save {
        kernel::save(file, &buffers)?;
    }
    let time = kernel::median_seconds(&executor, &recording, args.repeat)?;
    if args.json {
        print_line(json!({ "kernel": name, "device": executor.properties().name, "compile_seconds": compiled, "seconds": time }));
        return Ok(());
    }
    let took = kernel::shown_median(time, args.repeat);
    print_line(format!("{name} on {}: compiled in {compiled:.2} s{took}", executor.properties().name));
    Ok(())
}

fn compile(library: &MetalLibrary, name: &str, args: &KernelArgs) -> Result<MetalKernel> {
    let constants: Vec<(&str, ConstantValue)> = args.constants(library.module())?.into_iter().map(|(name, _, value)| (name, value)).collect();
    library.kernel(name, &constants)
}

fn defines(args: &KernelArgs) -> Vec<(String, String)> {
    let given = args.define.iter().map(|define| define.split_once('=').unwrap_or((define, "1")));
    let given = given.map(|(name, body)| (name.to_owned(), body.to_owned()));
    given.collect()
}

fn arguments<'a>(args: &'a KernelArgs, buffers: &'a [(&'a str, Tensor)]) -> Vec<(&'a str, KernelArgument<'a>)> {
    let tensors = buffers.iter().map(|(name, tensor)| (*name, KernelArgument::Tensor(tensor)));
    let values = args.value.iter().map(|value| (value.name.as_str(), KernelArgument::Bytes(&value.bytes)));
    let memory = args.threadgroup_memory.iter().map(|memory| (memory.name.as_str(), KernelArgument::ThreadgroupMemory(memory.bytes)));
    tensors.chain(values).chain(memory).collect()
}
