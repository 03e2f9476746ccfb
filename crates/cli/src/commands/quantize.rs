use std::{
    path::{Path, PathBuf},
    str::FromStr,
    time::Instant,
};

use clap::Args;
use elinvar::{Error, Result, format_bytes};
use elinvar_llm::{GgufOutput, GroupedOutput, Groups, Importance, ModelFiles, Target};
use indicatif::{ProgressBar, ProgressStyle};

/// Arguments of `elinvar quantize`.
#[derive(Debug, Args)]
pub(crate) struct QuantizeArgs {
    /// Folder with config.json, model.safetensors and tokenizer.json, or GGUF file
    input: PathBuf,
    /// GGUF file to write, or new folder for MLX's formats
    output: PathBuf,
    /// Quantise to this format: q4_0, q4_1, q5_0, q5_1, q8_0, q2_k, q3_k, q4_k, q5_k, q6_k, iq4_nl, iq4_xs, mxfp4, the mixtures q3_k_m, q4_k_m,
    /// q5_k_m, or f32, f16, bf16, in a GGUF file; mlx-2bit, mlx-3bit, mlx-4bit, mlx-5bit, mlx-6bit, mlx-8bit in a folder, as MLX does it
    #[arg(long)]
    format: Format,
    /// In MLX's formats, so many neighbours share a scale and a bias: 32, 64 or 128 [default: 64]
    #[arg(long, value_name = "COUNT")]
    group_size: Option<usize>,
    /// Weigh errors by the importance matrix in this GGUF file, as llama-imatrix writes it
    #[arg(long, value_name = "FILE")]
    importance: Option<PathBuf>,
}

/// What is written.
#[derive(Clone, Copy, Debug)]
enum Format {
    Gguf(Target),
    /// Integers of so many bits in a folder for MLX.
    Mlx(usize),
}

impl FromStr for Format {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let bits = text.strip_prefix("mlx-").and_then(|text| text.strip_suffix("bit")?.parse().ok());
        match bits.filter(|bits| Groups::BITS.contains(bits)) {
            Some(bits) => Ok(Self::Mlx(bits)),
            None => text.parse().map(Self::Gguf).map_err(|e: Error| {
                let names: Vec<_> = Groups::BITS.iter().map(|bits| format!("mlx-{bits}bit")).collect();
                Error::invalid_argument(format!("{e}, {}", names.join(", ")))
            }),
        }
    }
}

pub(crate) fn run(args: &QuantizeArgs) -> Result<()> {
    let files = ModelFiles::open(&args.input)?;
    let reject = |option: &str, format: &str| Err(Error::invalid_argument(format!("--{option} is for {format} formats")));
    match args.format {
        Format::Gguf(_) if args.group_size.is_some() => reject("group-size", "MLX's"),
        Format::Mlx(_) if args.importance.is_some() => reject("importance", "GGUF's"),
        Format::Gguf(target) => {
            let importance = args.importance.as_ref().map_or_else(|| Ok(Importance::none()), Importance::open)?;
            let output = GgufOutput::plan(&files, target, importance)?;
            warn(output.requantized());
            write(&files, &output, &args.output)
        }
        Format::Mlx(bits) => {
            let output = GroupedOutput::plan(&files, Groups::new(args.group_size.unwrap_or(64), bits)?)?;
            warn(output.requantized());
            eprintln!("the tensors will take {}", format_bytes(output.bytes()));
            let (progress, start) = (progress(output.bytes()), Instant::now());
            output.write(&args.output, &mut |done, _| progress.set_position(done))?;
            progress.finish_and_clear();
            eprintln!("{} written in {:.1} s", args.output.display(), start.elapsed().as_secs_f64());
            Ok(())
        }
    }
}

fn warn(requantized: usize) {
    if requantized > 0 {
        eprintln!("{requantized} tensors are quantised already: quantised from the original model they would be more exact");
    }
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
