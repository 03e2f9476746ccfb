use std::path::PathBuf;

use clap::Args;
use elinvar::{DType, Result};
use elinvar_llm::{GgufOutput, Importance, ModelFiles, Target, write_checkpoint};

use super::quantize;

/// Arguments of `elinvar convert`.
#[derive(Debug, Args)]
pub(crate) struct ConvertArgs {
    /// Folder with config.json, model.safetensors and tokenizer.json, or GGUF file
    input: PathBuf,
    /// GGUF file to write, or new folder
    output: PathBuf,
    /// Write matrices in this type: f32, f16 or bf16 [default: as stored; what is quantised becomes bf16]
    #[arg(long, value_name = "TYPE")]
    dtype: Option<DType>,
}

pub(crate) fn run(args: &ConvertArgs) -> Result<()> {
    let files = ModelFiles::open(&args.input)?;
    if let ModelFiles::Gguf(file) = &files {
        let progress = quantize::progress(0);
        write_checkpoint(file, args.dtype.unwrap_or(DType::BF16), &args.output, &mut |done, total| {
            progress.set_length(total);
            progress.set_position(done);
        })?;
        progress.finish_and_clear();
        return Ok(());
    }
    let target = args.dtype.map_or(Target::Stored, Target::Plain);
    quantize::write(&files, &GgufOutput::plan(&files, target, Importance::none())?, &args.output)
}
