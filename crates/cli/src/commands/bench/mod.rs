//! Benchmarks any device can be put through: operators against the machine's measured ceilings, and decoding.

mod ceiling;
mod decode;
mod loops;
mod ops;
mod predict;
mod rows;
mod table;
mod timing;

pub(crate) use ceiling::memory_bandwidth;
use clap::{Args, Subcommand};
use elinvar::{DeviceKind, DeviceProperties, Result};
pub(crate) use timing::median;

use crate::{args::ComputeArgs, profile::ProfileArgs};

/// Arguments of `elinvar bench`.
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    what: What,
}

/// What benchmarks of rows take.
#[derive(Debug, Args)]
struct RowArgs {
    /// Spend this many seconds on each row
    #[arg(long, default_value_t = 0.5)]
    seconds: f64,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    profile: ProfileArgs,
    #[command(flatten)]
    device: ComputeArgs,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Time operators; bytes and operations are counted and compared with the machine's measured ceilings
    Ops(ops::OpsArgs),
    /// Time prefill and decoding of a Llama with random weights
    Decode(decode::DecodeArgs),
    /// Predict prefill and decoding of a Llama on Apple's GPUs, from the launches planned for each; nothing is run or measured
    Predict(predict::PredictArgs),
    /// Time a fixed table of small operators beside figures published for MLX
    Table(RowArgs),
}

pub(crate) fn run(args: &BenchArgs) -> Result<()> {
    match &args.what {
        What::Ops(args) => ops::run(args),
        What::Decode(args) => decode::run(args),
        What::Predict(args) => predict::run(args),
        What::Table(args) => table::run(args),
    }
}

/// Whether the device is a graphics processor, not the simulator of one.
fn is_gpu(properties: &DeviceProperties) -> bool {
    properties.has_simdgroups() && properties.kind != DeviceKind::MetalSim
}

/// What a device's compute units are called.
fn units(properties: &DeviceProperties) -> &'static str {
    match properties.kind {
        DeviceKind::Metal | DeviceKind::MetalSim => "cores",
        DeviceKind::Cuda => "multiprocessors",
        DeviceKind::Cpu | DeviceKind::Null => "threads",
    }
}
