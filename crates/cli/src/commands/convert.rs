use std::path::PathBuf;

use clap::Args;
use elinvar::{DType, Result};
use elinvar_llm::{GgufOutput, Importance, ModelFiles, Target, is_grouped, write_checkpoint};

use super::quantize;

/// Arguments of `elinvar convert`.
#[derive(Debug, Args)]
pub(crate) struct ConvertArgs {
    /// Folder with config.json, model.safetensors and tokenizer.json, or GGUF file
    input: PathBuf,
    /// GGUF file to write, or new folder: from a GGUF file, or from a folder that MLX has quantised if the name does not end in .gguf
    output: PathBuf,
    /// Write matrices in this type: f32, f16 or bf16 [default: as stored; what is quantised becomes bf16]
    #[arg(long, value_name = "TYPE")]
    dtype: Option<DType>,
}

pub(crate) fn run(args: &ConvertArgs) -> Result<()> {
    let files = ModelFiles::open(&args.input)?;
    // Of a folder in MLX's groups the name of the output decides.
    let to_folder = match &files {
        ModelFiles::Gguf(_) => true,
        ModelFiles::Folder(_) | ModelFiles::Embedded { .. } => {
            is_grouped(&files)? && args.output.extension().is_none_or(|extension| extension != "gguf")
        }
    };
    if to_folder {
        let progress = quantize::progress(0);
        write_checkpoint(&files, args.dtype.unwrap_or(DType::BF16), &args.output, &mut |done, total| {
            progress.set_length(total);
            progress.set_position(done);
        })?;
        progress.finish_and_clear();
        return Ok(());
    }
    let target = args.dtype.map_or(Target::Stored, Target::Plain);
    quantize::write(&files, &GgufOutput::plan(&files, target, Importance::none())?, &args.output)
}
