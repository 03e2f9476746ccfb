//! A kernel and what it is given, as `check` and `launch` take them from the command line.

mod arguments;
mod execution;
pub(crate) mod expected;
mod picture;

use std::path::PathBuf;

use clap::Args;
use elinvar::{
    ConstantValue, Error, Result,
    msl::{METAL_VERSION, Module},
};

pub(crate) use arguments::{BufferArgument, ConstantArgument, ExtentArgument};
use arguments::{SizeArgument, ValueArgument};
pub(crate) use execution::{buffers, contents, median_seconds, saved, shown_median};
pub(crate) use picture::{PictureArgument, write_png};

/// A kernel, its arguments and its grid.
#[derive(Debug, Args)]
pub(crate) struct KernelArgs {
    /// Metal source
    pub(crate) file: PathBuf,
    /// Run the kernel of this host name [default: the only one of the file]
    #[arg(long, value_name = "NAME")]
    pub(crate) kernel: Option<String>,
    /// Launch this many threadgroups: X, X,Y or X,Y,Z
    #[arg(long, value_name = "EXTENT", default_value = "1", conflicts_with = "threads")]
    pub(crate) grid: ExtentArgument,
    /// Launch exactly this many threads instead of --grid: X, X,Y or X,Y,Z; the last threadgroup along an axis may be smaller
    #[arg(long, value_name = "EXTENT")]
    pub(crate) threads: Option<ExtentArgument>,
    /// Use this many threads per threadgroup: X, X,Y or X,Y,Z
    #[arg(long, value_name = "EXTENT", default_value = "32")]
    pub(crate) threadgroup: ExtentArgument,
    /// Bind a buffer by its name in the kernel's signature: NAME=TYPE:COUNT (seeded random numbers), NAME=TYPE:COUNT:VALUE or NAME=FILE#TENSOR of a
    /// safetensors file; repeat for more
    #[arg(long, value_name = "NAME=CONTENTS")]
    pub(crate) buffer: Vec<BufferArgument>,
    /// Set the bytes of a constant: NAME=TYPE:VALUE, or comma-separated values for a struct or an array of one type
    #[arg(long, value_name = "NAME=TYPE:VALUE")]
    pub(crate) value: Vec<ValueArgument>,
    /// Set the bytes of a threadgroup argument
    #[arg(long, value_name = "NAME=BYTES")]
    pub(crate) threadgroup_memory: Vec<SizeArgument>,
    /// Set a function constant, by name or index
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) constant: Vec<ConstantArgument>,
    /// Seed the random buffers, and the first schedule of a check
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,
    /// Look for included files in this folder; repeat for more
    #[arg(short = 'I', long, value_name = "FOLDER")]
    pub(crate) include: Vec<PathBuf>,
    /// Define NAME or NAME=VALUE for the preprocessor; repeat for more
    #[arg(short = 'D', long, value_name = "NAME")]
    pub(crate) define: Vec<String>,
    /// Compile and check as this version of Metal, the value of __METAL_VERSION__: 310 is Metal 3.1
    #[arg(long, default_value_t = METAL_VERSION)]
    pub(crate) metal_version: u32,
    /// Run on the simulator even if Apple's compiler would reject the text
    #[arg(long)]
    pub(crate) run_anyway: bool,
    /// Contract products and sums, as Metal's fast math does
    #[arg(long)]
    pub(crate) fast_math: bool,
    /// Require this content of a buffer after each run: NAME=FILE#TENSOR of a safetensors file, or NAME=TYPE:COUNT:VALUE; repeat for more
    #[arg(long, value_name = "NAME=CONTENTS")]
    pub(crate) expect: Vec<BufferArgument>,
    /// Accept this difference from an expected element, relative to it if it is larger than 1 [default: the bits must be the same]
    #[arg(long, value_name = "NUMBER", requires = "expect")]
    pub(crate) tolerance: Option<f64>,
    /// Write the buffers after the run to this safetensors file
    #[arg(long, value_name = "FILE")]
    pub(crate) save: Option<PathBuf>,
}

impl KernelArgs {
    /// Fails for a folder of includes that is not there.
    pub(crate) fn check_folders(&self) -> Result<()> {
        let missing = self.include.iter().find(|folder| !folder.is_dir());
        missing.map_or(Ok(()), |folder| Err(Error::invalid_argument(format!("-I {}: no such folder", folder.display()))))
    }

    /// The kernel that is meant.
    pub(crate) fn kernel<'a>(&'a self, module: &'a Module) -> Result<&'a str> {
        let kernels = module.kernels();
        match (&self.kernel, kernels) {
            (Some(name), _) => Ok(name),
            (None, [only]) => Ok(&only.name),
            (None, []) => Err(Error::invalid_argument(format!("{} has no kernel", self.file.display()))),
            (None, _) => {
                let names: Vec<_> = kernels.iter().take(12).map(|kernel| kernel.name.as_str()).collect();
                let more = if kernels.len() > 12 { format!(" and {} more", kernels.len() - 12) } else { String::new() };
                Err(Error::invalid_argument(format!(
                    "{} has {} kernels: choose one with --kernel: {}{more}",
                    self.file.display(),
                    kernels.len(),
                    names.join(", ")
                )))
            }
        }
    }

    /// Function constants, given by name or index, their values read by their types: names, indices and values.
    pub(crate) fn constants<'a>(&self, module: &'a Module) -> Result<Vec<(&'a str, u32, ConstantValue)>> {
        let known = module.constants();
        let value = |argument: &ConstantArgument| {
            let found = known.iter().find(|c| c.name == argument.name || argument.name.parse() == Ok(c.index));
            let constant = found.ok_or_else(|| {
                let names: Vec<_> = known.iter().map(|c| format!("{} ({})", c.name, c.index)).collect();
                Error::invalid_argument(format!("no function constant '{}': the file has {}", argument.name, names.join(", ")))
            })?;
            let text = argument.value.as_str();
            let value = match constant.type_name.as_str() {
                "bool" => text.parse().ok().map(ConstantValue::Bool),
                "float" | "half" | "bfloat" => text.parse().ok().map(ConstantValue::Float),
                unsigned if unsigned.starts_with('u') => text.parse().ok().map(ConstantValue::Uint),
                _ => text.parse().ok().map(ConstantValue::Int),
            };
            let value = value.ok_or_else(|| Error::invalid_argument(format!("'{text}' is no {} for '{}'", constant.type_name, constant.name)))?;
            Ok((constant.name.as_str(), constant.index, value))
        };
        self.constant.iter().map(value).collect()
    }
}
