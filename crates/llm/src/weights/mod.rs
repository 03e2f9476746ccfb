//! The tensors of a model's files by the names of Hugging Face's checkpoints, mapped into memory: a device can adopt a tensor without a copy.

pub(crate) mod gguf;
mod kind;
mod safetensors;
#[cfg(test)]
pub(crate) mod tests;
mod words;

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use elinvar::{DType, Error, HostMemory, Result};

use crate::files::ModelFiles;
use gguf::Quantised;
pub use kind::WeightType;
use safetensors::Safetensors;
pub(crate) use words::write as write_floats;

/// The tensors of a model's files, by name.
#[derive(Clone)]
pub struct Weights(Arc<dyn Archive>);

/// A tensor for a device to adopt.
#[derive(Clone)]
pub struct Weight {
    /// What it is made of.
    pub kind: WeightType,
    /// Its elements, row-major, aligned for their type, or the packed rows of a matrix in blocks: in the mapped file, or a copy where the file has them at an
    /// odd place or in another form.
    pub memory: HostMemory,
}

/// Files of one format.
trait Archive: Send + Sync {
    fn names(&self) -> Box<dyn Iterator<Item = &str> + '_>;

    /// Bytes of all tensors as [`Archive::get`] gives them.
    fn bytes(&self) -> u64;

    fn get(&self, name: &str, dims: &[usize]) -> Result<Weight>;

    /// What the files have.
    fn memory(&self) -> Vec<&HostMemory>;

    /// The extents of a tensor, and what [`Archive::get`] makes it of if it is of floats.
    fn info(&self, name: &str) -> Option<(Vec<usize>, Option<WeightType>)>;
}

impl Weights {
    /// Opens `model.safetensors`, the shards that `model.safetensors.index.json` names, or a GGUF file, whose quantised matrices stay so. Only headers are
    /// read.
    ///
    /// # Errors
    /// No such file, a damaged one, or an index that contradicts its shards.
    pub fn open(files: &ModelFiles) -> Result<Self> {
        Ok(match files {
            ModelFiles::Gguf(file) => Self(Arc::new(Quantised::open(file, None)?)),
            ModelFiles::Folder(_) | ModelFiles::Embedded { .. } => Self(Arc::new(Safetensors::open(files, None)?)),
        })
    }

    /// The same; quantised matrices are decoded to `dtype`.
    ///
    /// # Errors
    /// As [`Weights::open`], or `dtype` is not f32, f16 or bf16.
    pub fn open_decoded(files: &ModelFiles, dtype: DType) -> Result<Self> {
        if !dtype.is_float() {
            return Err(Error::invalid_argument(format!("weights cannot be decoded to {dtype}: f32, f16 or bf16 expected")));
        }
        Ok(match files {
            ModelFiles::Gguf(file) => Self(Arc::new(Quantised::open(file, Some(dtype))?)),
            ModelFiles::Folder(_) | ModelFiles::Embedded { .. } => Self(Arc::new(Safetensors::open(files, Some(dtype))?)),
        })
    }

    /// Names of all tensors, in alphabetical order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.names()
    }

    /// Whether there is such a tensor.
    pub fn contains(&self, name: &str) -> bool {
        self.names().any(|n| n == name)
    }

    /// Bytes of all tensors on a device.
    pub fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    /// The extents of a tensor, and what [`Weights::get`] makes it of if it is of floats.
    pub fn info(&self, name: &str) -> Option<(Vec<usize>, Option<WeightType>)> {
        self.0.info(name)
    }

    /// A number of what is in the files, by which processes notice that they have different ones: all names, extents and types, and pages of each file.
    pub(crate) fn fingerprint(&self) -> u64 {
        const PAGE: usize = 4096;
        const PAGES: usize = 64;
        let mut hasher = DefaultHasher::new();
        for name in self.names() {
            name.hash(&mut hasher);
            let (dims, kind) = self.info(name).unzip();
            dims.hash(&mut hasher);
            kind.flatten().map(|kind| kind.to_string()).hash(&mut hasher);
        }
        for bytes in self.0.memory().into_iter().map(HostMemory::bytes) {
            bytes.len().hash(&mut hasher);
            bytes.chunks(PAGE).step_by(bytes.len().div_ceil(PAGE * PAGES).max(1)).for_each(|page| page.hash(&mut hasher));
        }
        hasher.finish()
    }

    /// The tensor called `name`, which must have the extents `dims`. Vectors, such as norms and biases, are never quantised; those of a GGUF file are f32.
    ///
    /// # Errors
    /// It is missing, has another shape, or a type that is not supported.
    pub fn get(&self, name: &str, dims: &[usize]) -> Result<Weight> {
        self.0.get(name, dims)
    }
}
