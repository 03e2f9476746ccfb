use std::{
    fs,
    io::{Read, stdin},
    ops::ControlFlow,
    path::{Path, PathBuf},
    time::Instant,
};

use clap::Args;
use elinvar::{Error, ErrorKind, Result};
use elinvar_llm::{EmbeddingOptions, Embeddings, Encoder, ModelFiles, Pooling, Weights};
use indicatif::{ProgressBar, ProgressStyle};

use crate::{args::ComputeArgs, output::print_line};

/// Arguments of `elinvar embed`.
#[derive(Debug, Args)]
pub(crate) struct EmbedArgs {
    /// Embed these texts; '-' reads one from standard input
    #[arg(required_unless_present = "input")]
    texts: Vec<String>,
    /// Embed each line of this file; '-' reads standard input
    #[arg(long, value_name = "FILE", conflicts_with = "texts")]
    input: Option<PathBuf>,
    /// Load the encoder from this folder with config.json, model.safetensors and tokenizer.json, or from this GGUF file
    #[arg(long, value_name = "PATH")]
    model: PathBuf,
    /// Write the vectors, f32 [texts, dimensions], to this file of NumPy (.npy) [default: a line of JSON for each text, to standard output]
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Make a text's vector of its tokens' vectors by this: mean, cls (the first) or last [default: as the model's files say]
    #[arg(long)]
    pooling: Option<Pooling>,
    /// Divide each vector by its length [default: as the model's files say]
    #[arg(long, value_name = "BOOL")]
    normalize: Option<bool>,
    /// Cut longer texts to this many tokens [default: as the model's files say]
    #[arg(long, value_name = "TOKENS")]
    max_tokens: Option<usize>,
    /// Put this before each text, such as 'query: ' for E5 [default: as the model's files say]
    #[arg(long, value_name = "TEXT")]
    prefix: Option<String>,
    /// Print no statistics
    #[arg(long, short)]
    quiet: bool,
    #[command(flatten)]
    device: ComputeArgs,
}

pub(crate) fn run(args: &EmbedArgs) -> Result<()> {
    if let Some(output) = args.output.as_ref().filter(|output| output.extension().is_none_or(|extension| extension != "npy")) {
        return Err(Error::invalid_argument(format!("--output {}: give a name that ends in .npy", output.display())));
    }
    let texts = args.texts()?;
    let files = ModelFiles::open(&args.model)?;
    let executor = args.device.executor_for(Weights::open(&files)?.bytes())?;
    let encoder = Encoder::open(&executor, &files)?;
    let options = args.options(encoder.options());
    let progress = progress_bar(texts.len());
    let start = Instant::now();
    let (vectors, _) = encoder.embed_with(&texts, &options, &mut |done| {
        progress.set_position(done as u64);
        ControlFlow::Continue(())
    })?;
    let seconds = start.elapsed().as_secs_f64();
    progress.finish_and_clear();
    match &args.output {
        Some(output) => vectors.write_npy(output)?,
        None => print(&vectors)?,
    }
    if !args.quiet {
        eprintln!("{}", summary(&vectors, &encoder, &options, seconds));
    }
    Ok(())
}

impl EmbedArgs {
    fn texts(&self) -> Result<Vec<String>> {
        let texts = match &self.input {
            None if self.texts == ["-"] => vec![read(Path::new("-"))?],
            None => self.texts.clone(),
            Some(input) => read(input)?.lines().map(str::to_owned).collect(),
        };
        if texts.is_empty() {
            return Err(Error::invalid_argument("there are no texts: the input is empty"));
        }
        Ok(texts)
    }

    fn options(&self, defaults: &EmbeddingOptions) -> EmbeddingOptions {
        EmbeddingOptions {
            pooling: self.pooling.unwrap_or(defaults.pooling),
            normalize: self.normalize.unwrap_or(defaults.normalize),
            max_tokens: self.max_tokens.unwrap_or(defaults.max_tokens),
            prefix: self.prefix.as_ref().unwrap_or(&defaults.prefix).clone(),
        }
    }
}

/// A file's text, or that of standard input.
fn read(path: &Path) -> Result<String> {
    let mut text = String::new();
    let (from, result) = match path.to_str() {
        Some("-") => ("standard input".to_owned(), stdin().read_to_string(&mut text).map(|_| text)),
        _ => (path.display().to_string(), fs::read_to_string(path)),
    };
    result.map_err(|e| Error::with_source(ErrorKind::Io, format!("cannot read texts from {from}"), e))
}

fn progress_bar(texts: usize) -> ProgressBar {
    const MANY: usize = 256;
    if texts < MANY {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("embedding {bar:32} {pos}/{len} texts, {eta} left").unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(texts as u64).with_style(style)
}

/// A line of JSON for each text.
fn print(vectors: &Embeddings) -> Result<()> {
    for (index, (tokens, truncated)) in vectors.tokens().iter().zip(vectors.truncated()).enumerate() {
        let vector = serde_json::to_string(vectors.row(index)).map_err(|e| Error::with_source(ErrorKind::Internal, "a vector as JSON", e))?;
        print_line(format!(r#"{{"index":{index},"tokens":{tokens},"truncated":{truncated},"embedding":{vector}}}"#));
    }
    Ok(())
}

/// One line about what was computed.
fn summary(vectors: &Embeddings, encoder: &Encoder, options: &EmbeddingOptions, seconds: f64) -> String {
    let (texts, tokens) = (vectors.len(), vectors.tokens().iter().sum::<usize>());
    let kind = if options.normalize { ", normalised" } else { "" };
    let cut = match vectors.truncated().iter().filter(|&&cut| cut).count() {
        0 => String::new(),
        count => format!(" · {count} cut to {} tokens: --max-tokens takes up to {}", options.max_tokens, encoder.max_tokens()),
    };
    format!(
        "{texts} texts · {tokens} tokens at {:.0}/s · {} dimensions, pooling {}{kind}{cut}",
        tokens as f64 / seconds,
        encoder.dimensions(),
        options.pooling
    )
}
