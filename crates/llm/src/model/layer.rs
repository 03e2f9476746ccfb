//! One transformer layer: grouped-query attention with rotary positions over a cache, and a gated feed-forward network.

use elinvar::{
    Error, Result, Tensor,
    kernels::{
        attention::{Attention, Scoring, decode::DecodeAttention},
        projection::Projection,
    },
};

use super::Source;
use crate::Config;

/// A projection: `x Wᵀ + bias`.
pub(super) struct Linear {
    weight: Tensor,
    bias: Option<Tensor>,
}

impl Linear {
    pub(super) fn new(weight: Tensor) -> Self {
        Self { weight, bias: None }
    }

    fn load(source: &mut dyn Source, name: &str, rows: usize, columns: usize, bias: bool) -> Result<Self> {
        let weight = source.tensor(&format!("{name}.weight"), &[rows, columns])?;
        let bias = if bias { Some(source.tensor(&format!("{name}.bias"), &[rows])?) } else { None };
        Ok(Self { weight, bias })
    }

    pub(super) fn apply(&self, x: &Tensor) -> Result<Tensor> {
        x.linear(&self.weight, self.bias.as_ref())
    }

    fn parts(&self) -> (&Tensor, Option<&Tensor>) {
        (&self.weight, self.bias.as_ref())
    }

    /// `residual + x Wᵀ + bias`.
    fn add_to(&self, residual: &Tensor, x: &Tensor) -> Result<Tensor> {
        only(x.project(&Projection::default(), None, &[self.parts()], Some(residual))?)
    }

    /// Whether one launch takes both.
    fn is_like(&self, other: &Linear) -> bool {
        let types = |linear: &Linear| (linear.weight.dtype(), linear.bias.as_ref().map(Tensor::dtype));
        types(self) == types(other)
    }
}

/// A row normalisation.
#[derive(Clone, Copy)]
pub(super) struct Norm<'a> {
    pub(super) weight: &'a Tensor,
    pub(super) epsilon: f32,
}

impl Norm<'_> {
    /// The projections of the normalised rows of `x`, those of one type together.
    pub(super) fn project(self, x: &Tensor, linears: &[&Linear]) -> Result<Vec<Tensor>> {
        let operator = Projection { epsilon: Some(self.epsilon), gated: false };
        let project = |group: &[&Linear]| x.project(&operator, Some(self.weight), &group.iter().map(|l| l.parts()).collect::<Vec<_>>(), None);
        let groups: Vec<_> = linears.chunk_by(|a, b| a.is_like(b)).map(project).collect::<Result<_>>()?;
        Ok(groups.into_iter().flatten().collect())
    }

    /// `silu(gate x) · up x` of the normalised rows.
    fn gate(self, x: &Tensor, gate: &Linear, up: &Linear) -> Result<Tensor> {
        if gate.is_like(up) {
            let operator = Projection { epsilon: Some(self.epsilon), gated: true };
            return only(x.project(&operator, Some(self.weight), &[gate.parts(), up.parts()], None)?);
        }
        let [gate, up] = exactly(self.project(x, &[gate, up])?)?;
        gate.swiglu(&up)
    }
}

fn exactly<const N: usize>(outputs: Vec<Tensor>) -> Result<[Tensor; N]> {
    <[Tensor; N]>::try_from(outputs).map_err(|found| Error::invalid_launch(format!("{} projections, {N} expected", found.len())))
}

/// The one projection.
pub(super) fn only(outputs: Vec<Tensor>) -> Result<Tensor> {
    exactly(outputs).map(|[one]| one)
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

    /// The residual stream `[tokens, hidden]` after this layer, for a few tokens: each product in one launch with what stands around it. The bits of
    /// [`Layer::attend`] and [`Layer::feed_forward`] between their norms and additions in strict precision.
    pub(super) fn step(&self, config: &Config, stream: &Tensor, places: Places<'_>, cache: &(Tensor, Tensor)) -> Result<Tensor> {
        let norm = |weight| Norm { weight, epsilon: config.norm_epsilon };
        let projected = exactly(norm(&self.input_norm).project(stream, &[&self.q, &self.k, &self.v])?)?;
        let stream = self.output.add_to(stream, &self.attention(config, projected, places, cache)?)?;
        let gated = norm(&self.post_norm).gate(&stream, &self.gate, &self.up)?;
        self.down.add_to(&stream, &gated)
    }

    /// Attention of the normalised `x [tokens, hidden]`, projected.
    pub(super) fn attend(&self, config: &Config, x: &Tensor, places: Places<'_>, cache: &(Tensor, Tensor)) -> Result<Tensor> {
        let projected = [self.q.apply(x)?, self.k.apply(x)?, self.v.apply(x)?];
        self.output.apply(&self.attention(config, projected, places, cache)?)
    }

    /// Attention `[tokens, heads · head_dim]` of projected tokens over the cache, keys and values `[kv_heads, capacity, head_dim]`, to which theirs
    /// are appended first.
    fn attention(&self, config: &Config, [q, k, v]: [Tensor; 3], places: Places<'_>, (keys, values): &(Tensor, Tensor)) -> Result<Tensor> {
        let (tokens, dim) = (q.shape()[0], config.head_dim);
        let heads = |x: Tensor, count: usize, norm: Option<&Tensor>| -> Result<Tensor> {
            let heads = x.reshape(&[tokens, count, dim])?;
            if norm.is_some() { heads.rms_norm(norm, config.norm_epsilon) } else { Ok(heads) }
        };
        let q = heads(q, config.heads, self.q_norm.as_ref())?;
        let k = heads(k, config.kv_heads, self.k_norm.as_ref())?;
        let v = heads(v, config.kv_heads, None)?;
        let left_window = self.window.map(|window| window.saturating_sub(1) as u64);
        if tokens == 1 {
            let attention = DecodeAttention { left_window, precision: q.executor().matmul_precision(tokens), ..DecodeAttention::default() };
            let attended = q.decode_attention(&attention, (keys, &k), (values, &v), places.positions, places.frequencies)?;
            return attended.reshape(&[tokens, config.heads * dim]);
        }
        keys.rope_append(&k, places.positions, places.frequencies, Some((values, &v)), Some(&q))?;
        let capacity = keys.shape()[1];
        let batched = |cache: &Tensor| cache.reshape(&[1, config.kv_heads, capacity, dim]);
        let queries = q.reshape(&[1, tokens, config.heads, dim])?.transpose(1, 2)?;
        let scoring = Scoring { causal: true, left_window, ..Scoring::default() };
        let attention = Attention { scoring, tokens_first: true, precision: queries.executor().matmul_precision(tokens) };
        let attended = queries.attention(&attention, &batched(keys)?, &batched(values)?, None, Some(places.positions))?;
        attended.reshape(&[tokens, config.heads * dim])
    }

    /// `down(silu(gate x) · up x)`.
    pub(super) fn feed_forward(&self, x: &Tensor) -> Result<Tensor> {
        self.down.apply(&self.gate.apply(x)?.swiglu(&self.up.apply(x)?)?)
    }
}
