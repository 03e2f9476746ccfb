use std::{fs, path::PathBuf};

use clap::Args;
use elinvar::{Error, ErrorKind, Result};
use elinvar_llm::{Perplexity, Tokenizer};
use indicatif::ProgressBar;
use serde_json::json;

use crate::{model::ModelArgs, output::print_line};

/// Arguments of `elinvar perplexity`.
#[derive(Debug, Args)]
pub(crate) struct PerplexityArgs {
    /// Predict the text in this file
    #[arg(long, value_name = "FILE")]
    file: PathBuf,
    /// Predict at most this many windows of the context
    #[arg(long, value_name = "COUNT")]
    windows: Option<usize>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    model: ModelArgs,
}

/// Tokens of a window by default, as llama.cpp has it.
const CONTEXT: usize = 512;

pub(crate) fn run(args: &PerplexityArgs) -> Result<()> {
    let text = fs::read_to_string(&args.file).map_err(|e| Error::with_source(ErrorKind::Io, format!("cannot read {}", args.file.display()), e))?;
    let files = args.model.files()?;
    let tokenizer = Tokenizer::open(&files)?;
    let tokens = tokenizer.encode(&text)?;
    let mut session = args.model.load(&files, CONTEXT)?;
    let window = session.capacity();
    let windows = args.windows.unwrap_or(usize::MAX).min(tokens.len() / window);
    let bos = tokenizer.bos().and_then(|bos| tokenizer.id(bos)).filter(|bos| tokens.first() == Some(bos));
    let progress = ProgressBar::new(windows as u64);
    let mut found = Perplexity::default();
    for tokens in tokens.chunks_exact(window).take(windows) {
        found.add_window(&mut session, tokens, bos)?;
        progress.inc(1);
    }
    progress.finish_and_clear();
    if found.count() == 0 {
        return Err(Error::invalid_argument(format!(
            "{} has {} tokens, a window {window}: give a longer text or a smaller --context",
            args.file.display(),
            tokens.len()
        )));
    }
    if args.json {
        print_line(json!({
            "perplexity": found.perplexity(),
            "standard_error": found.standard_error(),
            "mean_negative_log_likelihood": found.mean(),
            "tokens": found.count(),
            "windows": windows,
            "context": window,
        }));
    } else {
        print_line(format!(
            "perplexity {:.4} ± {:.4} · mean negative log-likelihood {:.5} · {} tokens predicted in {windows} windows of {window}",
            found.perplexity(),
            found.standard_error(),
            found.mean(),
            found.count()
        ));
    }
    Ok(())
}
