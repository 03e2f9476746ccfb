use std::path::PathBuf;

use clap::Args;
use elinvar::Result;
use elinvar_llm::{Adapter, Config, DataOptions, Dataset, Tokenizer, evaluate};
use serde_json::json;

use super::options::longest;
use crate::{model::BaseArgs, output::print_line};

/// Arguments of `elinvar lora test`.
#[derive(Debug, Args)]
pub(crate) struct TestArgs {
    /// Folder with test.jsonl: lines with `text`, with `prompt` and `completion`, or with `messages`
    #[arg(long, value_name = "FOLDER")]
    data: PathBuf,
    /// Add the adapter in this folder to the model
    #[arg(long, value_name = "FOLDER")]
    adapter_path: Option<PathBuf>,
    /// Evaluate this many samples at once
    #[arg(long, default_value_t = 4)]
    batch_size: usize,
    /// Evaluate on this many batches at most [default: all]
    #[arg(long)]
    test_batches: Option<usize>,
    /// Evaluate the completion, or the last message, alone
    #[arg(long)]
    mask_prompt: bool,
    /// Reject samples of more tokens [default: the model's context, at most 2048]
    #[arg(long, value_name = "TOKENS")]
    max_seq_length: Option<usize>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    base: BaseArgs,
}

pub(crate) fn run(args: &TestArgs) -> Result<()> {
    let files = args.base.files()?;
    let config = Config::read(&files)?;
    let options = DataOptions { mask_prompt: args.mask_prompt, max_tokens: longest(args.max_seq_length, &config)? };
    let data = Dataset::open(&args.data.join("test.jsonl"), &Tokenizer::open(&files)?, options)?;
    let adapter = args.adapter_path.as_ref().map(Adapter::open).transpose()?;
    let weights = args.base.weights(&files)?;
    let executor = args.base.device.executor_for(weights.bytes())?;
    let model = BaseArgs::load(&files, &executor, config, &weights)?;
    let model = adapter.map_or(Ok(model.clone()), |adapter| model.with_adapter(&adapter))?;
    let loss = evaluate(&model, &data, args.batch_size, args.test_batches.unwrap_or(usize::MAX))?;
    if args.json {
        print_line(json!({ "loss": loss, "perplexity": loss.exp(), "samples": data.samples().len() }));
    } else {
        print_line(format!("loss {loss:.4}, perplexity {:.3}, of {} samples", loss.exp(), data.samples().len()));
    }
    Ok(())
}
