//! Fine-tuning: adapters trained, tested, and fused into a model's weights.

mod adapter;
mod config;
mod curve;
mod fuse;
mod options;
mod progress;
mod tensorboard;
mod test;
mod train;
mod yaml;

use clap::{Args, Subcommand};
use elinvar::Result;

/// Arguments of `elinvar lora`.
#[derive(Debug, Args)]
pub(crate) struct LoraArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Train an adapter on train.jsonl in a folder, and evaluate it on valid.jsonl if that is there
    Train(Box<options::TrainArgs>),
    /// Report the loss of a model, with an adapter or without, on test.jsonl in a folder
    Test(test::TestArgs),
    /// Write a new folder with the model and an adapter in its weights
    Fuse(fuse::FuseArgs),
}

impl LoraArgs {
    pub(super) fn spans_processes(&self) -> bool {
        match self.what {
            What::Train(_) | What::Test(_) => true,
            What::Fuse(_) => false,
        }
    }
}

pub(crate) fn run(args: &LoraArgs) -> Result<()> {
    match &args.what {
        What::Train(args) => match &args.config {
            None => train::run(args),
            Some(path) => train::run(&config::merged(path)?),
        },
        What::Test(args) => test::run(args),
        What::Fuse(args) => fuse::run(args),
    }
}
