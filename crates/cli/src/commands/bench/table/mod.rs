//! A fixed table of small operators, and the sizes at which a GPU pays.

mod rows;
mod sweep;

use std::time::Duration;

use clap::Args;
use elinvar::{
    BackendType, DeviceKind, Executor, Recording, Result, Tensor,
    kernels::conformance::{Case, HostTensor, Placement, run as run_case},
};
use serde_json::{Value, json};

use self::rows::{Row, rows};
use super::{
    args::RowArgs,
    timing::{replay_profiled, replay_seconds},
};
use crate::{
    measure::{is_gpu, published_bandwidth},
    output::print_line,
    profile::{self, Profiler},
};

/// Arguments of `elinvar bench table`.
#[derive(Debug, Args)]
pub(super) struct TableArgs {
    /// Elements of the largest problem of the sweep over sizes, which begins at 1024
    #[arg(long, default_value_t = 1 << 24, value_name = "ELEMENTS")]
    largest: usize,
    #[command(flatten)]
    rows: RowArgs,
}

/// Operators in a row of one recording.
const REPEATS: usize = 100;

/// Microseconds of an operator on one device.
#[derive(Clone, Copy)]
struct Times {
    alone: f64,
    /// Nothing on the simulator, whose repetitions say nothing.
    of_100: Option<f64>,
}

pub(super) fn run(TableArgs { largest, rows: args }: &TableArgs) -> Result<()> {
    let trace = args.profile.open()?;
    let executor = args.device.executor()?;
    let mut profiler = args.profile.profiler(&executor)?;
    let properties = executor.properties();
    let bandwidth = if properties.kind == DeviceKind::Metal { published_bandwidth(properties) } else { None };
    let is_cpu = properties.kind == DeviceKind::Cpu;
    let cpu = if is_cpu { executor.clone() } else { Executor::new_with_backend(BackendType::Cpu)?.with_precision(executor.precision()) };
    let device = (!is_cpu).then_some(&executor);
    if !args.json {
        print_line(format!("{} · f32 · {} precision", properties.name, executor.precision()));
        print_line("alone: one operator, submitted and waited for; of 100: its share of a recording of a hundred that depend on nothing");
        print_line("each row is verified against float64, then timed; target: what this project aims at on an M-series GPU, not a measurement");
        if let Some(bandwidth) = bandwidth {
            print_line(format!("limit: bytes over the {:.0} GB/s that Apple publishes", bandwidth / 1e9));
        }
        match device {
            None => print_line("there is no GPU here, or it was not asked for: its columns, and from which size on it pays, are left out"),
            Some(_) if is_gpu(properties) => print_line("faster: the CPU's time over the device's"),
            Some(_) => {
                print_line("the simulator runs and checks the kernels on this machine's processor: its times say nothing of a GPU, nor of repetition")
            }
        }
        let device = if is_cpu { String::new() } else { format!(" {:>10} {:>10} {:>8} {:>8}", "alone", "of 100", "faster", "of 100") };
        let limit = if bandwidth.is_some() { format!(" {:>9}", "limit") } else { String::new() };
        print_line(format!("\n{:<34} {:>10} {:>10}{device} {:>9}{limit}", "µs", "cpu alone", "cpu of 100", "target"));
    }
    let mut results = Vec::new();
    for row in rows(executor.precision()) {
        let (mut none, seconds) = (None, args.seconds / if is_cpu { 1.0 } else { 2.0 });
        let on_cpu = measure(&cpu, &row, seconds, if is_cpu { &mut profiler } else { &mut none })?;
        let on_device = device.map(|device| measure(device, &row, seconds, &mut profiler)).transpose()?;
        let limit = bandwidth.map(|bandwidth| 1e6 * bytes(&row.case) as f64 / bandwidth);
        if !args.json {
            print_line(text(&row, on_cpu, on_device, limit));
        }
        results.push(as_json(&row, on_cpu, on_device, limit));
    }
    profile::finish(profiler, trace.as_deref())?;
    // The simulator would take hours, for times that say nothing.
    let gpu = device.filter(|device| is_gpu(device.properties()));
    let sweeps = if is_cpu || gpu.is_some() { sweep::run(&cpu, gpu, *largest, args)? } else { Vec::new() };
    if args.json {
        print_line(json!({
            "device": properties.name, "cpu": cpu.properties().name, "precision": executor.precision().to_string(), "rows": results, "sweeps": sweeps
        }));
    }
    Ok(())
}

