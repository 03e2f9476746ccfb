//! One transformer layer: grouped-query attention with rotary positions over a cache, and a gated feed-forward network.

use elinvar::{
    Result, Tensor,
    kernels::attention::{Attention, Scoring},
};

use super::{matrix::Matrix, source::Source};
use crate::config::Config;

/// A projection: `x Wᵀ + bias`.
pub(super) struct Linear {
    weight: Matrix,
    bias: Option<Tensor>,
}

impl Linear {
    pub(super) fn new(weight: Matrix) -> Self {
        Self { weight, bias: None }
    }

    fn load(source: &mut dyn Source, name: &str, rows: usize, columns: usize, bias: bool) -> Result<Self> {
        let weight = source.matrix(&format!("{name}.weight"), [rows, columns])?;
        let bias = if bias { Some(source.tensor(&format!("{name}.bias"), &[rows])?) } else { None };
        Ok(Self { weight, bias })
    }

    pub(super) fn apply(&self, x: &Tensor) -> Result<Tensor> {
        self.weight.linear(x, self.bias.as_ref())
    }
}

/// Where a step's tokens stand: their positions, and the model's rotary frequencies.
#[derive(Clone, Copy)]
pub(super) struct Places<'a> {
    pub(super) positions: &'a Tensor,
    pub(super) frequencies: &'a Tensor,
}

/// The weights of a layer.
pub(super) struct Layer {
    pub(super) input_norm: Tensor,
    pub(super) post_norm: Tensor,
    q: Linear,
    k: Linear,
    v: Linear,
    output: Linear,
    q_norm: Option<Tensor>,
    k_norm: Option<Tensor>,
    gate: Linear,
    up: Linear,
    down: Linear,
    window: Option<usize>,
}

impl Layer {
    pub(super) fn new(config: &Config, index: usize, source: &mut dyn Source) -> Result<Self> {
        let (hidden, inner) = (config.hidden_size, config.intermediate_size);
        let (queries, keys) = (config.heads * config.head_dim, config.kv_heads * config.head_dim);
        let path = |part: &str| format!("model.layers.{index}.{part}");
        let head_norm = |source: &mut dyn Source, name: &str| match config.qk_norm {
            true => source.tensor(&path(name), &[config.head_dim]).map(Some),
            false => Ok(None),
        };
        Ok(Self {
            input_norm: source.tensor(&path("input_layernorm.weight"), &[hidden])?,
            post_norm: source.tensor(&path("post_attention_layernorm.weight"), &[hidden])?,
            q: Linear::load(source, &path("self_attn.q_proj"), queries, hidden, config.qkv_bias)?,
            k: Linear::load(source, &path("self_attn.k_proj"), keys, hidden, config.qkv_bias)?,
            v: Linear::load(source, &path("self_attn.v_proj"), keys, hidden, config.qkv_bias)?,
            output: Linear::load(source, &path("self_attn.o_proj"), hidden, queries, config.output_bias)?,
            q_norm: head_norm(source, "self_attn.q_norm.weight")?,
            k_norm: head_norm(source, "self_attn.k_norm.weight")?,
            gate: Linear::load(source, &path("mlp.gate_proj"), inner, hidden, config.mlp_bias)?,
            up: Linear::load(source, &path("mlp.up_proj"), inner, hidden, config.mlp_bias)?,
            down: Linear::load(source, &path("mlp.down_proj"), hidden, inner, config.mlp_bias)?,
            window: config.windows.get(index).copied().flatten(),
        })
    }

    /// The residual stream `[tokens, hidden]` after this layer, whose keys and values are appended to the cache.
    pub(super) fn forward(&self, config: &Config, stream: &Tensor, places: Places<'_>, cache: &(Tensor, Tensor)) -> Result<Tensor> {
        let epsilon = config.norm_epsilon;
        let attended = self.attend(config, &stream.rms_norm(Some(&self.input_norm), epsilon)?, places, cache)?;
        let stream = stream.add(&attended)?;
        let x = stream.rms_norm(Some(&self.post_norm), epsilon)?;
        stream.add(&self.down.apply(&self.gate.apply(&x)?.swiglu(&self.up.apply(&x)?)?)?)
    }

    /// Attention of `x [tokens, hidden]` over the cache, keys and values `[kv_heads, capacity, head_dim]`.
    fn attend(
        &self,
        config: &Config,
        x: &Tensor,
        Places { positions, frequencies }: Places<'_>,
        (keys, values): &(Tensor, Tensor),
    ) -> Result<Tensor> {
        let (tokens, dim, capacity) = (x.shape()[0], config.head_dim, keys.shape()[1]);
        let heads = |linear: &Linear, count: usize, norm: Option<&Tensor>| -> Result<Tensor> {
            let heads = linear.apply(x)?.reshape(&[tokens, count, dim])?;
            if norm.is_some() { heads.rms_norm(norm, config.norm_epsilon) } else { Ok(heads) }
        };
        let q = heads(&self.q, config.heads, self.q_norm.as_ref())?;
        let k = heads(&self.k, config.kv_heads, self.k_norm.as_ref())?;
        let v = heads(&self.v, config.kv_heads, None)?;
        keys.kv_append(&k.rope(positions, frequencies)?, positions)?;
        values.kv_append(&v, positions)?;
        let queries = q.rope(positions, frequencies)?.reshape(&[1, tokens, config.heads, dim])?.transpose(1, 2)?;
        let left_window = self.window.map(|window| window.saturating_sub(1) as u64);
        let scoring = Scoring { causal: true, left_window, ..Scoring::default() };
        let attention = Attention { scoring, tokens_first: true, precision: x.executor().precision() };
        let batched = |cache: &Tensor| cache.reshape(&[1, config.kv_heads, capacity, dim]);
        let attended = queries.attention(&attention, &batched(keys)?, &batched(values)?, None, Some(positions))?;
        self.output.apply(&attended.reshape(&[tokens, config.heads * dim])?)
    }
}
