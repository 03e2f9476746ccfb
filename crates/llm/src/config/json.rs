//! `config.json`, as transformers 4 and 5 write it.

use elinvar::{Error, Result};
use serde::{Deserialize, Deserializer, de::IgnoredAny};

use super::{
    Activation, Architecture, Config, GEMMA3_WINDOW_THETA, MAX_LAYERS,
    architecture::GEMMA3_WITH_VISION,
    extent,
    quantization::Quantization,
    rope::{Beside, Rope, RopeDictionary},
    sliding,
};

/// The rotary base of Gemma 3's layers without a window, where none is given.
const GEMMA3_THETA: f64 = 1_000_000.0;

/// One id, several, or none.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Ids {
    One(u32),
    Many(Vec<u32>),
}

impl Ids {
    pub(super) fn into_vec(self) -> Vec<u32> {
        match self {
            Ids::One(id) => vec![id],
            Ids::Many(ids) => ids,
        }
    }
}

/// The keys that are read; others are of no consequence for the forward pass.
#[derive(Debug, Deserialize)]
pub(super) struct Raw {
    architectures: Option<Vec<String>>,
    model_type: Option<String>,
    vocab_size: Option<usize>,
    hidden_size: Option<usize>,
    intermediate_size: Option<usize>,
    num_hidden_layers: Option<usize>,
    num_attention_heads: Option<usize>,
    num_key_value_heads: Option<usize>,
    head_dim: Option<usize>,
    max_position_embeddings: Option<usize>,
    rms_norm_eps: Option<f64>,
    rope_theta: Option<f64>,
    rope_scaling: Option<RopeDictionary>,
    rope_parameters: Option<RopeDictionary>,
    partial_rotary_factor: Option<f64>,
    original_max_position_embeddings: Option<usize>,
    rope_local_base_freq: Option<f64>,
    hidden_act: Option<String>,
    hidden_activation: Option<String>,
    tie_word_embeddings: Option<bool>,
    attention_bias: Option<bool>,
    mlp_bias: Option<bool>,
    use_sliding_window: Option<bool>,
    #[serde(default, deserialize_with = "present")]
    sliding_window: Option<Option<usize>>,
    max_window_layers: Option<usize>,
    layer_types: Option<Vec<String>>,
    sliding_window_pattern: Option<usize>,
    query_pre_attn_scalar: Option<f64>,
    #[serde(default, deserialize_with = "present")]
    attn_logit_softcapping: Option<Option<f64>>,
    #[serde(default, deserialize_with = "present")]
    final_logit_softcapping: Option<Option<f64>>,
    use_bidirectional_attention: Option<bool>,
    text_config: Option<Box<Raw>>,
    bos_token_id: Option<u32>,
    eos_token_id: Option<Ids>,
    /// Of MLX; a copy of it is often called as the next.
    quantization: Option<Quantization>,
    quantization_config: Option<IgnoredAny>,
}

/// An explicit `null` is `Some(None)`, an absent key `None`.
fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

impl Raw {
    /// The configuration. That of a Gemma 3 with vision is its text part's.
    pub(super) fn resolve(&self) -> Result<Config> {
        let is_quantized = |raw: &Self| raw.quantization_config.is_some();
        if self.quantization.is_none() && (is_quantized(self) || self.text_config.as_deref().is_some_and(is_quantized)) {
            return Err(Error::unsupported(
                "the weights are quantised ('quantization_config'): f32, f16 and bf16 weights are supported, and MLX's groups ('quantization')",
            ));
        }
        let with_vision = self.architectures.as_deref().and_then(<[_]>::first).is_some_and(|first| first == GEMMA3_WITH_VISION);
        let Some(text) = self.text_config.as_ref().filter(|_| with_vision) else {
            return self.resolve_as(Architecture::find(self.architectures.as_deref(), self.model_type.as_deref())?);
        };
        let config = text.resolve_as(Architecture::Gemma3)?;
        let eos = self.eos_token_id.clone().map_or(config.eos, Ids::into_vec);
        Ok(Config { tensor_prefix: "language_model.", bos: self.bos_token_id.or(config.bos), eos, ..config })
    }

