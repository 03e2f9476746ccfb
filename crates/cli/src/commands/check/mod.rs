//! `elinvar check`: anyone's Metal kernels, run on the simulator.

mod expected;
mod launch;
mod report;

use clap::Args;
use elinvar::Result;
use elinvar_sim::{CompileOptions, Config, Lint, Math, Simulator, Source};

use crate::kernel::{BufferArgument, KernelArgs};

/// Arguments of `elinvar check`.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  elinvar check k.metal --kernel scale --grid 4 --threadgroup 64 \\\n    --buffer x=f32:256 --buffer out=f32:256 --value n=u32:256 --seeds 4 \\\n    --expect out=expected.safetensors#out --tolerance 1e-5\n\n\
    Exit code: 0 without findings, 1 with findings, 2 if the check could not be made."
)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    kernel: KernelArgs,
    /// Buffers that must be written in full [default: those the kernel writes and never reads]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    outputs: Option<Vec<String>>,
    /// What a buffer must hold after each run: NAME=FILE#TENSOR of a safetensors file, or NAME=TYPE:COUNT:VALUE; repeat for more
    #[arg(long, value_name = "NAME=CONTENTS")]
    expect: Vec<BufferArgument>,
    /// How far an element may be from what is expected: so much, or so much of it if it is larger than 1 [default: the bits must be the same]
    #[arg(long, value_name = "NUMBER", requires = "expect")]
    tolerance: Option<f64>,
    /// Schedules to try
    #[arg(long, default_value_t = 1)]
    seeds: u64,
    /// Processor seconds one threadgroup may take
    #[arg(long, default_value_t = 20, value_name = "SECONDS")]
    time_limit: u64,
    /// Compile every kernel of the file and run none
    #[arg(long, conflicts_with_all = ["kernel", "buffer", "value", "expect"])]
    compile_only: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Whether nothing was found.
pub(crate) fn run(args: &CheckArgs) -> Result<bool> {
    args.kernel.check_folders()?;
    let time_limit = std::time::Duration::from_secs(args.time_limit.max(1));
    let simulator = Simulator::new(Config { time_limit, ..Config::default() })?;
    let given = &args.kernel;
    let math = if given.fast_math { Math::Fast } else { Math::Safe };
    let options = CompileOptions {
        include_dirs: given.include.clone(),
        defines: given.define.clone(),
        metal_version: given.metal_version,
        math,
        ..CompileOptions::default()
    };
    let library = simulator.library(&Source::read(&given.file)?, &options)?;
    if args.compile_only {
        let names: Vec<_> = library.module().kernels().iter().map(|kernel| kernel.name.as_str()).collect();
        let lints = library.judge(&names)?;
        if is_refused(&lints, args) {
            report::print_refused(&lints, args);
            return Ok(false);
        }
        library.pipelines(&names)?;
        report::print_compiled(&names, &lints, args.json);
        return Ok(lints.is_empty());
    }
    let kernel = given.kernel(library.module())?;
    let lints = library.judge(&[kernel])?;
    if is_refused(&lints, args) {
        report::print_refused(&lints, args);
        return Ok(false);
    }
    let findings = launch::run(args, &simulator, &library, kernel)?;
    report::print_findings(&findings, &lints, args);
    Ok(findings.count() == 0 && lints.is_empty())
}

/// What Apple's compiler would refuse does not run here.
fn is_refused(lints: &[Lint], args: &CheckArgs) -> bool {
    !lints.is_empty() && !args.kernel.run_anyway
}
