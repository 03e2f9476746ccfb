//! `elinvar emit`: an Atlas program in other forms.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
};

use clap::{Args, ValueEnum};
use elinvar::{
    Error, Result,
    atlas::{self, Limits, Program, Verified},
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
    let program = read(&args.file)?;
    let bytes = match args.to {
        Form::Metal => elinvar::program_metal(&program).map(String::into_bytes),
        Form::Cuda => elinvar::program_cuda(&program).map(String::into_bytes),
        Form::Text => verified(program).map(|verified| atlas::format(verified.program()).into_bytes()),
        Form::Binary => verified(program).map(|verified| atlas::encode(verified.program())),
    };
    let bytes = bytes.map_err(|e| e.context(args.file.display()))?;
    match &args.out {
        Some(file) => fs::write(file, bytes).map_err(|cause| Error::io(format!("cannot write {}: {cause}", file.display()))),
        None => std::io::stdout().write_all(&bytes).map_err(|cause| Error::io(format!("cannot write to standard output: {cause}"))),
    }
}

fn verified(program: Program) -> Result<Verified> {
    atlas::verify(program, &Limits { unchecked: true, ..Limits::default() })
}
