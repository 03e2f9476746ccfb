//! The memory a model needs, known before anything is loaded.

use elinvar::{DType, Error, MemoryInfo, Result, format_bytes};

use crate::{
    config::Config,
    engine::EngineOptions,
    model::CacheType,
    weights::{WeightType, Weights},
};

/// Bytes a model needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryEstimate {
    /// Weights, as stored.
    pub weights: u64,
    /// Keys and values of a full context.
    pub cache: u64,
    /// Intermediate results and logits, at most.
    pub activations: u64,
}

impl MemoryEstimate {
    /// Of stored weights beside the cache of a text of `context` tokens, prefilled `chunk` tokens at a time.
    pub fn of(config: &Config, weights: &Weights, context: usize, cache: impl Into<CacheType>, chunk: usize) -> Self {
        Self::with_weights(config, weights.bytes(), context, cache.into(), chunk)
    }

    /// Of random weights of type `kind`.
    pub fn of_random(config: &Config, kind: WeightType, context: usize, cache: impl Into<CacheType>, chunk: usize) -> Self {
        let matrices = if config.tied_embeddings { 1 } else { 2 };
        let parameters = product(&[matrices, config.vocab_size, config.hidden_size]) + layer_parameters(config) * config.layers as u128;
        let parameters = parameters + config.hidden_size as u128;
        Self::with_weights(config, clamp(kind.bytes(parameters)), context, cache.into(), chunk)
    }

    /// Of stored weights beside an engine, whose steps share the memory of their intermediates: at most four times what a full one needs.
    pub fn of_engine(config: &Config, weights: &Weights, options: &EngineOptions) -> Self {
        Self::with_engine(config, weights.bytes(), options)
    }

    pub(crate) fn with_engine(config: &Config, weights: u64, options: &EngineOptions) -> Self {
        let slots = options.cache_tokens.saturating_add(options.spare_slots());
        let step = (options.step_tokens as u128).saturating_mul(row(config)).saturating_add(product(&[options.running, config.vocab_size]));
        let bytes = step.saturating_mul(4).saturating_mul(DType::F32.size() as u128);
        Self { activations: clamp(bytes), ..Self::with_weights(config, weights, slots, options.cache, 0) }
    }

    fn with_weights(config: &Config, weights: u64, context: usize, cache: CacheType, chunk: usize) -> Self {
        // Up to three recorded prefill steps (filling, last, remainder) and two of decoding (read by the host, chosen by the device) keep theirs.
        let rows = 3 * chunk.min(context) as u128 + 2;
        let elements = rows.saturating_mul(row(config)).saturating_add(4 * config.vocab_size as u128);
        // Where a GPU decodes keys and values in blocks for a prefill step, to f16, the step keeps a layer's.
        let decoded = if cache == CacheType::Q8_0 { 3 * product(&[2, 2, context, config.kv_heads, config.head_dim]) } else { 0 };
        Self {
            weights,
            cache: clamp(product(&[2, config.layers, context, config.kv_heads, cache.row_bytes(config.head_dim)])),
            activations: clamp(elements.saturating_mul(DType::F32.size() as u128).saturating_add(decoded)),
        }
    }

    /// What of it each rank of a group of devices needs: all have the embedding, and share the other weights and the heads of the cache.
    pub fn of_rank(self, config: &Config, ranks: usize) -> Self {
        if ranks <= 1 {
            return self;
        }
        let embedding = product(&[config.vocab_size, config.hidden_size]);
        let matrices = if config.tied_embeddings { 1 } else { 2 };
        let parameters = embedding * matrices + layer_parameters(config).saturating_mul(config.layers as u128);
        let embedding = (self.weights as u128).saturating_mul(embedding) / parameters.max(1);
        let own = if config.tied_embeddings { self.weights as u128 } else { (self.weights as u128).saturating_sub(embedding) };
        Self {
            weights: clamp(own.div_ceil(ranks as u128).saturating_add(embedding)),
            cache: clamp((self.cache as u128).saturating_mul(config.key_sharers(ranks) as u128).div_ceil(ranks as u128)),
            ..self
        }
    }

    /// What both need together.
    pub fn with(self, other: Self) -> Self {
        Self {
            weights: self.weights.saturating_add(other.weights),
            cache: self.cache.saturating_add(other.cache),
            activations: self.activations.saturating_add(other.activations),
        }
    }

    /// All of it.
    pub fn total(&self) -> u64 {
        self.weights.saturating_add(self.cache).saturating_add(self.activations)
    }

    /// Rejects what does not fit into the memory that is available.
    ///
    /// # Errors
    /// It does not; the message has the figures.
    pub fn check(&self, memory: MemoryInfo) -> Result<()> {
        if self.total() <= memory.available as u64 {
            return Ok(());
        }
        let [need, weights, cache, activations] = [self.total(), self.weights, self.cache, self.activations].map(format_bytes);
        let [available, total] = [memory.available, memory.total].map(|bytes| format_bytes(bytes as u64));
        Err(Error::out_of_memory(format!(
            "the model needs {need} (weights {weights}, cache {cache}, activations {activations}), {available} of {total} are free: use a smaller \
             model, a shorter context or a cache of f16 or q8_0, or free memory"
        )))
    }
}

