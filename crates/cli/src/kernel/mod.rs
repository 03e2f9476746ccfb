//! A kernel and what it is given, as `check` and `launch` take them from the command line.

mod arguments;
mod execution;
mod picture;

use std::path::PathBuf;

use clap::Args;
use elinvar::{
    ConstantValue, DType, Error, Result,
    metallib::Kernels,
    msl::{FunctionConstant, METAL_VERSION},
};
use elinvar_check::Expected;

pub(crate) use arguments::{BufferArgument, ConstantArgument, ExtentArgument};
use arguments::{SizeArgument, ValueArgument};
pub(crate) use execution::{buffers, contents, median_seconds, saved, shown_median};
pub(crate) use picture::{PictureArgument, write_png};

/// A kernel, its arguments and its grid.
#[derive(Debug, Args)]
pub(crate) struct KernelArgs {
    /// Metal source, or a compiled library (.metallib)
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
    pub(crate) fn kernel<'a>(&'a self, kernels: &'a Kernels) -> Result<&'a str> {
        elinvar_check::choose(&kernels.names(), self.kernel.as_deref(), &self.file.display().to_string())
    }

    /// Names, indices and values of the function constants that are given.
    pub(crate) fn constants<'a>(&'a self, known: &'a [FunctionConstant]) -> Result<Vec<(&'a str, u32, ConstantValue)>> {
        elinvar_check::constants(known, self.constant.iter().map(|constant| (constant.name.as_str(), constant.value.as_str())))
    }

    /// What buffers should hold after a run: names, types and bytes.
    pub(crate) fn expected(&self) -> Result<Vec<(&str, DType, Vec<u8>)>> {
        let read = |expect: &'_ BufferArgument| expect.bytes(self.seed, 0).map_err(|e| e.context(format_args!("--expect {}", expect.name)));
        self.expect.iter().map(|expect| read(expect).map(|(dtype, bytes)| (expect.name.as_str(), dtype, bytes))).collect()
    }

    /// The same, to be compared with what buffers of these contents hold after a run.
    pub(crate) fn comparisons<'a>(&self, expected: &'a [(&'a str, DType, Vec<u8>)], buffers: &[(DType, Vec<u8>)]) -> Result<Vec<Expected<'a>>> {
        let of = |(buffer, dtype, bytes): &'a (&'a str, DType, Vec<u8>)| Expected { buffer, dtype: *dtype, bytes, tolerance: self.tolerance };
        let expected: Vec<_> = expected.iter().map(of).collect();
        let held = self.buffer.iter().zip(buffers).map(|(buffer, (dtype, bytes))| (buffer.name.as_str(), *dtype, bytes.len()));
        elinvar_check::check_expected(&expected, held)?;
        Ok(expected)
    }
}
