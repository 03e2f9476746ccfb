//! The forward pass, written once: a Llama's, with parts that other architectures have besides.
//!
//! Activations are f32; weights stay as stored (f32, f16 or bf16) and are adopted from the mapped file, so that a device with unified memory reads
//! them in place; quantised ones are packed. A step is recorded once and replayed with new tokens and positions: see [`Session`]. It is written in plain operators; the recorder puts
//! fused ones in their place, of which steps of a few tokens, bound by the reading of weights, take the most.

mod adapted;
mod attention;
mod cache;
mod dropout;
mod layer;
mod low_rank;
mod matrix;
mod memo;
mod mlp;
mod module;
mod packed;
mod paged;
mod parts;
mod random;
mod session;
mod source;
mod stacked;
#[cfg(test)]
pub(crate) mod tests;
mod whole;
mod wide;

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use elinvar::{Error, Executor, Result, Tensor};

use crate::{
    config::{Config, Rope},
    weights::{WeightType, Weights},
};
pub(crate) use adapted::{Change, EMBEDDING, HEAD, Place, PlaceKind};
use attention::{Context, Kept, LayerCache};
pub use cache::CacheType;
pub(crate) use dropout::check_dropout;
use layer::Layer;
pub(crate) use matrix::Matrix;
pub use memo::Checkpointing;
use memo::Memo;
use module::Module;
pub(crate) use packed::Packing;
pub(crate) use paged::{PagedCache, PagedStep, StepData, StepShape, drawn_tokens};
pub(crate) use parts::Linear;
use parts::Norm;
pub use session::{Decoding, Session};
use source::{Given, Shapes};
pub(crate) use source::{Source, Stored};
pub(crate) use stacked::Stacks;
pub(crate) use whole::{IGNORED, Objective};
use wide::Wide;

/// A model on a device. Clones share its weights.
#[derive(Clone)]
pub struct Model {
    config: Config,
    executor: Executor,
    embedding: Matrix,
    layers: Vec<Layer>,
    norm: Norm,
    head: Linear,
}

/// Which tokens' logits a step computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Logits {
    /// None: the step only fills the cache.
    None,
    /// The last token's.
    Last,
    /// Every token's.
    All,
}

impl Model {
    /// A model of these weights.
    ///
    /// # Errors
    /// A tensor that is missing, contradicts the configuration or has no place in it, or out of memory.
    pub fn new(executor: &Executor, config: Config, weights: &Weights) -> Result<Self> {
        if let Some(world) = executor.world() {
            world.agree("model", &weights.fingerprint().to_le_bytes())?;
        }
        let prefix = config.tensor_prefix;
        let mut stored = Stored { executor, weights, prefix, used: BTreeSet::new() };
        let model = Self::build(executor, config, &mut stored)?;
        // Rotary frequencies follow from the configuration, and a tied output projection may be stored twice.
        let redundant = |name: &str| match name.strip_prefix(prefix) {
            Some(name) => name.ends_with("rotary_emb.inv_freq") || (model.config.tied_embeddings && name == "lm_head.weight"),
            None => true,
        };
        match weights.names().find(|&name| !stored.used.contains(name) && !redundant(name)) {
            Some(name) => Err(Error::invalid_data(format!(
                "tensor '{name}' has no place in the configuration: weights and configuration do not belong together"
            ))),
            None => Ok(model),
        }
    }

    /// A model of tensors on the executor's device, by the names of Hugging Face's checkpoints; they are shared, not copied. Other tensors may be among them.
    ///
    /// # Errors
    /// A tensor that is missing or contradicts the configuration.
    pub fn with_tensors(executor: &Executor, config: Config, tensors: &HashMap<String, Tensor>) -> Result<Self> {
        let prefix = config.tensor_prefix;
        Self::build(executor, config, &mut Given { executor, tensors, prefix })
    }

    /// A model of seeded random weights of type `kind`, for benchmarks: speech-shaped, but nonsense.
    ///
    /// # Errors
    /// Out of memory, a `kind` that is not f32, f16, bf16 or a format of blocks, or rows that are not made of whole blocks.
    pub fn random(executor: &Executor, config: Config, kind: WeightType, seed: u64) -> Result<Self> {
        Self::build(executor, config, &mut random::Random::new(executor, kind, seed)?)
    }

    /// A model whose weights have shapes and types alone, for devices that plan and run nothing.
    ///
    /// # Errors
    /// A configuration that contradicts itself.
    pub fn without_weights(executor: &Executor, config: Config, kind: WeightType) -> Result<Self> {
        Self::build(executor, config, &mut Shapes { executor, kind })
    }

