//! `elinvar check`: anyone's Metal kernels, run on the simulator.

mod launch;
mod report;

use std::time::Duration;

use clap::{Args, ValueEnum};
use elinvar::Result;
use elinvar_sim::{CompileOptions, Config, Lint, Math, Simulator, Source, Subnormals};

use super::print_line;
use crate::{
    contained::{self, Outcome, Parent},
    kernel::KernelArgs,
};

/// Arguments of `elinvar check`.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  elinvar check k.metal --kernel scale --grid 4 --threadgroup 64 \\\n    --buffer x=f32:256 --buffer out=f32:256 --value n=u32:256 --seeds 4 \\\n    --expect out=expected.safetensors#out --tolerance 1e-5\n\n\
    The kernel runs in a process of its own, which is ended if it hangs, crashes or makes a system call.\n\
    Exit code: 0 without findings, 1 with findings, 2 if the check could not be made or the kernel had to be ended."
)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    kernel: KernelArgs,
    /// Require these buffers to be written in full [default: those the kernel writes and never reads]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    outputs: Option<Vec<String>>,
    /// Treat subnormal float and bfloat numbers this way
    #[arg(long, value_enum, default_value_t = Tiny::Keep)]
    subnormals: Tiny,
    /// Try this many schedules
    #[arg(long, default_value_t = 1)]
    seeds: u64,
    /// Stop a threadgroup after this much processor time
    #[arg(long, default_value_t = 20, value_name = "SECONDS")]
    time_limit: u64,
    /// Compile every kernel of the file and run none
    #[arg(long, conflicts_with_all = ["kernel", "buffer", "value", "expect"])]
    compile_only: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What becomes of numbers below the least normal one.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Tiny {
    /// Keep them, as on NVIDIA's GPUs and on CPUs
    Keep,
    /// Flush them to zero in arithmetic, comparisons and conversions, as on Apple's GPUs
    Flush,
}

/// Whether nothing was found.
pub(crate) fn run(args: &CheckArgs) -> Result<bool> {
    args.kernel.check_folders()?;
    let (given, limit) = (&args.kernel, Duration::from_secs(args.time_limit.max(1)));
    let Outcome { report, verdict } = contained::run(&given.file, limit, &[given.save.as_deref()], |parent| check(args, limit, parent))?;
    let report = match &verdict {
        Err(error) if args.json => report::with_error(&report, error),
        _ => report,
    };
    if !report.is_empty() {
        print_line(report);
    }
    verdict
}

fn check(args: &CheckArgs, time_limit: Duration, parent: &mut Parent) -> Result<bool> {
    let simulator = Simulator::new(Config { time_limit, ..Config::default() })?;
    let given = &args.kernel;
    let math = if given.fast_math { Math::Fast } else { Math::Safe };
    let options = CompileOptions {
        include_dirs: given.include.clone(),
        defines: given.define.clone(),
        metal_version: given.metal_version,
        math,
        subnormals: match args.subnormals {
            Tiny::Keep => Subnormals::Keep,
            Tiny::Flush => Subnormals::Flush,
        },
        ..CompileOptions::default()
    };
    let library = simulator.library(&Source::read(&given.file)?, &options)?;
    if args.compile_only {
        let names: Vec<_> = library.module().kernels().iter().map(|kernel| kernel.name.as_str()).collect();
        let lints = library.judge(&names)?;
        if is_rejected(&lints, args) {
            parent.report(report::rejected(&lints, args.json))?;
            return Ok(false);
        }
        library.compile_all(&names)?;
        parent.report(report::compiled(&names, &lints, args.json))?;
        return Ok(lints.is_empty());
    }
    let kernel = given.kernel(library.module())?;
    let lints = library.judge(&[kernel])?;
    if is_rejected(&lints, args) {
        parent.report(report::rejected(&lints, args.json))?;
        return Ok(false);
    }
    let findings = launch::run(args, &simulator, &library, kernel, &lints, parent)?;
    Ok(findings.count() == 0 && lints.is_empty())
}

/// What Apple's compiler would reject does not run here.
fn is_rejected(lints: &[Lint], args: &CheckArgs) -> bool {
    !lints.is_empty() && !args.kernel.run_anyway
}
