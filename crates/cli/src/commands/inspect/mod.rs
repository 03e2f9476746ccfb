//! `elinvar inspect`: what is in a file.

mod gguf;
mod metallib;

use std::{
    fs,
    path::{Path, PathBuf},
};

use clap::Args;
use elinvar::{Error, Result};

/// Arguments of `elinvar inspect`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  elinvar inspect model.gguf\n  elinvar inspect mlx.metallib --filter softmax\n  elinvar inspect libtorch_cpu.dylib --disassemble softmax_float"
)]
pub(crate) struct InspectArgs {
    /// GGUF file, or the first part of a split one; Metal library, or an application or shared library that holds some
    file: PathBuf,
    /// List only the functions of a Metal library whose names contain this
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// Print what Apple's compiler made of one function of a Metal library, as LLVM's text
    #[arg(long, value_name = "NAME", conflicts_with_all = ["filter", "json"])]
    disassemble: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &InspectArgs) -> Result<()> {
    let InspectArgs { file: path, filter, disassemble, json } = args;
    let name = path.display().to_string();
    if !is_compiled(path) {
        let option = filter.as_ref().map(|_| "--filter").or(disassemble.as_ref().map(|_| "--disassemble"));
        return match option {
            None => gguf::run(path, *json),
            Some(option) => Err(Error::invalid_argument(format!("{option} is for Metal libraries, and {name} is none"))),
        };
    }
    let file = fs::read(path).map_err(|cause| Error::io(format!("cannot read {name}: {cause}")))?;
    match disassemble {
        Some(function) => metallib::disassemble(&name, &file, function),
        None => metallib::list(&name, &file, filter.as_deref().unwrap_or_default(), *json),
    }
}

/// Whether a file is, or may hold, a compiled Metal library: by its first bytes.
pub(super) fn is_compiled(path: &Path) -> bool {
    use std::io::Read;
    let mut magic = [0; 4];
    fs::File::open(path).and_then(|mut file| file.read_exact(&mut magic)).is_ok() && elinvar_metallib::is_compiled(&magic)
}
