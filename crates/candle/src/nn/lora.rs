//! Low-rank adapters of linear layers.

use candle_core::{Module, Result, Tensor};
use candle_nn::{Init, Linear, VarBuilder, init};

use crate::ops::Ops;

/// A linear layer with a low-rank adapter: `base(x) + scale · (x aᵀ) bᵀ`.
#[derive(Clone, Debug)]
pub struct LoraLinear {
    base: Linear,
    a: Tensor,
    b: Tensor,
    scale: f32,
}

impl LoraLinear {
    /// `base` of weight `[n, k]`, `a [r, k]`, `b [n, r]`. What of the four are variables is trained.
    pub fn new(base: Linear, a: Tensor, b: Tensor, scale: f64) -> Self {
        Self { base, a, b, scale: scale as f32 }
    }

    /// The layer that the adapter is added to.
    pub fn base(&self) -> &Linear {
        &self.base
    }

    /// The adapter's matrices, `[r, k]` and `[n, r]`.
    pub fn adapter(&self) -> [&Tensor; 2] {
        [&self.a, &self.b]
    }
}

impl Module for LoraLinear {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        Ops::shared()?.lora_forward(x, self.base.weight(), &self.a, &self.b, self.base.bias(), self.scale)
    }
}

/// An adapter of rank `rank` for `base`, scaled by `alpha / rank`, of the builder's tensors `lora_A.weight` and `lora_B.weight`: the names that PEFT gives
/// them. Where the builder makes them, the first is random and the second zero, so that the layer begins as `base`.
///
/// # Errors
/// Missing tensors, or of another shape.
pub fn lora_linear(base: Linear, rank: usize, alpha: f64, vb: VarBuilder) -> Result<LoraLinear> {
    let (n, k) = base.weight().dims2()?;
    let a = vb.get_with_hints((rank, k), "lora_A.weight", init::DEFAULT_KAIMING_UNIFORM)?;
    let b = vb.get_with_hints((n, rank), "lora_B.weight", Init::Const(0.0))?;
    Ok(LoraLinear::new(base, a, b, alpha / rank.max(1) as f64))
}
