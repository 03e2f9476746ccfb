//! Benchmarks any device can be put through: operators against the machine's measured ceilings, decoding and training.

mod args;
mod decode;
mod ops;
mod predict;
mod rows;
mod table;
mod timing;
mod train;

use clap::{Args, Subcommand};
use elinvar::Result;

/// Arguments of `elinvar bench`.
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Time operators; bytes and operations are counted and compared with the machine's measured ceilings
    Ops(ops::OpsArgs),
    /// Time prefill and decoding of a Llama with random weights
    Decode(decode::DecodeArgs),
    /// Time steps of LoRA training beside a Llama with random weights
    Train(train::TrainArgs),
    /// Predict prefill and decoding of a Llama on Apple's GPUs, from the launches planned for each; nothing is run or measured
    Predict(predict::PredictArgs),
    /// Time a fixed table of small operators on the CPU and on a GPU, and find the problem sizes at which the GPU pays
    Table(table::TableArgs),
}

impl BenchArgs {
    pub(super) fn spans_processes(&self) -> bool {
        match self.what {
            What::Decode(_) | What::Train(_) => true,
            What::Ops(_) | What::Predict(_) | What::Table(_) => false,
        }
    }
}

pub(crate) fn run(args: &BenchArgs) -> Result<()> {
    match &args.what {
        What::Ops(args) => ops::run(args),
        What::Decode(args) => decode::run(args),
        What::Train(args) => train::run(args),
        What::Predict(args) => predict::run(args),
        What::Table(args) => table::run(args),
    }
}
