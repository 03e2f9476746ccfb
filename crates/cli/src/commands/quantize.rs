use std::{
    path::{Path, PathBuf},
    time::Instant,
};

use clap::Args;
use elinvar::{Result, format_bytes};
use elinvar_llm::{GgufOutput, Importance, ModelFiles, Target};
use indicatif::{ProgressBar, ProgressStyle};

/// Arguments of `elinvar quantize`.
#[derive(Debug, Args)]
pub(crate) struct QuantizeArgs {
    /// Folder with config.json, model.safetensors and tokenizer.json, or GGUF file
    input: PathBuf,
    /// GGUF file to write
    output: PathBuf,
    /// Quantise to this format: q4_0, q4_1, q5_0, q5_1, q8_0, q2_k, q3_k, q4_k, q5_k, q6_k, iq4_nl, iq4_xs, mxfp4, the mixtures q3_k_m, q4_k_m,
    /// q5_k_m, or f32, f16, bf16
    #[arg(long)]
    format: Target,
    /// Weigh errors by the importance matrix in this GGUF file, as llama-imatrix writes it
    #[arg(long, value_name = "FILE")]
    importance: Option<PathBuf>,
}

pub(crate) fn run(args: &QuantizeArgs) -> Result<()> {
    let files = ModelFiles::open(&args.input)?;
    let importance = args.importance.as_ref().map_or_else(|| Ok(Importance::none()), Importance::open)?;
    let output = GgufOutput::plan(&files, args.format, importance)?;
    if output.requantized() > 0 {
        eprintln!("{} tensors are quantised already: quantised from the original model they would be more exact", output.requantized());
    }
    write(&files, &output, &args.output)
}

/// Writes a file, with an estimate first and progress on the way.
pub(super) fn write(files: &ModelFiles, output: &GgufOutput, path: &Path) -> Result<()> {
    let types: Vec<_> = output.types().iter().map(|(name, count)| format!("{count} {name}")).collect();
    eprintln!("{} of tensors become {}: {}", format_bytes(output.source_bytes()), format_bytes(output.bytes()), types.join(", "));
    let (progress, start) = (progress(output.source_bytes()), Instant::now());
    output.write(files, path, &mut |done| progress.set_position(done))?;
    progress.finish_and_clear();
    eprintln!("{} written in {:.1} s", path.display(), start.elapsed().as_secs_f64());
    Ok(())
}

/// A bar of bytes.
pub(super) fn progress(bytes: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:40} {bytes} of {total_bytes}, {eta} left");
    ProgressBar::new(bytes).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
