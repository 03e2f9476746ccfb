//! Normalisations.

use candle_core::{Module, Result, Tensor};
use candle_nn::{LayerNormConfig, VarBuilder};

use crate::ops::Ops;

/// Layer normalisation, or RMS normalisation where its configuration says so, in place of [`candle_nn::LayerNorm`].
#[derive(Clone, Debug)]
pub struct LayerNorm(candle_nn::LayerNorm);

impl From<candle_nn::LayerNorm> for LayerNorm {
    fn from(norm: candle_nn::LayerNorm) -> Self {
        Self(norm)
    }
}

impl LayerNorm {
    /// With `weight` and `bias` of shape `[n]`.
    pub fn new(weight: Tensor, bias: Tensor, eps: f64) -> Self {
        Self(candle_nn::LayerNorm::new(weight, bias, eps))
    }

    /// Without a bias.
    pub fn new_no_bias(weight: Tensor, eps: f64) -> Self {
        Self(candle_nn::LayerNorm::new_no_bias(weight, eps))
    }

    /// The weight.
    pub fn weight(&self) -> &Tensor {
        self.0.weight()
    }

    /// The bias, if there is one.
    pub fn bias(&self) -> Option<&Tensor> {
        self.0.bias()
    }
}

impl Module for LayerNorm {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let (norm, ops) = (&self.0, Ops::shared()?);
        let eps = norm.eps() as f32;
        match (norm.remove_mean(), norm.bias()) {
            (true, bias) => ops.layer_norm(x, norm.weight(), bias, eps),
            (false, None) => ops.rms_norm(x, norm.weight(), eps),
            (false, Some(bias)) => ops.rms_norm(x, norm.weight(), eps)?.broadcast_add(bias),
        }
    }
}

/// As [`candle_nn::layer_norm()`].
///
/// # Errors
/// Missing tensors, or of another shape.
pub fn layer_norm<C: Into<LayerNormConfig>>(size: usize, config: C, vb: VarBuilder) -> Result<LayerNorm> {
    candle_nn::layer_norm(size, config, vb).map(LayerNorm)
}

/// As [`candle_nn::layer_norm_no_bias`].
///
/// # Errors
/// A missing tensor, or of another shape.
pub fn layer_norm_no_bias(size: usize, eps: f64, vb: VarBuilder) -> Result<LayerNorm> {
    candle_nn::layer_norm_no_bias(size, eps, vb).map(LayerNorm)
}

/// RMS normalisation, in place of [`candle_nn::RmsNorm`].
///
/// ```
/// use candle_core::{DType, Device, Module, Tensor, Var};
/// use elinvar_candle::nn::RmsNorm;
///
/// let weight = Var::ones(4, DType::F32, &Device::Cpu)?;
/// let norm = RmsNorm::new(weight.as_tensor().clone(), 1e-5);
/// let x = Tensor::arange(0f32, 8.0, &Device::Cpu)?.reshape((2, 4))?;
/// assert!(norm.forward(&x)?.sum_all()?.backward()?.get(&weight).is_some());
/// # Ok::<(), candle_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct RmsNorm(candle_nn::RmsNorm);

impl From<candle_nn::RmsNorm> for RmsNorm {
    fn from(norm: candle_nn::RmsNorm) -> Self {
        Self(norm)
    }
}

impl RmsNorm {
    /// With a `weight` of shape `[n]`.
    pub fn new(weight: Tensor, eps: f64) -> Self {
        Self(candle_nn::RmsNorm::new(weight, eps))
    }

    /// The weight.
    pub fn weight(&self) -> &Tensor {
        self.0.weight()
    }
}

impl Module for RmsNorm {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        Ops::shared()?.rms_norm(x, self.0.weight(), self.0.eps() as f32)
    }
}

/// As [`candle_nn::rms_norm`].
///
/// # Errors
/// A missing tensor, or of another shape.
pub fn rms_norm(size: usize, eps: f64, vb: VarBuilder) -> Result<RmsNorm> {
    candle_nn::rms_norm(size, eps, vb).map(RmsNorm)
}
