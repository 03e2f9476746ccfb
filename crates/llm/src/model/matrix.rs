//! Matrices of weights: plain tensors, or quantised in blocks.

use elinvar::{DType, Result, Tensor, kernels::quantized::Format};

/// A matrix `[rows, columns]`.
#[derive(Clone)]
pub(super) enum Matrix {
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
    },
}

impl Matrix {
    /// `x Wᵀ + bias`.
    pub(super) fn linear(&self, x: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
        match self {
            Self::Plain(weight) => x.linear(weight, bias),
            Self::Packed { rows, format, .. } => x.quantized_linear(rows, bias, *format),
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
    pub(super) fn decoded(&self) -> Result<Tensor> {
        match self {
            Self::Plain(weight) => weight.cast(DType::F32),
            Self::Packed { rows, format, columns } => rows.dequantize(*format, *columns),
        }
    }

    /// Some of its rows.
    pub(super) fn slice(&self, start: usize, count: usize) -> Result<Self> {
        Ok(match self {
            Self::Plain(weight) => Self::Plain(weight.slice(0, start, count, 1)?),
            Self::Packed { rows, format, columns } => Self::Packed { rows: rows.slice(0, start, count, 1)?, format: *format, columns: *columns },
        })
    }

    /// The rows that indices name, f32.
    pub(super) fn gather(&self, indices: &Tensor) -> Result<Tensor> {
        match self {
            Self::Plain(weight) => weight.gather(indices, 0)?.cast(DType::F32),
            Self::Packed { rows, format, columns } => rows.gather(indices, 0)?.dequantize(*format, *columns),
        }
    }
}
