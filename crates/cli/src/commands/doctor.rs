use std::{
    fs,
    num::NonZeroUsize,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use clap::Args;
use elinvar::{
    BackendType, Cache, Device, DeviceReport, Error, Executor, MemoryInfo, Precision, Result, cuda_compiler, devices, format_bytes,
    kernels::conformance::{Case, Tally, cases, check_fused, check_rows, compile, each_kernel_once, run_suite},
};
use indicatif::{ProgressBar, ProgressStyle};

use super::devices::as_text;
use crate::output::print_line;

/// Arguments of `elinvar doctor`.
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Run every conformance case, also on the simulator, where it takes minutes
    #[arg(long, conflicts_with = "quick")]
    full: bool,
    /// Run only enough conformance cases to use each kernel once, on every device
    #[arg(long)]
    quick: bool,
    /// Try only this device, named as for --device of other commands
    #[arg(long)]
    device: Option<BackendType>,
    /// Run only the cases of this operator, named as `elinvar op` lists it
    #[arg(long, value_name = "NAME")]
    operator: Option<String>,
}

/// Failures that are shown of each device.
const SHOWN: usize = 10;

/// Prints the page; whether nothing failed.
pub(crate) fn run(args: &DoctorArgs) -> Result<bool> {
    print_line(format!("elinvar {} · {} {}", env!("CARGO_PKG_VERSION"), std::env::consts::OS, std::env::consts::ARCH));
    print_line(format!("system    {}", system()));
    print_line(format!("processor {} · {} threads", processor(), std::thread::available_parallelism().map_or(1, usize::from)));
    let memory = MemoryInfo::of_host();
    if memory.total != usize::MAX {
        let [available, total] = [memory.available, memory.total].map(|bytes| format_bytes(bytes as u64));
        print_line(format!("memory    {available} of {total} free"));
    }
    for (purpose, found) in compilers() {
        print_line(format!("compiler  for {purpose}: {}", found.unwrap_or_else(|error| format!("none: {error}"))));
    }
    match Cache::default_folder() {
        Ok(folder) => print_line(format!("cache     {} in {}", format_bytes(bytes_in(&folder)), folder.display())),
        Err(error) => print_line(format!("cache     none: {error}")),
    }
    let mut chosen = cases();
    if let Some(name) = &args.operator {
        chosen.retain(|case| case.operator.name() == name);
        if chosen.is_empty() {
            return Err(Error::invalid_argument(format!("there is no case of an operator '{name}': `elinvar op` lists the operators")));
        }
    }
    let reference = Executor::new_cpu(NonZeroUsize::MIN)?;
    let mut verdicts = Vec::new();
    for report in devices().into_iter().filter(|report| args.device.is_none_or(|device| device == report.backend)) {
        if report.backend == BackendType::Null {
            continue;
        }
        print_line(format!("\n{}", as_text(&report)));
        let full = args.full || report.backend != BackendType::MetalSim && !args.quick;
        if report.state.is_ok() {
            // One device's trouble says nothing of the next one.
            let failed = |error: Error| {
                print_line(format!("          {error}"));
                false
            };
            let sound = examine(&report, reference.device(), chosen.clone(), full).unwrap_or_else(failed);
            let are_sound = !full
                || examine_fused(&report, &chosen).unwrap_or_else(failed) & examine_rows(&report, args.operator.as_deref()).unwrap_or_else(failed);
            verdicts.push((report.backend, sound && are_sound));
        }
    }
    verdict(args, &verdicts)
}

fn verdict(args: &DoctorArgs, verdicts: &[(BackendType, bool)]) -> Result<bool> {
    let names = |sound: bool| {
        let names: Vec<_> = verdicts.iter().filter(|(_, is)| *is == sound).map(|(backend, _)| backend.to_string()).collect();
        names.join(", ")
    };
    let (sound, faulty) = (names(true), names(false));
    match (args.device, sound.as_str(), faulty.as_str()) {
        (Some(device), "", "") => Err(Error::device_unavailable(format!("{device} is not available here, see above"))),
        (_, sound, "") => {
            print_line(format!("\nverdict   sound: {sound}"));
            Ok(true)
        }
        (_, sound, faulty) => {
            print_line(format!("\nverdict   FAULTY: {faulty}; sound: {}", if sound.is_empty() { "none" } else { sound }));
            Ok(false)
        }
    }
}

/// Compiles and runs kernels on a device; whether nothing failed.
fn examine(report: &DeviceReport, reference: &Device, all: Vec<Case>, full: bool) -> Result<bool> {
    let executor = Executor::new_with_backend(report.backend)?;
    let device = executor.device();
    let count = all.len();
    let chosen = if full { all } else { each_kernel_once(all, device.properties()) };
    let start = Instant::now();
    let compiling = progress("kernels compiled");
    let (kernels, rejected) = compile(&chosen, device, |done, all| show(&compiling, done, all));
    compiling.finish_and_clear();
    print_line(format!("          {kernels} kernels, {} of them do not compile, {:.1} s", rejected.len(), start.elapsed().as_secs_f64()));
    gathered(&rejected).iter().for_each(|line| print_line(format!("          {line}")));
    let (start, mut failures) = (Instant::now(), Vec::new());
    let running = progress("cases run");
    let Tally { passed, failed } = run_suite(&chosen, device, reference, |number, placement, outcome| {
        show(&running, number, chosen.len());
        failures.extend(outcome.as_ref().err().map(|error| format!("{placement:?}: {error}")));
    });
    running.finish_and_clear();
    let which =
        if full { format!("all {count} cases") } else { format!("{} of {count} cases, each kernel once (--full runs all of them)", chosen.len()) };
    print_line(format!(
        "          {which}, aligned and at odd offsets, against the bits of one CPU thread: {passed} passed, {failed} failed, {:.1} s",
        start.elapsed().as_secs_f64()
    ));
    failures.iter().take(SHOWN).for_each(|failure| print_line(format!("          {failure}")));
    if failures.len() > SHOWN {
        print_line(format!("          and {} more", failures.len() - SHOWN));
    }
    Ok(rejected.is_empty() && failed == 0)
}

