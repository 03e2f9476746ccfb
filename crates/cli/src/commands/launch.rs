//! `elinvar launch`: anyone's Metal kernels, run on a device.

use std::time::Instant;

use clap::Args;
use elinvar::{ConstantValue, KernelArgument, MetalKernel, MetalLibrary, MetalSource, Result, Tensor};
use serde_json::json;

use super::print_line;
#[cfg(target_os = "linux")]
use crate::contained;
use crate::{
    args::DeviceArgs,
    kernel::{self, KernelArgs},
    tensors,
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

pub(crate) fn run(args: &LaunchArgs) -> Result<()> {
    #[cfg(target_os = "linux")]
    if args.device.is_simulator()? {
        return contained(args);
    }
    let (report, file) = launch(args)?;
    if let (Some(place), Some(bytes)) = (&args.kernel.save, file) {
        tensors::write_bytes(place, &bytes)?;
    }
    print_line(report);
    Ok(())
}

/// A simulated kernel is native code of somebody's.
#[cfg(target_os = "linux")]
fn contained(args: &LaunchArgs) -> Result<()> {
    let limit = elinvar_sim::Config::default().time_limit;
    let outcome = contained::run(&args.kernel.file, limit, args.kernel.save.as_deref(), |parent| {
        let (report, file) = launch(args)?;
        file.map_or(Ok(()), |bytes| parent.save(bytes))?;
        parent.report(report).map(|()| true)
    })?;
    outcome.verdict?;
    print_line(outcome.report);
    Ok(())
}

/// What is to be printed of the launch, and saved.
fn launch(args: &LaunchArgs) -> Result<(String, Option<Vec<u8>>)> {
    let executor = args.device.executor()?;
    let mut source = MetalSource::read(&args.kernel.file)?;
    source.include_folders = args.kernel.include.clone();
    source.defines = defines(&args.kernel);
    source.fast_math = args.kernel.fast_math;
    let library = executor.compile_metal(&source)?;
    let name = args.kernel.kernel(library.module())?;
    // Before the kernel, with which a process may lose the right to read files.
    let buffers = kernel::buffers(&executor, &args.kernel.buffer, args.kernel.seed)?;
    let start = Instant::now();
    let compiled_kernel = compile(&library, name, &args.kernel)?;
    let compiled = start.elapsed().as_secs_f64();
    let arguments = arguments(&args.kernel, &buffers);
    let (grid, threadgroup) = (args.kernel.grid.0, args.kernel.threadgroup.0);
    let (recording, ()) = executor.record(|| compiled_kernel.launch(grid, threadgroup, &arguments))?;
    executor.replay(&recording)?.wait()?;
    let file = args.kernel.save.as_ref().map(|_| kernel::saved(&buffers)).transpose()?;
    let time = kernel::median_seconds(&executor, &recording, args.repeat)?;
    if args.json {
        let report = json!({ "kernel": name, "device": executor.properties().name, "compile_seconds": compiled, "seconds": time });
        return Ok((report.to_string(), file));
    }
    let took = kernel::shown_median(time, args.repeat);
    Ok((format!("{name} on {}: compiled in {compiled:.2} s{took}", executor.properties().name), file))
}

fn compile(library: &MetalLibrary, name: &str, args: &KernelArgs) -> Result<MetalKernel> {
    let constants: Vec<(&str, ConstantValue)> = args.constants(library.module())?.into_iter().map(|(name, _, value)| (name, value)).collect();
    library.kernel(name, &constants)
}

fn defines(args: &KernelArgs) -> Vec<(String, String)> {
    let given = args.define.iter().map(|define| define.split_once('=').unwrap_or((define, "1")));
    let given = given.map(|(name, body)| (name.to_owned(), body.to_owned()));
    [("__METAL_VERSION__".to_owned(), args.metal_version.to_string())].into_iter().chain(given).collect()
}

fn arguments<'a>(args: &'a KernelArgs, buffers: &'a [(&'a str, Tensor)]) -> Vec<(&'a str, KernelArgument<'a>)> {
    let tensors = buffers.iter().map(|(name, tensor)| (*name, KernelArgument::Tensor(tensor)));
    let values = args.value.iter().map(|value| (value.name.as_str(), KernelArgument::Bytes(&value.bytes)));
    let memory = args.threadgroup_memory.iter().map(|memory| (memory.name.as_str(), KernelArgument::ThreadgroupMemory(memory.bytes)));
    tensors.chain(values).chain(memory).collect()
}