/// Elements that a step keeps of a token at a time, at most.
fn row(config: &Config) -> u128 {
    let (queries, keys) = (product(&[config.heads, config.head_dim]), product(&[config.kv_heads, config.head_dim]));
    6 * config.hidden_size as u128 + 3 * queries + 3 * keys + 3 * config.intermediate_size as u128
}

fn layer_parameters(config: &Config) -> u128 {
    let hidden = config.hidden_size as u128;
    let (queries, keys) = (product(&[config.heads, config.head_dim]), product(&[config.kv_heads, config.head_dim]));
    let norms = if config.post_norms { 4 } else { 2 };
    hidden * (2 * queries + 2 * keys + 3 * config.intermediate_size as u128 + norms)
}

fn product(factors: &[usize]) -> u128 {
    factors.iter().fold(1, |n: u128, &factor| n.saturating_mul(factor as u128))
}

fn clamp(bytes: u128) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_share_weights_and_cache_but_not_the_embedding() {
        let config = llama_8b();
        let whole = MemoryEstimate::of_random(&config, WeightType::Plain(DType::BF16), 8192, DType::F16, 512);
        let rank = whole.of_rank(&config, 2);
        let embedding = 2 * 128256 * 4096;
        let close = |a: u64, b: u64| a.abs_diff(b) < 1 << 20;
        assert!(close(rank.weights, embedding + (whole.weights - embedding) / 2), "{rank:?}");
        assert_eq!((rank.cache, rank.activations), (whole.cache / 2, whole.activations));
        // Sixteen ranks have eight heads of keys between them.
        assert_eq!(whole.of_rank(&config, 16).cache, whole.cache / 8);
        assert_eq!(whole.of_rank(&config, 1), whole);
    }

    fn llama_8b() -> Config {
        let json = r#"{"architectures": ["LlamaForCausalLM"], "vocab_size": 128256, "hidden_size": 4096, "intermediate_size": 14336,
            "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 8192}"#;
        Config::parse(json).unwrap()
    }

    #[test]
    fn a_known_model_has_its_known_size() {
        let estimate = MemoryEstimate::of_random(&llama_8b(), WeightType::Plain(DType::BF16), 8192, DType::F16, 256);
        assert_eq!(estimate.weights, 2 * 8_030_261_248);
        assert_eq!(estimate.cache, 8192 * 131_072);
        // A head's 128 elements in blocks: 128 bytes and four scales, filled up to a multiple of 16.
        let packed = MemoryEstimate::of_random(&llama_8b(), WeightType::Plain(DType::BF16), 8192, CacheType::Q8_0, 256);
        assert_eq!(packed.cache, 8192 * 2 * 32 * 8 * 144);
        assert!((200_000_000..400_000_000).contains(&estimate.activations), "{estimate:?}");
    }

    #[test]
    fn an_engine_has_slots_for_what_fills_a_step_up() {
        let options = EngineOptions { running: 64, step_tokens: 512, ..EngineOptions::new(8192, DType::F16) };
        let estimate = MemoryEstimate::with_engine(&llama_8b(), 7, &options);
        assert_eq!((estimate.weights, estimate.cache), (7, (8 * 8192 + 1024) * 131_072));
        let row = 6 * 4096 + 3 * 4096 + 3 * 1024 + 3 * 14336;
        assert_eq!(estimate.activations, 4 * 4 * (512 * row + 64 * 128_256));
        let absurd = EngineOptions { cache_tokens: usize::MAX, running: usize::MAX, step_tokens: usize::MAX, ..options };
        assert_eq!(MemoryEstimate::with_engine(&llama_8b(), 7, &absurd).total(), u64::MAX);
    }

    #[test]
    fn what_does_not_fit_is_rejected_with_the_figures() {
        let estimate = MemoryEstimate { weights: 15 << 30, cache: 1 << 30, activations: 300 << 20 };
        assert!(estimate.check(MemoryInfo { total: 64 << 30, available: 17 << 30 }).is_ok());
        let error = estimate.check(MemoryInfo { total: 16 << 30, available: 9 << 29 }).unwrap_err();
        assert!(error.is_out_of_memory());
        let expected = "needs 16.3 GiB (weights 15.0 GiB, cache 1.0 GiB, activations 300.0 MiB), 4.5 GiB of 16.0 GiB are free";
        assert!(error.to_string().contains(expected), "{error}");
    }

    #[test]
    fn absurd_sizes_saturate() {
        let config = Config { layers: 4096, kv_heads: 1 << 28, head_dim: 1 << 28, heads: 1 << 28, ..llama_8b() };
        let estimate = MemoryEstimate::of_random(&config, WeightType::Plain(DType::F32), usize::MAX, DType::F32, usize::MAX);
        assert_eq!(estimate.total(), u64::MAX);
        assert!(estimate.check(MemoryInfo { total: 1, available: 1 }).is_err());
    }
}