/// Whether fused operators have the bits of what they stand for.
fn examine_fused(report: &DeviceReport, cases: &[Case]) -> Result<bool> {
    let executor = Executor::new_with_backend(report.backend)?;
    let names = check_fused(executor.device(), cases)?;
    if !names.is_empty() {
        let names: Vec<_> = names.into_iter().collect();
        print_line(format!("          the bits of the operators that they stand for: {}", names.join(", ")));
    }
    Ok(true)
}

/// Whether rows of linear layers have the bits by themselves that they have among others.
fn examine_rows(report: &DeviceReport, operator: Option<&str>) -> Result<bool> {
    // Rows, columns and summed elements: with lines of whole pieces, as kernels take them, and others.
    const EXTENTS: [[usize; 3]; 3] = [[600, 336, 1152], [130, 1501, 320], [70, 331, 1157]];
    let executor = Executor::new_with_backend(report.backend)?;
    let mut sound = true;
    for (precision, extents) in
        [Precision::Strict, Precision::Invariant].into_iter().flat_map(|precision| EXTENTS.map(|extents| (precision, extents)))
    {
        let outcome = check_rows(executor.device(), precision, operator, extents);
        sound &= outcome.is_ok();
        match outcome {
            Ok(0) => {}
            Ok(pieces) => print_line(format!("          {precision} rows have the same bits among others: {pieces} pieces of {} rows", extents[0])),
            Err(error) => print_line(format!("          {precision} rows: {error}")),
        }
    }
    Ok(sound)
}

/// What does not compile, each message once: kernels share files, and so what is wrong in them.
fn gathered(rejected: &[Error]) -> Vec<String> {
    let mut messages: Vec<(String, Vec<String>)> = Vec::new();
    for error in rejected {
        let text = error.to_string();
        let (kernel, message) = text.split_once(": ").unwrap_or(("", &text));
        match messages.iter_mut().find(|(known, _)| known == message) {
            Some((_, kernels)) => kernels.push(kernel.to_owned()),
            None => messages.push((message.to_owned(), vec![kernel.to_owned()])),
        }
    }
    let line = |(message, kernels): &(String, Vec<String>)| match kernels.as_slice() {
        [kernel] => format!("{kernel}: {message}"),
        [first, rest @ ..] => format!("{first} and {} more: {message}", rest.len()),
        [] => message.clone(),
    };
    messages.iter().map(line).collect()
}

/// Bytes of all files of a folder and those in it.
fn bytes_in(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let bytes = |entry: fs::DirEntry| {
        let data = entry.metadata().ok()?;
        Some(if data.is_dir() { bytes_in(&entry.path()) } else { data.len() })
    };
    entries.filter_map(bytes).sum()
}

/// A progress line, on a terminal, with how many are done.
fn progress(done: &'static str) -> ProgressBar {
    let style = ProgressStyle::with_template("{pos} of {len} {msg}").unwrap_or_else(|_| ProgressStyle::default_bar());
    let progress = ProgressBar::new(0).with_style(style).with_message(done);
    progress.enable_steady_tick(Duration::from_millis(200));
    progress
}

fn show(progress: &ProgressBar, done: usize, all: usize) {
    progress.set_length(all as u64);
    progress.set_position(done as u64);
}

/// Compilers that devices here need beside themselves.
fn compilers() -> Vec<(&'static str, Result<String>)> {
    vec![
        #[cfg(target_os = "linux")]
        ("the simulator", elinvar_sim::Toolchain::find().map(|found| found.describe())),
        ("cuda", cuda_compiler()),
    ]
}

/// The operating system's name and version.
fn system() -> String {
    let named = fs::read_to_string("/etc/os-release").ok().and_then(|text| {
        let name = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
        Some(name.trim_matches('"').to_owned())
    });
    let parts = [named.or_else(|| output("sw_vers", &["-productVersion"]).map(|version| format!("macOS {version}"))), output("uname", &["-sr"])];
    shown(parts.into_iter().flatten().collect())
}

/// The processor's name.
fn processor() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let named = info.lines().find(|line| line.starts_with("model name")).and_then(|line| Some(line.split_once(':')?.1.trim().to_owned()));
    shown(named.or_else(|| output("sysctl", &["-n", "machdep.cpu.brand_string"])).into_iter().collect())
}

fn shown(parts: Vec<String>) -> String {
    if parts.is_empty() { "unknown".to_owned() } else { parts.join(" · ") }
}

/// What a command of the system prints.
fn output(command: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(command).args(arguments).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned()).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_that_does_not_compile_is_reported_and_each_reason_once() {
        let rejected = |number: usize| match number % 3 {
            0 => Error::compile_failed(format!("k{number}: shared.metal:3:1: error: no such type")),
            _ => Error::compile_failed(format!("k{number}: own{number}.metal:1:1: error: no such function")),
        };
        let lines = gathered(&(0..30).map(rejected).collect::<Vec<_>>());
        assert_eq!(lines.len(), 21, "{lines:?}");
        assert_eq!(lines[0], "k0 and 9 more: shared.metal:3:1: error: no such type");
        assert_eq!(lines[1], "k1: own1.metal:1:1: error: no such function");
    }
}
