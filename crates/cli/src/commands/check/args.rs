//! The arguments of `elinvar check`.

use clap::{Args, ValueEnum};

use crate::kernel::KernelArgs;

/// Arguments of `elinvar check`.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  elinvar check k.metal --kernel scale --grid 4 --threadgroup 64 \\\n    --buffer x=f32:256 --buffer out=f32:256 --value n=u32:256 --seeds 4 \\\n    --expect out=expected.safetensors#out --tolerance 1e-5\n\n\
    The kernel runs in a process of its own, which is ended if it hangs, crashes or makes a system call.\n\
    Exit code: 0 without findings, 1 with findings, 2 if the check could not be made or the kernel had to be ended."
)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    pub(super) kernel: KernelArgs,
    /// Require these buffers to be written in full [default: those the kernel writes and never reads]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub(super) outputs: Option<Vec<String>>,
    /// Treat subnormal float and bfloat numbers this way
    #[arg(long, value_enum, default_value_t = Tiny::Keep)]
    pub(super) subnormals: Tiny,
    /// Try this many schedules
    #[arg(long, default_value_t = 1)]
    pub(super) seeds: u64,
    /// Stop a threadgroup after this much processor time
    #[arg(long, default_value_t = 20, value_name = "SECONDS")]
    pub(super) time_limit: u64,
    /// Compile every kernel of the file and run none
    #[arg(long, conflicts_with_all = ["kernel", "buffer", "value", "expect"])]
    pub(super) compile_only: bool,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// What becomes of numbers below the least normal one.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum Tiny {
    /// Keep them, as on NVIDIA's GPUs and on CPUs
    Keep,
    /// Flush them to zero in arithmetic, comparisons and conversions, as on Apple's GPUs
    Flush,
}
