//! What an adapter adds to a linear layer: LoRA, and DoRA, which rescales the rows.

use std::sync::Arc;

use elinvar::{DType, Error, Result, Tensor, kernels::lora::LoraLinear};

use super::{dropout::Dropout, matrix::Matrix};

/// `x Wᵀ` becomes `x (W + s B A)ᵀ`, for DoRA with rows of the length `magnitude`.
#[derive(Clone)]
pub(super) struct LowRank {
    /// `[rank, columns]`.
    a: Tensor,
    /// `[rows, rank]`.
    b: Tensor,
    scale: f32,
    /// `s B`, beside a quantised matrix, where nothing is trained.
    scaled: Option<Tensor>,
    rows: Option<Rows>,
    /// Of what it reads.
    pub(super) dropout: Option<Dropout>,
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
        let scaled = match weight {
            Matrix::Packed { .. } if !b.is_tracked() => Some((b.clone() * f64::from(scale))?),
            Matrix::Packed { .. } | Matrix::Plain(_) => None,
        };
        let mut adapter = Self { a, b, scale, scaled, rows: None, dropout: None };
        adapter.rows = match magnitude {
            None => None,
            Some(magnitude) if magnitude.is_tracked() => Some(Rows::Stretched(magnitude)),
            Some(magnitude) => Some(Rows::Scaled(magnitude.div(&adapter.lengths(weight)?)?)),
        };
        Ok(adapter)
    }

    /// Its rank.
    pub(super) fn rank(&self) -> usize {
        self.a.shape()[0]
    }

    /// `A` and `B`, and the factor of what they make, as [`LowRank::linear`] takes them without DoRA.
    pub(super) fn matrices(&self) -> ([Tensor; 2], f32) {
        match &self.scaled {
            Some(scaled) => ([self.a.clone(), scaled.clone()], 1.0),
            None => ([self.a.clone(), self.b.clone()], self.scale),
        }
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

    /// The layer with the adapter, added to `residual` if there is one.
    pub(super) fn linear(&self, weight: &Matrix, x: &Tensor, bias: Option<&Tensor>, residual: Option<&Tensor>) -> Result<Tensor> {
        let factors = match &self.rows {
            None => None,
            Some(Rows::Scaled(factors)) => Some(factors.clone()),
            Some(Rows::Stretched(magnitude)) => Some(magnitude.div(&self.lengths(weight)?)?),
        };
        if let Some(dropout) = &self.dropout {
            return self.dropped(weight, [x, &dropout.apply(x)?], bias, residual, factors.as_ref());
        }
        let Some(factors) = factors else { return self.plain(weight, x, bias, residual) };
        let scaled = self.plain(weight, x, None, None)?.cast(DType::F32)?.mul(&factors)?.cast(x.dtype())?;
        added(residual, bias.map_or(Ok(scaled.clone()), |bias| scaled.add(bias))?)
    }

    fn plain(&self, weight: &Matrix, x: &Tensor, bias: Option<&Tensor>, residual: Option<&Tensor>) -> Result<Tensor> {
        match weight {
            Matrix::Plain(weight) => {
                let operator = LoraLinear { scale: self.scale, precision: x.executor().precision() };
                let outputs = x.executor().apply(Arc::new(operator), &[Some(x), Some(weight), Some(&self.a), Some(&self.b), bias])?;
                added(residual, outputs.into_iter().next().ok_or_else(|| Error::internal("a linear layer gave nothing"))?)
            }
            Matrix::Packed { .. } => self.beside(&added(residual, weight.linear(x, bias)?)?, x),
        }
    }

    /// The layer where the adapter reads `dropped` instead of `x`; DoRA's factors are of what it reads, as PEFT has it.
    fn dropped(
        &self,
        weight: &Matrix,
        [x, dropped]: [&Tensor; 2],
        bias: Option<&Tensor>,
        residual: Option<&Tensor>,
        factors: Option<&Tensor>,
    ) -> Result<Tensor> {
        let y = added(residual, weight.linear(x, bias)?)?;
        let low = (dropped.linear(&self.a.cast(x.dtype())?, None)?.linear(&self.b.cast(x.dtype())?, None)? * f64::from(self.scale))?;
        match factors {
            None => y.add(&low),
            Some(factors) => {
                let wide = |x: &Tensor| x.cast(DType::F32);
                let change = wide(&weight.linear(dropped, None)?)?.mul(&(factors - 1.0)?)?.add(&wide(&low)?.mul(factors)?)?;
                y.add(&change.cast(x.dtype())?)
            }
        }
    }

    /// `y + s (x Aᵀ) Bᵀ`: plain operators, of which launches of a few rows take those of several layers together, and the sum with a product.
    fn beside(&self, y: &Tensor, x: &Tensor) -> Result<Tensor> {
        let low = x.linear(&self.a, None)?;
        match &self.scaled {
            Some(b) => y.add(&low.linear(b, None)?),
            None => y.add(&(low.linear(&self.b, None)? * f64::from(self.scale))?),
        }
    }
}

/// `residual + y`; `y` without one.
pub(super) fn added(residual: Option<&Tensor>, y: Tensor) -> Result<Tensor> {
    residual.map_or(Ok(y.clone()), |residual| residual.add(&y))
}
