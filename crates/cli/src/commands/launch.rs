//! `elinvar launch`: anyone's Metal kernels, run on a device.

#[cfg(target_os = "linux")]
use std::path::Path;
use std::time::Instant;

use clap::Args;
use elinvar::{ConstantValue, Executor, KernelArgument, MetalKernel, MetalLibrary, MetalSource, Result, Tensor};
#[cfg(target_os = "linux")]
use elinvar::{DeviceKind, Error, metallib::Kernels};
use elinvar_check::Expected;
#[cfg(target_os = "linux")]
use elinvar_check::contained;
#[cfg(target_os = "linux")]
use elinvar_sim::{Judge, Lint};
use serde_json::json;

use crate::output::print_line;
use crate::{
    args::DeviceArgs,
    kernel::{self, KernelArgs},
    profile::{self, ProfileArgs, Profiler, profiled},
    tensors,
};

/// Arguments of `elinvar launch`.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  elinvar launch k.metal --device cuda --kernel scale --grid 4 --threadgroup 64 \\\n    --buffer x=f32:256 --buffer out=f32:256 --value n=u32:256 --save out.safetensors\n\n\
    The same arguments given to `elinvar check` have the kernel checked by the simulator.\n\
    Exit code: 0, 1 if a buffer does not hold what --expect says, 2 if the kernel could not be launched."
)]
pub(crate) struct LaunchArgs {
    #[command(flatten)]
    kernel: KernelArgs,
    /// Time this many more launches, after the one whose results are saved, on the same buffers
    #[arg(long, default_value_t = 0, value_name = "COUNT")]
    repeat: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    profile: ProfileArgs,
    #[command(flatten)]
    device: DeviceArgs,
}

/// Fails with what Apple's compiler would reject.
#[cfg(target_os = "linux")]
fn reject(lints: &[Lint]) -> Result<()> {
    let Some(first) = lints.first() else { return Ok(()) };
    let others = if lints.len() > 1 { format!(" (and {} others: see `elinvar check`)", lints.len() - 1) } else { String::new() };
    Err(Error::compile_failed(format!("{first}{others}; Apple's compiler would reject it: --run-anyway launches it all the same")))
}

/// Whether the buffers hold what is expected.
pub(crate) fn run(args: &LaunchArgs) -> Result<bool> {
    let trace = args.profile.open()?;
    #[cfg(target_os = "linux")]
    if args.device.is_simulator()? {
        return contained(args, trace.as_deref());
    }
    let Launched { report, file, profiler, as_expected } = launch(args)?;
    if let (Some(place), Some(bytes)) = (&args.kernel.save, file) {
        tensors::write_bytes(place, &bytes)?;
    }
    profile::finish(profiler, trace.as_deref())?;
    print_line(report);
    Ok(as_expected)
}

/// A simulated kernel is someone else's native code.
#[cfg(target_os = "linux")]
fn contained(args: &LaunchArgs, trace: Option<&Path>) -> Result<bool> {
    const SAVED: u8 = 0;
    const TRACE: u8 = 1;
    let limit = elinvar_sim::Config::default().time_limit;
    let mut outcome = contained::run(&args.kernel.file.display().to_string(), limit, |parent| {
        let Launched { report, file, profiler, as_expected } = launch(args)?;
        file.map_or(Ok(()), |bytes| parent.save(SAVED, bytes))?;
        if let Some(profiler) = profiler {
            parent.save(TRACE, profiler.trace())?;
            eprintln!("{}", profiler.tables());
        }
        parent.report(report)?;
        Ok(as_expected)
    })?;
    for (number, file) in [(SAVED, args.kernel.save.as_deref()), (TRACE, trace)] {
        if let (Some(file), Some(bytes)) = (file, outcome.files.remove(&number)) {
            tensors::write_bytes(file, &bytes)?;
        }
    }
    let as_expected = outcome.verdict?;
    if let Some(trace) = trace {
        eprintln!("timeline: {}", trace.display());
    }
    print_line(outcome.report);
    Ok(as_expected)
}

