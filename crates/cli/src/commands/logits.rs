use std::path::PathBuf;

use clap::Args;
use elinvar::Result;

use crate::{model::ModelArgs, tensors, world};

/// Arguments of `elinvar logits`.
#[derive(Debug, Args)]
pub(crate) struct LogitsArgs {
    /// Compute the logits of these token ids, separated by commas
    #[arg(long, value_delimiter = ',', required = true, value_name = "IDS")]
    tokens: Vec<u32>,
    /// Write `logits`, f32 [tokens, vocabulary], to this safetensors file
    #[arg(long, value_name = "FILE")]
    output: PathBuf,
    #[command(flatten)]
    model: ModelArgs,
}

pub(crate) fn run(args: &LogitsArgs) -> Result<()> {
    let mut session = args.model.load(&args.model.files()?, args.tokens.len())?;
    let logits = session.feed_all(&args.tokens)?;
    let model = session.model();
    let dims = [args.tokens.len(), model.config().vocab_size];
    tensors::write(&world::own(&args.output)?, vec![("logits".to_owned(), model.executor().tensor(&dims, &logits)?)])
}