/// Times over others: how many times faster those are.
fn ratios(slow: Times, fast: Times) -> [Option<f64>; 2] {
    [Some(slow.alone / fast.alone), slow.of_100.zip(fast.of_100).map(|(slow, fast)| slow / fast)]
}

fn text(row: &Row, cpu: Times, device: Option<Times>, limit: Option<f64>) -> String {
    let shown = |us: Option<f64>| us.map_or_else(|| "–".to_owned(), |us| format!("{us:.2}"));
    let device = device.map_or_else(String::new, |times| {
        let [faster, of_100] = ratios(cpu, times).map(|ratio| ratio.map_or_else(|| "–".to_owned(), |ratio| format!("{ratio:.2}×")));
        format!(" {:>10.2} {:>10} {faster:>8} {of_100:>8}", times.alone, shown(times.of_100))
    });
    let limit = limit.map_or_else(String::new, |us| format!(" {us:>9.2}"));
    format!("{:<34} {:>10.2} {:>10}{device} {:>9.2}{limit}", row.name, cpu.alone, shown(cpu.of_100), row.target)
}

fn as_json(row: &Row, cpu: Times, device: Option<Times>, limit: Option<f64>) -> Value {
    let mut json = json!({ "name": row.name, "cpu_alone_us": cpu.alone, "cpu_of_100_us": cpu.of_100, "target_us": row.target, "limit_us": limit });
    if let Some(times) = device {
        let [alone, of_100] = ratios(cpu, times);
        (json["alone_us"], json["of_100_us"]) = (times.alone.into(), times.of_100.into());
        (json["times_faster_alone"], json["times_faster_of_100"]) = (alone.into(), of_100.into());
    }
    json
}

/// Verifies a row on a device, and times it for so many seconds.
fn measure(executor: &Executor, row: &Row, seconds: f64, profiler: &mut Option<Profiler>) -> Result<Times> {
    row.case.check(&run_case(&row.case, executor.device(), Placement::Aligned)?)?;
    let simulated = executor.properties().kind == DeviceKind::MetalSim;
    let time = |count, profiler: &mut Option<Profiler>| replayed(executor, row, count, seconds / 2.0, profiler).map(|seconds| 1e6 * seconds);
    let mut none = None;
    let alone = time(1, if simulated { &mut *profiler } else { &mut none })?;
    let of_100 = if simulated { None } else { Some(time(REPEATS, profiler)?) };
    Ok(Times { alone, of_100 })
}

/// Seconds of one of `count` operators that are submitted together, timed for so long, and then profiled.
fn replayed(executor: &Executor, row: &Row, count: usize, seconds: f64, profiler: &mut Option<Profiler>) -> Result<f64> {
    let case = &row.case;
    let tensor = |host: &HostTensor| executor.tensor_from_bytes(host.dtype(), host.dims(), host.bytes());
    let inputs = case.inputs.iter().map(|input| input.as_ref().map(tensor).transpose()).collect::<Result<Vec<_>>>()?;
    let bound: Vec<Option<&Tensor>> = inputs.iter().map(Option::as_ref).collect();
    // Each has outputs of its own, so that none waits for the memory of another.
    let recordings = (0..count).map(|_| executor.record(|recorded| recorded.apply(case.operator.clone(), &bound)).map(|(recording, _)| recording));
    let recording = Recording::concat(&recordings.collect::<Result<Vec<_>>>()?)?;
    let seconds = replay_seconds(executor, &recording, Duration::from_secs_f64(seconds))?;
    replay_profiled(executor, &recording, row.name, seconds, profiler)?;
    Ok(seconds / count as f64)
}

fn bytes(case: &Case) -> usize {
    let inputs = case.inputs.iter().flatten().map(|input| input.bytes().len()).sum::<usize>();
    let outputs = case.infos().and_then(|infos| case.operator.infer(&infos)).unwrap_or_default();
    inputs + outputs.iter().map(|output| output.bytes()).sum::<usize>()
}