/// What came of a launch.
struct Launched {
    /// What is to be printed.
    report: String,
    /// What is to be saved.
    file: Option<Vec<u8>>,
    /// What was profiled.
    profiler: Option<Profiler>,
    as_expected: bool,
}

fn launch(args: &LaunchArgs) -> Result<Launched> {
    let executor = args.device.executor()?;
    let mut profiler = args.profile.profiler(&executor)?;
    args.kernel.check_folders()?;
    let library = library(&executor, &args.kernel)?;
    let name = args.kernel.kernel(library.kernels())?;
    #[cfg(target_os = "linux")]
    if let Kernels::Text(module) = library.kernels()
        && executor.properties().kind == DeviceKind::MetalSim
        && !args.kernel.run_anyway
    {
        reject(&Judge::open(None)?.judge(module, &[name], args.kernel.metal_version)?)?;
    }
    // Before the kernel, with which a process may lose the right to read files.
    let contents = kernel::contents(&args.kernel.buffer, args.kernel.seed)?;
    let expected = args.kernel.expected()?;
    let expected = args.kernel.comparisons(&expected, &contents)?;
    let buffers = kernel::buffers(&executor, &args.kernel.buffer, &contents)?;
    let start = Instant::now();
    let compiled_kernel = compile(&library, name, &args.kernel)?;
    let compiled = start.elapsed().as_secs_f64();
    let arguments = arguments(&args.kernel, &buffers);
    let threadgroup = args.kernel.threadgroup.0;
    let (recording, ()) = executor.record(|recorded| match args.kernel.threads {
        Some(threads) => compiled_kernel.on(recorded)?.launch_threads(threads.0, threadgroup, &arguments),
        None => compiled_kernel.on(recorded)?.launch(args.kernel.grid.0, threadgroup, &arguments),
    })?;
    profiled(&mut profiler, "first launch", || executor.replay(&recording)?.wait())?;
    let file = args.kernel.save.as_ref().map(|_| kernel::saved(&buffers)).transpose()?;
    let differences = differences(&args.kernel, &expected, &buffers)?;
    let time = kernel::median_seconds(&executor, &recording, args.repeat, &mut profiler)?;
    let (device, as_expected) = (&executor.properties().name, differences.is_empty());
    let report = if args.json {
        let report = json!({ "kernel": name, "device": device, "compile_seconds": compiled, "seconds": time, "differences": differences });
        report.to_string()
    } else {
        let took = kernel::shown_median(time, args.repeat);
        differences.into_iter().chain([format!("{name} on {device}: compiled in {compiled:.2} s{took}")]).collect::<Vec<_>>().join("\n")
    };
    Ok(Launched { report, file, profiler, as_expected })
}

/// How the buffers differ from what is expected of them.
fn differences(args: &KernelArgs, expected: &[Expected<'_>], buffers: &[(&str, Tensor)]) -> Result<Vec<String>> {
    let mut differences = Vec::new();
    for (argument, (_, tensor)) in args.buffer.iter().zip(buffers) {
        if let Some(expected) = expected.iter().find(|expected| expected.buffer == argument.name) {
            differences.extend(expected.compare(&tensor.to_bytes()?).map(|difference| difference.to_string()));
        }
    }
    Ok(differences)
}

fn compile(library: &MetalLibrary, name: &str, args: &KernelArgs) -> Result<MetalKernel> {
    let constants = args.constants(library.kernels().constants(name)?)?;
    let constants: Vec<(&str, ConstantValue)> = constants.into_iter().map(|(name, _, value)| (name, value)).collect();
    library.kernel(name, &constants)
}

/// A text, or a compiled library.
fn library(executor: &Executor, args: &KernelArgs) -> Result<MetalLibrary> {
    if super::inspect::is_compiled(&args.file) {
        let library = executor.load_metal_library(&args.file)?;
        return Ok(if args.fast_math { library.with_fast_math() } else { library });
    }
    let mut source = MetalSource::read(&args.file)?;
    source.include_folders = args.include.clone();
    source.defines = defines(args);
    source.version = args.metal_version;
    source.fast_math = args.fast_math;
    executor.compile_metal(&source)
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
