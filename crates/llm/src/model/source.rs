//! Where a model's tensors come from.

use std::collections::{BTreeSet, HashMap};

use elinvar::{DType, Error, Executor, Result, Storage, Tensor};

use super::matrix::Matrix;
use crate::weights::{Weight, WeightType, Weights};

/// Gives tensors.
pub(crate) trait Source {
    /// The vector, or other tensor that is not multiplied with, of this name and shape.
    fn tensor(&mut self, name: &str, dims: &[usize]) -> Result<Tensor>;

    /// The matrix of this name and shape.
    fn matrix(&mut self, name: &str, dims: [usize; 2]) -> Result<Matrix>;

    /// The same, of which each rank of a group of devices has its own rows; `sharers` ranks that follow each other have the same.
    fn own_rows(&mut self, name: &str, dims: [usize; 2], sharers: usize) -> Result<Matrix> {
        self.matrix(name, dims)?.own_rows(self.executor().ranks() / sharers)
    }

    /// Where tensors go.
    fn executor(&self) -> &Executor;
}

/// Tensors of whatever their memory holds.
pub(super) struct Shapes<'a> {
    pub(super) executor: &'a Executor,
    pub(super) kind: WeightType,
}

impl Source for Shapes<'_> {
    fn tensor(&mut self, _name: &str, dims: &[usize]) -> Result<Tensor> {
        self.executor.empty(self.kind.of_vectors(), dims, Storage::Automatic)
    }

    fn matrix(&mut self, _name: &str, [rows, columns]: [usize; 2]) -> Result<Matrix> {
        let empty = |dtype: DType, width: usize| self.executor.empty(dtype, &[rows, width], Storage::Automatic);
        Ok(match self.kind {
            WeightType::Plain(dtype) => Matrix::Plain(empty(dtype, columns)?),
            WeightType::Block(format) => Matrix::Packed { rows: empty(DType::U8, self.kind.row_bytes(columns)?)?, format, columns, wide: None },
        })
    }

    fn executor(&self) -> &Executor {
        self.executor
    }
}

/// Tensors that are on the device already.
pub(super) struct Given<'a> {
    pub(super) executor: &'a Executor,
    pub(super) tensors: &'a HashMap<String, Tensor>,
    /// What every name begins with.
    pub(super) prefix: &'static str,
}

impl Source for Given<'_> {
    fn tensor(&mut self, name: &str, dims: &[usize]) -> Result<Tensor> {
        let name = format!("{}{name}", self.prefix);
        match self.tensors.get(&name) {
            Some(tensor) if tensor.shape()[..] == *dims => Ok(tensor.clone()),
            Some(tensor) => Err(Error::invalid_argument(format!("tensor '{name}' has shape {}: expected {dims:?}", tensor.shape()))),
            None => Err(Error::invalid_argument(format!("tensor '{name}' is missing"))),
        }
    }

    fn matrix(&mut self, name: &str, dims: [usize; 2]) -> Result<Matrix> {
        self.tensor(name, &dims).map(Matrix::Plain)
    }

    fn executor(&self) -> &Executor {
        self.executor
    }
}

/// Tensors of files, adopted.
pub(crate) struct Stored<'a> {
    pub(crate) executor: &'a Executor,
    pub(crate) weights: &'a Weights,
    /// What every name begins with.
    pub(crate) prefix: &'static str,
    pub(crate) used: BTreeSet<String>,
}

impl Source for Stored<'_> {
    fn tensor(&mut self, name: &str, dims: &[usize]) -> Result<Tensor> {
        match self.adopt(name, dims)? {
            (WeightType::Plain(_), tensor) => Ok(tensor),
            (WeightType::Block(format), _) => Err(Error::unsupported(format!("tensor '{name}' is in {format}: matrices alone may be"))),
        }
    }

    fn matrix(&mut self, name: &str, dims: [usize; 2]) -> Result<Matrix> {
        Ok(match self.adopt(name, &dims)? {
            (WeightType::Plain(_), tensor) => Matrix::Plain(tensor),
            (WeightType::Block(format), rows) => Matrix::Packed { rows, format, columns: dims[1], wide: None },
        })
    }

    fn own_rows(&mut self, name: &str, [rows, columns]: [usize; 2], sharers: usize) -> Result<Matrix> {
        let (ranks, Weight { kind, memory }) = (self.executor.ranks(), self.take(name, &[rows, columns])?);
        // A model whose rows cannot be shared was rejected.
        let own = rows / (ranks / sharers);
        let bytes = kind.row_bytes(columns)? * own;
        let parts = (0..ranks).map(|rank| rank / sharers * bytes).map(|start| memory.slice(start..start + bytes)).collect::<Result<_>>()?;
        let adopted = |dtype, width| self.executor.adopt_parts(dtype, &[own, width], parts).map_err(|e| e.context(format!("tensor '{name}'")));
        Ok(match kind {
            WeightType::Plain(dtype) => Matrix::Plain(adopted(dtype, columns)?),
            WeightType::Block(format) => Matrix::Packed { rows: adopted(DType::U8, kind.row_bytes(columns)?)?, format, columns, wide: None },
        })
    }

    fn executor(&self) -> &Executor {
        self.executor
    }
}

impl Stored<'_> {
    /// The tensor's memory; it counts as used.
    fn take(&mut self, name: &str, dims: &[usize]) -> Result<Weight> {
        let name = format!("{}{name}", self.prefix);
        let weight = self.weights.get(&name, dims)?;
        self.used.insert(name);
        Ok(weight)
    }

    /// The tensor as the weights have it; of a matrix in blocks its packed rows.
    fn adopt(&mut self, name: &str, dims: &[usize]) -> Result<(WeightType, Tensor)> {
        let Weight { kind, memory } = self.take(name, dims)?;
        let tensor = match (kind, dims) {
            (WeightType::Block(_), &[rows, columns]) => self.executor.adopt(DType::U8, &[rows, kind.row_bytes(columns)?], memory),
            (WeightType::Plain(dtype), dims) => self.executor.adopt(dtype, dims, memory),
            (WeightType::Block(format), dims) => Err(Error::internal(format!("{dims:?} elements in {format}"))),
        };
        Ok((kind, tensor.map_err(|e| e.context(format!("tensor '{name}'")))?))
    }
}
