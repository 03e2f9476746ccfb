//! One transformer layer.

use elinvar::{Result, Tensor};

use super::{
    attention::{Attention, Context, Queries},
    mlp::Mlp,
    module::Module,
    parts::Norm,
    source::Source,
};
use crate::config::Config;

/// Attention and a feed-forward network, each normalised before, and in some models after, and added to the residual stream.
#[derive(Clone)]
pub(super) struct Layer {
    input_norm: Norm,
    attention: Attention,
    attended_norm: Option<Norm>,
    mlp_norm: Norm,
    mlp: Mlp,
    output_norm: Option<Norm>,
}

impl Layer {
    pub(super) fn load(config: &Config, index: usize, source: &mut dyn Source) -> Result<Self> {
        // Where norms follow, the one before the feed-forward network has another name.
        let (post, before_mlp) = (config.post_norms, if config.post_norms { "pre_feedforward_layernorm" } else { "post_attention_layernorm" });
        let path = |part: &str| format!("model.layers.{index}.{part}");
        let width = config.hidden_size;
        Ok(Self {
            input_norm: Norm::load(config, source, &path("input_layernorm"), width)?,
            attention: Attention::load(config, index, source)?,
            attended_norm: Norm::load_if(post, config, source, &path("post_attention_layernorm"), width)?,
            mlp_norm: Norm::load(config, source, &path(before_mlp), width)?,
            mlp: Mlp::load(config, index, source)?,
            output_norm: Norm::load_if(post, config, source, &path("post_feedforward_layernorm"), width)?,
        })
    }

    /// Its linear layers.
    pub(super) fn modules(&mut self, path: &str, fused: bool) -> Vec<Module<'_>> {
        let mut modules = self.attention.modules(path, fused);
        modules.extend(self.mlp.modules(path, fused));
        modules
    }

    /// Its norms, by the names that checkpoints have for them.
    pub(super) fn norms(&mut self, path: &str) -> Vec<(String, &mut Norm)> {
        let before_mlp = if self.attended_norm.is_some() { "pre_feedforward_layernorm" } else { "post_attention_layernorm" };
        let own = [
            ("input_layernorm", Some(&mut self.input_norm)),
            ("post_attention_layernorm", self.attended_norm.as_mut()),
            (before_mlp, Some(&mut self.mlp_norm)),
            ("post_feedforward_layernorm", self.output_norm.as_mut()),
        ];
        let own = own.into_iter().filter_map(|(name, norm)| Some((format!("{path}.{name}"), norm?)));
        own.chain(self.attention.norms(path)).collect()
    }

    /// The residual stream `[tokens, hidden]` after this layer, whose keys and values are appended to the cache, if there is one.
    pub(super) fn forward(&self, stream: &Tensor, positions: &Tensor, context: &Context) -> Result<Tensor> {
        let x = self.input_norm.apply(stream)?;
        self.of_queries(stream, &Queries { x: x.clone(), positions: positions.clone() }, &x, positions, context)
    }

    /// The same of the last token alone, `[1, hidden]`, over a cache, to which the keys and values of all are appended.
    pub(super) fn forward_last(&self, stream: &Tensor, positions: &Tensor, context: &Context) -> Result<Tensor> {
        let last = |tensor: &Tensor| tensor.slice(0, tensor.shape()[0] - 1, 1, 1);
        let (x, stream) = (self.input_norm.apply(stream)?, last(stream)?);
        let queries = Queries { x: self.input_norm.apply(&stream)?, positions: last(positions)? };
        self.of_queries(&stream, &queries, &x, positions, context)
    }

    /// The residual stream of the queries' tokens; x is normalised.
    fn of_queries(&self, stream: &Tensor, queries: &Queries, x: &Tensor, positions: &Tensor, context: &Context) -> Result<Tensor> {
        let attend = |residual: Option<&Tensor>| context.memo.keep(self.attention.forward(queries, x, positions, context, residual)?);
        let stream = match &self.attended_norm {
            Some(norm) => stream.add(&norm.apply(&attend(None)?.all_gather()?)?)?,
            None => attend(Some(&stream.own_part()?))?.all_gather()?,
        };
        let x = self.mlp_norm.apply(&stream)?;
        match &self.output_norm {
            Some(norm) => stream.add(&norm.apply(&self.mlp.forward(&x, None)?.all_gather()?)?),
            None => self.mlp.forward(&x, Some(&stream.own_part()?))?.all_gather(),
        }
    }
}