    fn resolve_as(&self, architecture: Architecture) -> Result<Config> {
        if self.use_bidirectional_attention == Some(true) {
            return Err(Error::unsupported("'use_bidirectional_attention' is set: attention of earlier tokens alone is supported"));
        }
        let is_gemma = architecture.is_gemma();
        // What transformers assumes of Gemma 3: its first configurations leave it out.
        let of_gemma3 = |value: usize| (architecture == Architecture::Gemma3).then_some(value);
        let hidden_size = extent("hidden_size", self.hidden_size)?;
        let heads = extent("num_attention_heads", self.num_attention_heads.or(of_gemma3(8)))?;
        let kv_heads = self.kv_heads(architecture, heads)?;
        let head_dim = self.head_dim(architecture, hidden_size, heads)?;
        let layers = self.layers()?;
        let max_context = extent("max_position_embeddings", self.max_position_embeddings.or(of_gemma3(131_072)))?;
        let (rope, window_rope) = self.ropes(architecture, head_dim, max_context)?;
        let (attention_softcap, final_softcap) = self.softcaps(architecture)?;
        let attention_bias = self.attention_bias.unwrap_or(false);
        let output_bias = match architecture {
            Architecture::Llama | Architecture::Qwen3 | Architecture::Gemma2 | Architecture::Gemma3 => attention_bias,
            Architecture::Mistral | Architecture::Qwen2 | Architecture::Phi3 => false,
        };
        Ok(Config {
            architecture,
            vocab_size: extent("vocab_size", self.vocab_size.or(of_gemma3(262_208)))?,
            hidden_size,
            intermediate_size: extent("intermediate_size", self.intermediate_size)?,
            layers,
            heads,
            kv_heads,
            head_dim,
            max_context,
            norm_epsilon: self.norm_epsilon(architecture)?,
            norms_less_one: is_gemma,
            post_norms: is_gemma,
            rope,
            window_rope,
            embedding_scale: is_gemma.then(|| (hidden_size as f64).sqrt() as f32),
            attention_scale: self.attention_scale(architecture)?,
            attention_softcap,
            final_softcap,
            activation: self.activation(architecture)?,
            tied_embeddings: self.tie_word_embeddings.unwrap_or(is_gemma),
            fused_projections: architecture == Architecture::Phi3,
            qkv_bias: output_bias || architecture == Architecture::Qwen2,
            output_bias,
            mlp_bias: architecture == Architecture::Llama && self.mlp_bias.unwrap_or(false),
            qk_norm: matches!(architecture, Architecture::Qwen3 | Architecture::Gemma3),
            windows: self.windows(architecture, layers)?,
            tensor_prefix: "",
            bos: self.bos_token_id,
            eos: self.eos_token_id.clone().map(Ids::into_vec).unwrap_or_default(),
        })
    }

    fn activation(&self, architecture: Architecture) -> Result<Activation> {
        let (key, expected, activation) = match architecture.is_gemma() {
            true => (&self.hidden_activation, "gelu_pytorch_tanh", Activation::GeluTanh),
            false => (&self.hidden_act, "silu", Activation::Silu),
        };
        match key.as_deref() {
            None => Ok(activation),
            Some(found) if found == expected || (expected == "silu" && found == "swish") => Ok(activation),
            Some(other) => Err(Error::unsupported(format!("activation '{other}' is not supported: {expected} is"))),
        }
    }

    /// Of Gemma's queries; 1 / √256 unless given.
    fn attention_scale(&self, architecture: Architecture) -> Result<Option<f32>> {
        if !architecture.is_gemma() {
            return Ok(None);
        }
        let scalar = self.query_pre_attn_scalar.unwrap_or(256.0);
        if scalar.is_finite() && scalar > 0.0 {
            return Ok(Some(scalar.powf(-0.5) as f32));
        }
        Err(Error::invalid_data(format!("'query_pre_attn_scalar' is {scalar}: it must be positive")))
    }

    /// Soft caps of scores and logits: Gemma 2 has them unless they are given as `null`; Gemma 3 may have one of logits.
    fn softcaps(&self, architecture: Architecture) -> Result<(Option<f32>, Option<f32>)> {
        let (scores, logits) = match architecture {
            Architecture::Gemma2 => (self.attn_logit_softcapping.unwrap_or(Some(50.0)), self.final_logit_softcapping.unwrap_or(Some(30.0))),
            Architecture::Gemma3 => match self.attn_logit_softcapping.flatten() {
                Some(_) => return Err(Error::unsupported("'attn_logit_softcapping' is not supported in Gemma 3")),
                None => (None, self.final_logit_softcapping.flatten()),
            },
            Architecture::Llama | Architecture::Mistral | Architecture::Qwen2 | Architecture::Qwen3 | Architecture::Phi3 => (None, None),
        };
        let cap = |key: &str, value: Option<f64>| match value {
            Some(cap) if !(cap.is_finite() && cap > 0.0) => Err(Error::invalid_data(format!("'{key}' is {cap}: it must be positive"))),
            cap => Ok(cap.map(|cap| cap as f32)),
        };
        Ok((cap("attn_logit_softcapping", scores)?, cap("final_logit_softcapping", logits)?))
    }

    /// The rotary embedding, and that of layers with a window where it is another: Gemma 3's.
    fn ropes(&self, architecture: Architecture, head_dim: usize, max_context: usize) -> Result<(Rope, Option<Rope>)> {
        let (original, partial, is_phi3) = (self.original_max_position_embeddings, self.partial_rotary_factor, architecture == Architecture::Phi3);
        let beside = |theta: f64| Beside { theta, partial, head_dim, max_context, original, is_phi3 };
        let plain = RopeDictionary::default();
        let dictionary = self.rope_parameters.as_ref().or(self.rope_scaling.as_ref()).unwrap_or(&plain);
        if architecture != Architecture::Gemma3 {
            return Ok((dictionary.resolve(beside(self.rope_theta.unwrap_or(10_000.0)))?, None));
        }
        let (full, window) = match (&self.rope_parameters, &dictionary.full_attention, &dictionary.sliding_attention) {
            (_, Some(full), Some(window)) => (&**full, &**window),
            (None, None, None) => (dictionary, &plain),
            _ => return Err(Error::unsupported("rotary parameters of Gemma 3: one dictionary for each layer type is supported")),
        };
        let window_theta = self.rope_local_base_freq.unwrap_or(GEMMA3_WINDOW_THETA);
        Ok((full.resolve(beside(self.rope_theta.unwrap_or(GEMMA3_THETA)))?, Some(window.resolve(beside(window_theta))?)))
    }

