//! `elinvar check`: anyone's Metal kernels, run on the simulator.

mod arguments;
mod launch;
mod report;

use std::path::PathBuf;

use clap::Args;
use elinvar::{Error, Result};
use elinvar_sim::{CompileOptions, Config, Library, Lint, Math, Simulator, Source};

use arguments::{BufferArgument, ConstantArgument, ExtentArgument, SizeArgument, ValueArgument};

/// Arguments of `elinvar check`.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  elinvar check k.metal --kernel scale --grid 4 --threadgroup 64 \\\n    --buffer x=f32:256 --buffer out=f32:256 --value n=u32:256 --seeds 4\n\n\
    Exit code: 0 without findings, 1 with findings, 2 if the check could not be made."
)]
pub(crate) struct CheckArgs {
    /// Metal source
    file: PathBuf,
    /// Kernel to run, by its host name [default: the only one of the file]
    #[arg(long, value_name = "NAME")]
    kernel: Option<String>,
    /// Threadgroups, as X, X,Y or X,Y,Z
    #[arg(long, value_name = "EXTENT", default_value = "1")]
    grid: ExtentArgument,
    /// Threads of a threadgroup, as X, X,Y or X,Y,Z
    #[arg(long, value_name = "EXTENT", default_value = "32")]
    threadgroup: ExtentArgument,
    /// A buffer, by its name in the kernel's signature: NAME=TYPE:COUNT (seeded random numbers), NAME=TYPE:COUNT:VALUE or NAME=FILE#TENSOR of a
    /// safetensors file; repeat for more
    #[arg(long, value_name = "NAME=CONTENTS")]
    buffer: Vec<BufferArgument>,
    /// Bytes of a constant: NAME=TYPE:VALUE, or comma-separated values for a struct or an array of one type
    #[arg(long, value_name = "NAME=TYPE:VALUE")]
    value: Vec<ValueArgument>,
    /// Bytes of a threadgroup argument
    #[arg(long, value_name = "NAME=BYTES")]
    threadgroup_memory: Vec<SizeArgument>,
    /// Value of a function constant, by name or index
    #[arg(long, value_name = "NAME=VALUE")]
    constant: Vec<ConstantArgument>,
    /// Buffers that must be written in full [default: those the kernel writes and never reads]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    outputs: Option<Vec<String>>,
    /// Schedules to try
    #[arg(long, default_value_t = 1)]
    seeds: u64,
    /// Seed of the first schedule and of random buffers
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Folder where included files are looked for; repeat for more
    #[arg(short = 'I', long, value_name = "FOLDER")]
    include: Vec<PathBuf>,
    /// NAME or NAME=VALUE for the preprocessor; repeat for more
    #[arg(short = 'D', long, value_name = "NAME")]
    define: Vec<String>,
    /// Value of __METAL_VERSION__
    #[arg(long, default_value_t = 320)]
    metal_version: u32,
    /// Let products and sums be contracted, as Metal's fast math does
    #[arg(long)]
    fast_math: bool,
    /// Processor seconds one threadgroup may take
    #[arg(long, default_value_t = 20, value_name = "SECONDS")]
    time_limit: u64,
    /// Compile every kernel of the file and run none
    #[arg(long, conflicts_with_all = ["kernel", "buffer", "value"])]
    compile_only: bool,
    /// Safetensors file to write the buffers to, as the last schedule left them
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Whether nothing was found.
pub(crate) fn run(args: &CheckArgs) -> Result<bool> {
    let time_limit = std::time::Duration::from_secs(args.time_limit.max(1));
    let simulator = Simulator::new(Config { time_limit, ..Config::default() })?;
    let math = if args.fast_math { Math::Fast } else { Math::Safe };
    let options = CompileOptions {
        include_dirs: args.include.clone(),
        defines: args.define.clone(),
        metal_version: args.metal_version,
        math,
        ..CompileOptions::default()
    };
    let library = simulator.library(&Source::read(&args.file)?, &options)?;
    if args.compile_only {
        let names: Vec<_> = library.module().kernels().iter().map(|kernel| kernel.name.as_str()).collect();
        library.pipelines(&names)?;
        let lints = lints(&library, &names)?;
        report::print_compiled(&names, &lints, args.json);
        return Ok(lints.is_empty());
    }
    let kernel = kernel_name(args, &library)?;
    let findings = launch::run(args, &simulator, &library, kernel)?;
    let lints = lints(&library, &[kernel])?;
    report::print_findings(&findings, &lints, args);
    Ok(findings.found.is_empty() && lints.is_empty())
}

fn lints(library: &Library, kernels: &[&str]) -> Result<Vec<Lint>> {
    let mut lints = library.lints();
    lints.extend(library.address_space_lints(kernels)?);
    Ok(lints)
}

fn kernel_name<'a>(args: &'a CheckArgs, library: &'a Library) -> Result<&'a str> {
    let kernels = library.module().kernels();
    match (&args.kernel, kernels) {
        (Some(name), _) => Ok(name),
        (None, [only]) => Ok(&only.name),
        (None, []) => Err(Error::invalid_argument(format!("{} has no kernel", args.file.display()))),
        (None, _) => {
            let names: Vec<_> = kernels.iter().take(12).map(|kernel| kernel.name.as_str()).collect();
            let more = if kernels.len() > 12 { format!(" and {} more", kernels.len() - 12) } else { String::new() };
            Err(Error::invalid_argument(format!(
                "{} has {} kernels: choose one with --kernel: {}{more}",
                args.file.display(),
                kernels.len(),
                names.join(", ")
            )))
        }
    }
}
