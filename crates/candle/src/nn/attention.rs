//! Attention with its projections.

use candle_core::{Module, Result, Tensor};
use candle_nn::{Linear, VarBuilder, linear_b};

use crate::{Scoring, ops::Ops};

/// The extents of [`Attention`], and how its scores are made.
#[derive(Clone, Copy, Debug)]
pub struct AttentionConfig {
    /// Elements of a token.
    pub hidden_size: usize,
    /// Heads of the queries.
    pub heads: usize,
    /// Heads of keys and values: `heads` is a multiple.
    pub kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// Whether queries, keys and values have a bias.
    pub bias: bool,
    /// Scale, soft cap, causality and windows.
    pub scoring: Scoring,
}

/// Attention of tokens over themselves, with its four projections.
#[derive(Clone, Debug)]
pub struct Attention {
    config: AttentionConfig,
    q: Linear,
    k: Linear,
    v: Linear,
    output: Linear,
}

impl Attention {
    /// Of `x [batch, tokens, hidden_size]`, whose queries and keys are rotated by cosines and sines `[positions, head_dim / 2]` where these are given.
    ///
    /// # Errors
    /// Shapes or types that do not fit.
    pub fn forward(&self, x: &Tensor, rotary: Option<(&Tensor, &Tensor)>, mask: Option<&Tensor>) -> Result<Tensor> {
        let (ops, config) = (Ops::shared()?, &self.config);
        let (batch, tokens, _) = x.dims3()?;
        // Attention takes these views as they are.
        let heads = |projection: &Linear, heads: usize| projection.forward(x)?.reshape((batch, tokens, heads, config.head_dim))?.transpose(1, 2);
        let (mut q, mut k, v) = (heads(&self.q, config.heads)?, heads(&self.k, config.kv_heads)?, heads(&self.v, config.kv_heads)?);
        if let Some((cos, sin)) = rotary {
            (q, k) = (ops.rope(&q, cos, sin)?, ops.rope(&k, cos, sin)?);
        }
        let y = ops.attention(&q, &k, &v, mask, &config.scoring)?;
        self.output.forward(&y.transpose(1, 2)?.reshape((batch, tokens, config.heads * config.head_dim))?)
    }
}

/// Of the builder's layers `q_proj`, `k_proj`, `v_proj` and `o_proj`.
///
/// # Errors
/// Missing tensors, or of another shape.
pub fn attention(config: AttentionConfig, vb: VarBuilder) -> Result<Attention> {
    let AttentionConfig { hidden_size, heads, kv_heads, head_dim, bias, .. } = config;
    let projection = |name: &str, heads: usize| linear_b(hidden_size, heads * head_dim, bias, vb.pp(name));
    Ok(Attention {
        config,
        q: projection("q_proj", heads)?,
        k: projection("k_proj", kv_heads)?,
        v: projection("v_proj", kv_heads)?,
        output: linear_b(heads * head_dim, hidden_size, false, vb.pp("o_proj"))?,
    })
}