    fn build(executor: &Executor, config: Config, source: &mut dyn Source) -> Result<Self> {
        config.check_ranks(executor.ranks())?;
        if let Some(world) = executor.world() {
            world.agree("configuration", format!("{config:?} {}", executor.precision()).as_bytes())?;
        }
        let embedding = source.matrix("model.embed_tokens.weight", [config.vocab_size, config.hidden_size])?;
        let layers = (0..config.layers).map(|index| Layer::load(&config, index, source)).collect::<Result<Vec<_>>>()?;
        let norm = Norm::load(&config, source, "model.norm", config.hidden_size)?;
        let shares = if config.vocab_size.is_multiple_of(executor.ranks()) { executor.ranks() } else { 1 };
        let head = match config.tied_embeddings {
            true => Linear::shared(embedding.own_rows(shares)?, shares),
            false => Linear::load_own(source, HEAD, [config.vocab_size, config.hidden_size], false, executor.ranks() / shares)?,
        };
        Ok(Self { config, executor: executor.clone(), embedding, layers, norm, head })
    }

    /// The model with linear layers over blocks that multiply activations of about 31 bits, not 16, strictly in any precision: their errors are those of f32.
    /// Other layers stay as they are, the weights are shared.
    ///
    /// # Errors
    /// Out of memory.
    pub fn with_wide_activations(&self) -> Result<Self> {
        let (mut model, wide) = (self.clone(), Arc::new(Wide::new(&self.executor)?));
        model.modules().iter_mut().flat_map(Module::rows).for_each(|(_, linear)| linear.weight.widen(&wide));
        Ok(model)
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The executor it lives on.
    pub fn executor(&self) -> &Executor {
        &self.executor
    }

    /// Token ids that are in the vocabulary.
    ///
    /// # Errors
    /// One that is not.
    pub(crate) fn check_tokens(&self, tokens: &[u32]) -> Result<()> {
        match tokens.iter().find(|&&t| t as usize >= self.config.vocab_size) {
            Some(token) => Err(Error::invalid_argument(format!("token id {token} is outside the vocabulary of {} tokens", self.config.vocab_size))),
            None => Ok(()),
        }
    }

    /// By how much each layer's queries and keys are rotated with each position, in texts of at most `capacity` tokens.
    fn frequencies(&self, capacity: usize) -> Result<Vec<Tensor>> {
        let config = &self.config;
        let rates = |rope: &Rope| {
            let rates = rope.frequencies(capacity)?;
            self.executor.tensor(&[rates.len()], &rates)
        };
        let everywhere = rates(&config.rope)?;
        let windowed = config.window_rope.as_ref().map_or(Ok(everywhere.clone()), rates)?;
        Ok((0..config.layers).map(|index| if config.window(index).is_some() { windowed.clone() } else { everywhere.clone() }).collect())
    }

    /// What the layers keep of a text of at most `capacity` tokens, with keys and values stored as `kind`.
    fn cache(&self, capacity: usize, kind: CacheType) -> Result<Vec<Context>> {
        let layer = |frequencies: Tensor| Ok(Context { kept: Kept::Text(self.layer_cache(capacity, kind)?), memo: Memo::default(), frequencies });
        self.frequencies(capacity)?.into_iter().map(layer).collect()
    }

    /// Keys and values of a layer for so many tokens, zeros.
    fn layer_cache(&self, tokens: usize, kind: CacheType) -> Result<LayerCache> {
        let (dtype, extent) = kind.row(self.config.head_dim)?;
        let ranks = self.executor.ranks();
        let heads = self.config.kv_heads * self.config.key_sharers(ranks) / ranks;
        let zeros = || self.executor.zeros(dtype, &[heads, tokens, extent]);
        Ok(LayerCache { keys: zeros()?, values: zeros()? })
    }

    /// The residual stream of `tokens [n]` before the first layer.
    fn embed(&self, tokens: &Tensor) -> Result<Tensor> {
        let stream = self.embedding.gather(tokens)?;
        match self.config.embedding_scale {
            Some(scale) => stream * f64::from(scale),
            None => Ok(stream),
        }
    }

    /// The logits of the residual stream after the last layer.
    fn project(&self, stream: &Tensor) -> Result<Tensor> {
        let own = self.head.apply(&self.norm.apply(stream)?)?;
        let logits = if self.head.is_shared() { own.all_gather()? } else { own };
        match self.config.final_softcap.map(f64::from) {
            Some(cap) => (logits / cap)?.tanh()? * cap,
            None => Ok(logits),
        }
    }

    /// The logits `[wanted tokens, vocab_size]` of a step of `tokens [n]`, if any are wanted. The layers' caches are appended to.
    fn logits(&self, tokens: &Tensor, positions: &Tensor, cache: &[Context], wanted: Logits) -> Result<Option<Tensor>> {
        let mut stream = self.embed(tokens)?;
        let is_long = tokens.shape()[0] > 1;
        for (index, (layer, cache)) in self.layers.iter().zip(cache).enumerate() {
            // After the last layer no row but the last token's is read.
            let is_cut = is_long && index + 1 == self.layers.len() && wanted != Logits::All;
            stream = if is_cut { layer.forward_last(&stream, positions, cache) } else { layer.forward(&stream, positions, cache) }?;
        }
        if wanted == Logits::None { Ok(None) } else { self.project(&stream).map(Some) }
    }
}
