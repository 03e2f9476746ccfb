//! Matrices of weights: plain tensors, or quantised in blocks.

use std::sync::Arc;

use elinvar::{DType, Executor, Result, Tensor, kernels::quantized::Format};

use super::wide::Wide;

/// A matrix `[rows, columns]`.
#[derive(Clone)]
pub(crate) enum Matrix {
    /// A tensor of floats.
    Plain(Tensor),
    /// Packed rows of blocks.
    Packed {
        /// u8, `[rows, packed bytes of a row]`.
        rows: Tensor,
        /// The blocks' format.
        format: Format,
        /// Elements of a row.
        columns: usize,
        /// Whether activations have about 31 bits, not 16.
        wide: Option<Arc<Wide>>,
    },
}

impl Matrix {
    /// `x Wᵀ + bias`.
    pub(super) fn linear(&self, x: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
        match self {
            Self::Plain(weight) => x.linear(weight, bias),
            Self::Packed { rows, format, wide: None, .. } => x.quantized_linear(rows, bias, *format),
            Self::Packed { rows, format, wide: Some(wide), .. } => {
                let y = wide.linear(x, rows, *format)?;
                bias.map_or(Ok(y.clone()), |bias| y.add(bias))
            }
        }
    }

    /// `[rows, columns]`.
    pub(super) fn extents(&self) -> [usize; 2] {
        match self {
            Self::Plain(weight) => [weight.shape()[0], weight.shape()[1]],
            Self::Packed { rows, columns, .. } => [rows.shape()[0], *columns],
        }
    }

    /// Its elements, f32.
    pub(crate) fn decoded(&self) -> Result<Tensor> {
        match self {
            Self::Plain(weight) => weight.cast(DType::F32),
            Self::Packed { rows, format, columns, .. } => rows.dequantize(*format, *columns),
        }
    }

    /// Some of its rows.
    pub(super) fn slice(&self, start: usize, count: usize) -> Result<Self> {
        Ok(match self {
            Self::Plain(weight) => Self::Plain(weight.slice(0, start, count, 1)?),
            Self::Packed { rows, format, columns, wide } => {
                Self::Packed { rows: rows.slice(0, start, count, 1)?, format: *format, columns: *columns, wide: wide.clone() }
            }
        })
    }

    /// Each rank's own rows, where they are cut into so many parts: see [`own_rows`].
    pub(super) fn own_rows(&self, shares: usize) -> Result<Self> {
        Ok(match self {
            Self::Plain(weight) => Self::Plain(own_rows(weight, shares)?),
            Self::Packed { rows, format, columns, wide } => {
                Self::Packed { rows: own_rows(rows, shares)?, format: *format, columns: *columns, wide: wide.clone() }
            }
        })
    }

    /// Where it is.
    pub(super) fn executor(&self) -> &Executor {
        match self {
            Self::Plain(weight) => weight.executor(),
            Self::Packed { rows, .. } => rows.executor(),
        }
    }

    /// The rows that indices name, f32.
    pub(crate) fn gather(&self, indices: &Tensor) -> Result<Tensor> {
        match self {
            Self::Plain(weight) => weight.gather(indices, 0)?.cast(DType::F32),
            Self::Packed { rows, format, columns, .. } => rows.gather(indices, 0)?.dequantize(*format, *columns),
        }
    }

    /// Gives activations about 31 bits, if the matrix is in blocks.
    pub(super) fn widen(&mut self, to: &Arc<Wide>) {
        match self {
            Self::Plain(_) => {}
            Self::Packed { wide, .. } => *wide = Some(to.clone()),
        }
    }
}

/// Each rank's own part of a tensor that is cut into so many parts along its first axis; where there are more ranks, those that follow each other have the same.
pub(super) fn own_rows(tensor: &Tensor, shares: usize) -> Result<Tensor> {
    let ranks = tensor.executor().ranks();
    if shares == 1 {
        return Ok(tensor.clone());
    }
    let (mut dims, elements) = (tensor.shape().to_vec(), tensor.shape().elements());
    dims[0] /= shares;
    let repeated = tensor.reshape(&[shares, 1, elements / shares])?.broadcast_to(&[shares, ranks / shares, elements / shares])?;
    repeated.reshape(&[ranks, elements / shares])?.own_rows()?.reshape(&dims)
}
