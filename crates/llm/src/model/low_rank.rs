//! What an adapter adds to a linear layer: LoRA, and DoRA, which rescales the rows.

use std::sync::Arc;

use elinvar::{Error, Result, Tensor, kernels::lora::LoraLinear};

use super::matrix::Matrix;

/// `x Wᵀ` becomes `x (W + s B A)ᵀ`, for DoRA with rows of the length `magnitude`.
#[derive(Clone)]
pub(super) struct LowRank {
    /// `[rank, columns]`.
    a: Tensor,
    /// `[rows, rank]`.
    b: Tensor,
    scale: f32,
    rows: Option<Rows>,
}

/// How the rows of `W + s B A` are rescaled.
#[derive(Clone)]
enum Rows {
    /// By these factors `[rows]`.
    Scaled(Tensor),
    /// To these lengths `[rows]`, which are trained: the lengths that they have are computed in each step, and are constants to the gradient.
    Stretched(Tensor),
}

impl LowRank {
    /// Of a matrix; `magnitude` is DoRA's.
    pub(super) fn new(weight: &Matrix, [a, b]: [Tensor; 2], scale: f32, magnitude: Option<Tensor>) -> Result<Self> {
        let mut adapter = Self { a, b, scale, rows: None };
        adapter.rows = match magnitude {
            None => None,
            Some(magnitude) if magnitude.is_tracked() => Some(Rows::Stretched(magnitude)),
            Some(magnitude) => Some(Rows::Scaled(magnitude.div(&adapter.lengths(weight)?)?)),
        };
        Ok(adapter)
    }

    /// `W + s B A`, f32, without DoRA's factors.
    fn sum(&self, weight: &Matrix) -> Result<Tensor> {
        weight.decoded()?.add(&(self.b.detach().matmul(&self.a.detach())? * f64::from(self.scale))?)
    }

    /// The lengths of its rows.
    fn lengths(&self, weight: &Matrix) -> Result<Tensor> {
        self.sum(weight)?.sum_square(&[1], false)?.sqrt()
    }

    /// The weight that has the adapter in it, f32.
    pub(super) fn merged(&self, weight: &Matrix) -> Result<Tensor> {
        let sum = self.sum(weight)?;
        match &self.rows {
            None => Ok(sum),
            Some(Rows::Scaled(factors)) => sum.mul(&factors.unsqueeze(1)?),
            Some(Rows::Stretched(_)) => Err(Error::internal("an adapter in training is merged")),
        }
    }

    /// The layer with the adapter.
    pub(super) fn linear(&self, weight: &Matrix, x: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
        let factors = match &self.rows {
            None => return self.plain(weight, x, bias),
            Some(Rows::Scaled(factors)) => factors.clone(),
            Some(Rows::Stretched(magnitude)) => magnitude.div(&self.lengths(weight)?)?,
        };
        let scaled = self.plain(weight, x, None)?.mul(&factors)?;
        bias.map_or(Ok(scaled.clone()), |bias| scaled.add(bias))
    }

    fn plain(&self, weight: &Matrix, x: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
        match weight {
            Matrix::Plain(weight) => {
                let operator = LoraLinear { scale: self.scale, precision: x.executor().precision() };
                let outputs = x.executor().apply(Arc::new(operator), &[Some(x), Some(weight), Some(&self.a), Some(&self.b), bias])?;
                outputs.into_iter().next().ok_or_else(|| Error::internal("a linear layer gave nothing"))
            }
            Matrix::Packed { .. } => {
                let delta = x.linear(&self.a, None)?.linear(&self.b, None)?;
                weight.linear(x, bias)?.add(&(delta * f64::from(self.scale))?)
            }
        }
    }
}
