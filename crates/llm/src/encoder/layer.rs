//! One layer: attention of every token to every token of its text, and a feed-forward network, each added to what it gets and then normalised.

use elinvar::{
    Result, Tensor,
    kernels::attention::{Attention, Scoring},
};

use super::packed::Run;
use crate::{
    config::{EncoderActivation, EncoderConfig},
    model::{Linear, Source},
};

/// Layer normalisation of rows.
pub(super) struct Norm {
    weight: Tensor,
    bias: Tensor,
    epsilon: f32,
}

impl Norm {
    pub(super) fn load(config: &EncoderConfig, source: &mut dyn Source, name: &str) -> Result<Self> {
        let mut vector = |part: &str| source.tensor(&format!("{name}.{part}"), &[config.hidden_size]);
        Ok(Self { weight: vector("weight")?, bias: vector("bias")?, epsilon: config.norm_epsilon })
    }

    pub(super) fn apply(&self, x: &Tensor) -> Result<Tensor> {
        x.layer_norm(Some(&self.weight), Some(&self.bias), self.epsilon)
    }
}

pub(super) struct Layer {
    query: Linear,
    key: Linear,
    value: Linear,
    attended: Linear,
    attended_norm: Norm,
    up: Linear,
    down: Linear,
    output_norm: Norm,
    activation: EncoderActivation,
    heads: usize,
}

impl Layer {
    pub(super) fn load(config: &EncoderConfig, index: usize, source: &mut dyn Source) -> Result<Self> {
        let (hidden, inner) = (config.hidden_size, config.intermediate_size);
        let path = |part: &str| format!("encoder.layer.{index}.{part}");
        let mut linear = |part: &str, rows: usize, columns: usize| Linear::load(source, &path(part), rows, columns, true);
        let [query, key, value] = [
            linear("attention.self.query", hidden, hidden)?,
            linear("attention.self.key", hidden, hidden)?,
            linear("attention.self.value", hidden, hidden)?,
        ];
        let attended = linear("attention.output.dense", hidden, hidden)?;
        let (up, down) = (linear("intermediate.dense", inner, hidden)?, linear("output.dense", hidden, inner)?);
        Ok(Self {
            query,
            key,
            value,
            attended,
            attended_norm: Norm::load(config, source, &path("attention.output.LayerNorm"))?,
            up,
            down,
            output_norm: Norm::load(config, source, &path("output.LayerNorm"))?,
            activation: config.activation,
            heads: config.heads,
        })
    }

    /// The tokens `x [tokens, hidden]` of texts, one after the other, after this layer.
    pub(super) fn forward(&self, x: &Tensor, runs: &[Run]) -> Result<Tensor> {
        let x = self.attended_norm.apply(&self.attended.add_to(Some(x), &self.attend(x, runs)?)?)?;
        let inner = self.up.apply(&x)?;
        let inner = match self.activation {
            EncoderActivation::Gelu => inner.gelu(),
            EncoderActivation::GeluTanh => inner.gelu_tanh(),
            EncoderActivation::Relu => inner.relu(),
        }?;
        self.output_norm.apply(&self.down.add_to(Some(&x), &inner)?)
    }

    /// Each text's attention to itself.
    fn attend(&self, x: &Tensor, runs: &[Run]) -> Result<Tensor> {
        let attention = Attention { scoring: Scoring::default(), tokens_first: true, precision: x.executor().precision(), output: None };
        let hidden = x.shape()[1];
        let projected = [self.query.apply(x)?, self.key.apply(x)?, self.value.apply(x)?];
        let parts = runs.iter().map(|run| {
            let heads = |x: &Tensor| run.rows_of(x)?.reshape(&[run.texts, run.length, self.heads, hidden / self.heads])?.transpose(1, 2);
            let [q, k, v] = &projected;
            heads(q)?.attention(&attention, &heads(k)?, &heads(v)?, None, None)?.reshape(&[run.texts * run.length, hidden])
        });
        joined(parts.collect::<Result<Vec<_>>>()?)
    }
}

/// Rows after rows.
pub(super) fn joined(parts: Vec<Tensor>) -> Result<Tensor> {
    match &parts[..] {
        [whole] => Ok(whole.clone()),
        parts => Tensor::concat(&parts.iter().collect::<Vec<_>>(), 0),
    }
}
