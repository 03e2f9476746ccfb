//! Where a model's tensors come from.

use std::collections::BTreeSet;

use elinvar::{DType, Executor, Result, Storage, Tensor};

use crate::weights::{Weight, Weights};

/// Gives tensors.
pub(super) trait Source {
    /// The tensor of this name and shape.
    fn tensor(&mut self, name: &str, dims: &[usize]) -> Result<Tensor>;
}

/// Tensors of whatever their memory holds.
pub(super) struct Shapes<'a> {
    pub(super) executor: &'a Executor,
    pub(super) dtype: DType,
}

impl Source for Shapes<'_> {
    fn tensor(&mut self, _name: &str, dims: &[usize]) -> Result<Tensor> {
        self.executor.empty(self.dtype, dims, Storage::Automatic)
    }
}

/// Tensors of files, adopted.
pub(super) struct Stored<'a> {
    pub(super) executor: &'a Executor,
    pub(super) weights: &'a Weights,
    pub(super) used: BTreeSet<String>,
}

impl Source for Stored<'_> {
    fn tensor(&mut self, name: &str, dims: &[usize]) -> Result<Tensor> {
        let Weight { dtype, dims, memory } = self.weights.get(name, dims)?;
        self.used.insert(name.to_owned());
        self.executor.adopt(dtype, &dims, memory).map_err(|e| e.context(format!("tensor '{name}'")))
    }
}
