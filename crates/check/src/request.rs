//! What is to be checked.

use std::{io::Read, path::PathBuf};

use elinvar_core::{DType, Error, Result};
use serde::{Deserialize, Deserializer, de};

/// A check: a text, a kernel, what it is given and how it is run.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// What messages call the text; its path, if it was read from a file.
    pub name: String,
    /// The text.
    pub text: String,
    /// In its place, a file with libraries that Apple's compiler has made.
    #[serde(default)]
    pub library: Option<Bytes>,
    /// Where its `#include "…"` are looked for first.
    pub folder: Option<PathBuf>,
    /// Where included files are looked for after that.
    pub include: Vec<PathBuf>,
    /// `NAME` or `NAME=VALUE`, for the preprocessor.
    pub defines: Vec<String>,
    /// The version of Metal: 310 is Metal 3.1; none: the one that the library is written in.
    pub metal_version: Option<u32>,
    /// Whether products and sums may be contracted.
    pub fast_math: bool,
    /// Whether subnormal float and bfloat numbers become zero, as on Apple's GPUs.
    pub flush_subnormals: bool,
    /// Whether a text that Apple's compiler would reject is run all the same.
    pub run_anyway: bool,
    /// Whether every kernel is judged and compiled, and none is run.
    pub compile_only: bool,
    /// The kernel's host name; none: the only one of the text.
    pub kernel: Option<String>,
    /// How many threads run.
    pub threads: Threads,
    /// Threads of a threadgroup.
    pub threadgroup: [u32; 3],
    /// Buffers.
    pub buffers: Vec<Buffer>,
    /// Constants.
    pub values: Vec<Argument>,
    /// Bytes of threadgroup arguments.
    pub threadgroup_memory: Vec<Size>,
    /// Function constants.
    pub constants: Vec<Constant>,
    /// Buffers that must be written in full; none: those that the kernel writes and never reads.
    pub outputs: Option<Vec<String>>,
    /// What buffers must hold after each run.
    pub expected: Vec<Memory>,
    /// Difference that is accepted from an expected element, relative to it if it is larger than 1; none: the bits must be the same.
    pub tolerance: Option<f64>,
    /// The first schedule.
    pub seed: u64,
    /// How many schedules are tried, at least 1.
    pub seeds: u64,
    /// Processor time that a threadgroup may take, in seconds.
    pub time_limit: f64,
    /// Whether the outcome has the buffers after the last run.
    pub keep_buffers: bool,
}

/// How many threads a launch has.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Threads {
    /// So many threadgroups.
    Grid([u32; 3]),
    /// Exactly so many threads; the last threadgroup along an axis may be smaller.
    Threads([u32; 3]),
}

/// A buffer, by its name in the kernel's signature.
#[derive(Debug, Deserialize)]
pub struct Buffer {
    /// The name.
    pub name: String,
    /// What it holds at first.
    pub contents: Contents,
}

/// What a buffer holds at first.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Contents {
    /// These elements.
    Given {
        /// Their type.
        #[serde(deserialize_with = "dtype")]
        dtype: DType,
        /// Their bytes.
        bytes: Bytes,
    },
    /// So many elements of the type that the kernel's signature says, which nothing has written.
    Unwritten(usize),
}

/// A constant of the kernel.
#[derive(Debug, Deserialize)]
pub struct Argument {
    /// Its name in the signature.
    pub name: String,
    /// Its value.
    pub value: Value,
}

/// The value of a constant.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Value {
    /// As it lies in memory.
    Bytes(Bytes),
    /// Numbers of the type that the kernel's signature says.
    Numbers(Vec<String>),
}

/// Bytes of a threadgroup argument.
#[derive(Debug, Deserialize)]
pub struct Size {
    /// Its name in the signature.
    pub name: String,
    /// How many.
    pub bytes: usize,
}

/// The value of a function constant.
#[derive(Debug, Deserialize)]
pub struct Constant {
    /// Its name or index.
    pub name: String,
    /// Its value, as text.
    pub value: String,
}

/// Elements of a buffer, by its name.
#[derive(Debug, Deserialize)]
pub struct Memory {
    /// The buffer's name.
    pub name: String,
    /// The elements' type.
    #[serde(deserialize_with = "dtype")]
    pub dtype: DType,
    /// Their bytes.
    pub bytes: Bytes,
}

/// Bytes. In a request that is sent they follow it, and it says how many they are.
#[derive(Debug, Deserialize)]
#[serde(try_from = "usize")]
pub struct Bytes(pub Vec<u8>);

/// Bytes that a buffer may have.
const MAX_BYTES: usize = 1 << 31;

impl TryFrom<usize> for Bytes {
    type Error = String;

    fn try_from(length: usize) -> Result<Self, String> {
        if length > MAX_BYTES {
            return Err(format!("{length} bytes: a buffer holds at most {MAX_BYTES} bytes here"));
        }
        Ok(Self(vec![0; length]))
    }
}

fn dtype<'de, D: Deserializer<'de>>(from: D) -> Result<DType, D::Error> {
    DType::of_program(&String::deserialize(from)?).map_err(de::Error::custom)
}

impl Request {
    /// A request that another process sends: the length of its JSON as u64 (little-endian), the JSON, in which lengths stand for bytes, and the bytes of
    /// the library, buffers, values and expected elements in their order.
    ///
    /// # Errors
    /// It is no such request, or ends too early.
    pub fn read(from: &mut impl Read) -> Result<Self> {
        let failed = |cause: std::io::Error| Error::invalid_data(format!("the request to check ends early: {cause}"));
        let mut length = [0; 8];
        from.read_exact(&mut length).map_err(failed)?;
        let mut json = Vec::new();
        from.take(u64::from_le_bytes(length)).read_to_end(&mut json).map_err(failed)?;
        let mut request: Self = serde_json::from_slice(&json).map_err(|cause| Error::invalid_argument(format!("what is to be checked: {cause}")))?;
        let buffers = request.buffers.iter_mut().filter_map(|buffer| match &mut buffer.contents {
            Contents::Given { bytes, .. } => Some(bytes),
            Contents::Unwritten(_) => None,
        });
        let values = request.values.iter_mut().filter_map(|argument| match &mut argument.value {
            Value::Bytes(bytes) => Some(bytes),
            Value::Numbers(_) => None,
        });
        let expected = request.expected.iter_mut().map(|memory| &mut memory.bytes);
        request
            .library
            .iter_mut()
            .chain(buffers)
            .chain(values)
            .chain(expected)
            .try_for_each(|bytes| from.read_exact(&mut bytes.0))
            .map_err(failed)?;
        Ok(request)
    }
}