    fn layers(&self) -> Result<usize> {
        let layers = extent("num_hidden_layers", self.num_hidden_layers)?;
        if layers <= MAX_LAYERS {
            Ok(layers)
        } else {
            Err(Error::invalid_data(format!("'num_hidden_layers' is {layers}: at most {MAX_LAYERS} are supported")))
        }
    }

    /// transformers' default is one for each query head, but 8 in Mistral and 4 in Gemma.
    fn kv_heads(&self, architecture: Architecture, heads: usize) -> Result<usize> {
        let default = match architecture {
            Architecture::Mistral => 8,
            Architecture::Gemma2 | Architecture::Gemma3 => 4,
            Architecture::Llama | Architecture::Qwen2 | Architecture::Qwen3 | Architecture::Phi3 => heads,
        };
        let kv_heads = extent("num_key_value_heads", self.num_key_value_heads.or(Some(default)))?;
        if !heads.is_multiple_of(kv_heads) {
            return Err(Error::invalid_data(format!("{heads} query heads cannot share {kv_heads} key and value heads evenly")));
        }
        Ok(kv_heads)
    }

    fn head_dim(&self, architecture: Architecture, hidden: usize, heads: usize) -> Result<usize> {
        if let Some(head_dim) = self.head_dim {
            return extent("head_dim", Some(head_dim));
        }
        match architecture {
            Architecture::Qwen3 => return Ok(128),
            Architecture::Gemma2 | Architecture::Gemma3 => return Ok(256),
            Architecture::Llama | Architecture::Mistral | Architecture::Qwen2 | Architecture::Phi3 => {}
        }
        if !hidden.is_multiple_of(heads) {
            return Err(Error::invalid_data(format!(
                "'hidden_size' {hidden} is no multiple of 'num_attention_heads' {heads}, and 'head_dim' is missing"
            )));
        }
        Ok(hidden / heads)
    }

    fn norm_epsilon(&self, architecture: Architecture) -> Result<f32> {
        let default = if architecture == Architecture::Phi3 { 1e-5 } else { 1e-6 };
        let epsilon = self.rms_norm_eps.unwrap_or(default);
        if epsilon.is_finite() && epsilon >= 0.0 {
            return Ok(epsilon as f32);
        }
        Err(Error::invalid_data(format!("'rms_norm_eps' is {epsilon}: it must not be negative")))
    }

    /// Mistral slides in every layer (over 4096 keys unless the file says otherwise), Phi-3 too, if it has a window; Qwen in the layers that `layer_types`, or
    /// `max_window_layers`, names, if `use_sliding_window` is set; Gemma in those that `layer_types` names, or all but every second (Gemma 2), or sixth
    /// or as `sliding_window_pattern` says (Gemma 3); Llama nowhere.
    fn windows(&self, architecture: Architecture, layers: usize) -> Result<Vec<Option<usize>>> {
        let given = self.sliding_window.unwrap_or(Some(4096));
        if given == Some(0) {
            return Err(Error::invalid_data("'sliding_window' is 0: a query must see itself"));
        }
        let (window, by_default) = match architecture {
            Architecture::Llama => return Ok(vec![None; layers]),
            Architecture::Mistral => return Ok(vec![given; layers]),
            Architecture::Phi3 => return Ok(vec![self.sliding_window.flatten(); layers]),
            Architecture::Qwen2 | Architecture::Qwen3 => {
                let (window, full) = (given.filter(|_| self.use_sliding_window.unwrap_or(false)), self.max_window_layers.unwrap_or(28));
                (window, (0..layers).map(|layer| window.filter(|_| layer >= full)).collect())
            }
            Architecture::Gemma2 => (given, sliding(layers, 2, given)),
            Architecture::Gemma3 => (given, sliding(layers, self.sliding_window_pattern.unwrap_or(6), given)),
        };
        let Some(types) = &self.layer_types else { return Ok(by_default) };
        if types.len() != layers {
            return Err(Error::invalid_data(format!("'layer_types' has {} entries for {layers} layers", types.len())));
        }
        let of_type = |kind: &String| match (kind.as_str(), window) {
            ("full_attention", _) => Ok(None),
            ("sliding_attention", Some(window)) => Ok(Some(window)),
            ("sliding_attention", None) => Err(Error::invalid_data("'layer_types' asks for a sliding window, but none is enabled")),
            (other, _) => Err(Error::unsupported(format!("layer type '{other}' is not supported: full_attention and sliding_attention are"))),
        };
        types.iter().map(of_type).collect()
    }
}
