//! `elinvar emit`: an Atlas program in other forms.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
};

use clap::{Args, ValueEnum};
use elinvar::{
    DType, Error, Result,
    atlas::{
        self, Limits, Program,
        render::{self, MetalProgram, ParameterBlock},
    },
    msl::{
        self, MetalHeaders, Module,
        cuda::{CudaEntry, Threadgroups},
    },
};

/// Arguments of `elinvar emit`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  elinvar emit examples/saxpy.atlas --to metal")]
pub(crate) struct EmitArgs {
    /// Program, as text or binary
    file: PathBuf,
    /// Write this form
    #[arg(long, value_enum)]
    to: Form,
    /// Write to this file [default: standard output]
    #[arg(long)]
    out: Option<PathBuf>,
}

/// What a program is written as.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Form {
    /// Metal Shading Language
    #[value(alias = "msl")]
    Metal,
    /// CUDA C++, as passed to NVRTC
    Cuda,
    /// Atlas text, in canonical layout, without comments
    Text,
    /// Atlas binary
    Binary,
}

/// A program from a file, text or binary.
pub(crate) fn read(file: &Path) -> Result<Program> {
    let shown = file.display();
    let bytes = fs::read(file).map_err(|cause| Error::io(format!("cannot read {shown}: {cause}")))?;
    let program = if bytes.starts_with(b"ATLS") {
        atlas::decode(&bytes)
    } else {
        let text = std::str::from_utf8(&bytes).map_err(|_| Error::invalid_data("neither UTF-8 text nor an Atlas binary"));
        text.and_then(atlas::parse)
    };
    program.map_err(|e| e.context(shown))
}

pub(crate) fn run(args: &EmitArgs) -> Result<()> {
    let verified = atlas::verify(read(&args.file)?, &Limits { unchecked: true, ..Limits::default() }).map_err(|e| e.context(args.file.display()))?;
    if matches!(args.to, Form::Metal | Form::Cuda) && verified.program().uses(DType::F64) {
        return Err(Error::unsupported(format!("{} uses f64, which Metal does not have", args.file.display())));
    }
    let bytes = match args.to {
        Form::Metal => render::metal(&verified, true).text.into_bytes(),
        Form::Cuda => cuda(&render::metal(&verified, true), verified.program())?.into_bytes(),
        Form::Text => atlas::format(verified.program()).into_bytes(),
        Form::Binary => atlas::encode(verified.program()),
    };
    match &args.out {
        Some(file) => fs::write(file, bytes).map_err(|cause| Error::io(format!("cannot write {}: {cause}", file.display()))),
        None => std::io::stdout().write_all(&bytes).map_err(|cause| Error::io(format!("cannot write to standard output: {cause}"))),
    }
}

fn cuda(metal: &MetalProgram, program: &Program) -> Result<String> {
    let text = msl::preprocess(&program.name, &metal.text, &[("EXACT_BFLOAT", "1")], &MetalHeaders)?;
    let buffers = program.parameters.iter().filter(|p| p.access.is_some()).count() as u32;
    let inline = (ParameterBlock::of(program).size() > 0).then_some(buffers);
    let entry = CudaEntry { kernel: &metal.kernel, inline: inline.as_slice(), prefetched: None };
    let lowered = Module::read(&text)?.lower_for_cuda(&[entry], Threadgroups::Uniform)?;
    Ok(lowered.text)
}
