//! `config.json` of the Llama family, as transformers 4 and 5 write it.

mod generation;
pub(crate) mod gguf;
mod rope;
#[cfg(test)]
mod tests;

use elinvar::{Error, Result, kernels::rope::RopeScaling};
use serde::{Deserialize, Deserializer, de::IgnoredAny};

use crate::files::ModelFiles;
pub use generation::GenerationConfig;
pub use rope::Rope;
use rope::RopeDictionary;

/// The architectures, which differ in biases, head normalisation, attention windows and defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Architecture {
    /// `LlamaForCausalLM`.
    Llama,
    /// `MistralForCausalLM`: a sliding window in every layer.
    Mistral,
    /// `Qwen2ForCausalLM`: biases on query, key and value.
    Qwen2,
    /// `Qwen3ForCausalLM`: RMS normalisation of each query and key head.
    Qwen3,
}

impl Architecture {
    const ALL: [(Architecture, &'static str, &'static str); 4] = [
        (Architecture::Llama, "LlamaForCausalLM", "llama"),
        (Architecture::Mistral, "MistralForCausalLM", "mistral"),
        (Architecture::Qwen2, "Qwen2ForCausalLM", "qwen2"),
        (Architecture::Qwen3, "Qwen3ForCausalLM", "qwen3"),
    ];

    /// The name in `architectures`.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(a, ..)| *a == self).map_or("", |(_, name, _)| name)
    }

    fn find(architectures: Option<&[String]>, model_type: Option<&str>) -> Result<Self> {
        let first = architectures.and_then(<[_]>::first).map(String::as_str);
        let matches = |(_, name, kind): &&(_, &str, &str)| first.map_or(model_type == Some(*kind), |first| first == *name);
        Self::ALL.iter().find(matches).map(|(a, ..)| *a).ok_or_else(|| {
            let found = first.or(model_type).unwrap_or("(none)");
            let names: Vec<_> = Self::ALL.iter().map(|(_, name, _)| *name).collect();
            Error::unsupported(format!("architecture '{found}' is not supported: {} are", names.join(", ")))
        })
    }
}

/// The shape of a model and the constants of its forward pass.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Which architecture.
    pub architecture: Architecture,
    /// Rows of the embedding.
    pub vocab_size: usize,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Width of the feed-forward network.
    pub intermediate_size: usize,
    /// Number of layers.
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; divides `heads`.
    pub kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// The longest context it was made for, in tokens.
    pub max_context: usize,
    /// Added to the mean square in RMS normalisation.
    pub norm_epsilon: f32,
    /// Rotary embedding.
    pub rope: Rope,
    /// The output projection is the embedding.
    pub tied_embeddings: bool,
    /// Query, key and value projections have biases.
    pub qkv_bias: bool,
    /// The attention's output projection has a bias.
    pub output_bias: bool,
    /// The feed-forward projections have biases.
    pub mlp_bias: bool,
    /// Query and key heads are normalised.
    pub qk_norm: bool,
    /// For each layer, how many of the latest keys a query sees (itself included), or all.
    pub windows: Vec<Option<usize>>,
    /// Token a text begins with.
    pub bos: Option<u32>,
    /// Tokens that end a text.
    pub eos: Vec<u32>,
}

/// Layers at most.
const MAX_LAYERS: usize = 4096;

/// One id, several, or none.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum Ids {
    One(u32),
    Many(Vec<u32>),
}

impl Ids {
    fn into_vec(self) -> Vec<u32> {
        match self {
            Ids::One(id) => vec![id],
            Ids::Many(ids) => ids,
        }
    }
}

/// The keys that are read; others are of no consequence for the forward pass.
#[derive(Debug, Deserialize)]
struct Raw {
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
    hidden_act: Option<String>,
    tie_word_embeddings: Option<bool>,
    attention_bias: Option<bool>,
    mlp_bias: Option<bool>,
    use_sliding_window: Option<bool>,
    #[serde(default, deserialize_with = "present")]
    sliding_window: Option<Option<usize>>,
    max_window_layers: Option<usize>,
    layer_types: Option<Vec<String>>,
    bos_token_id: Option<u32>,
    eos_token_id: Option<Ids>,
    quantization_config: Option<IgnoredAny>,
}

/// Tells an explicit `null` (`Some(None)`) from an absent key (`None`).
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<usize>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

impl Config {
    /// The shape of a Llama 3 with an output projection of its own, for 8192 tokens, without tokens that begin or end a text: for random weights.
    pub fn llama3(layers: usize, [hidden_size, intermediate_size]: [usize; 2], [heads, kv_heads]: [usize; 2], vocab_size: usize) -> Self {
        let head_dim = hidden_size / heads.max(1);
        Self {
            architecture: Architecture::Llama,
            vocab_size,
            hidden_size,
            intermediate_size,
            layers,
            heads,
            kv_heads,
            head_dim,
            max_context: 8192,
            norm_epsilon: 1e-5,
            rope: Rope { theta: 500_000.0, dimensions: head_dim, scaling: RopeScaling::None, divisors: None },
            tied_embeddings: false,
            qkv_bias: false,
            output_bias: false,
            mlp_bias: false,
            qk_norm: false,
            windows: vec![None; layers],
            bos: None,
            eos: Vec::new(),
        }
    }

    /// Reads `config.json`, or the metadata of a GGUF file.
    ///
    /// # Errors
    /// It is missing, damaged, contradicts itself or asks for what is not supported.
    pub fn read(files: &ModelFiles) -> Result<Self> {
        const FILE: &str = "config.json";
        if let ModelFiles::Gguf(file) = files {
            return gguf::read(file);
        }
        let raw: Option<Raw> = files.read_json(FILE)?;
        let raw = raw.ok_or_else(|| Error::io(format!("{} is missing: it describes the model", files.label(FILE))))?;
        raw.resolve().map_err(|e| e.context(files.label(FILE)))
    }

    /// Parses the text of a `config.json`.
    ///
    /// # Errors
    /// As [`Config::read`].
    pub fn parse(text: &str) -> Result<Self> {
        let raw: Raw = serde_json::from_str(text).map_err(|e| Error::with_source(elinvar::ErrorKind::InvalidData, "config.json", e))?;
        raw.resolve()
    }
}

impl Raw {
    fn resolve(&self) -> Result<Config> {
        let architecture = Architecture::find(self.architectures.as_deref(), self.model_type.as_deref())?;
        if self.quantization_config.is_some() {
            return Err(Error::unsupported("the weights are quantised ('quantization_config'): f32, f16 and bf16 weights are supported"));
        }
        self.check_activation()?;
        let hidden_size = extent("hidden_size", self.hidden_size)?;
        let heads = extent("num_attention_heads", self.num_attention_heads)?;
        let kv_heads = self.kv_heads(architecture, heads)?;
        let head_dim = self.head_dim(architecture, hidden_size, heads)?;
        let layers = self.layers()?;
        let attention_bias = self.attention_bias.unwrap_or(false);
        let dictionary = self.rope_parameters.as_ref().or(self.rope_scaling.as_ref());
        let rope = dictionary.unwrap_or(&RopeDictionary::default()).resolve(self.rope_theta, self.partial_rotary_factor, head_dim)?;
        Ok(Config {
            architecture,
            vocab_size: extent("vocab_size", self.vocab_size)?,
            hidden_size,
            intermediate_size: extent("intermediate_size", self.intermediate_size)?,
            layers,
            heads,
            kv_heads,
            head_dim,
            max_context: extent("max_position_embeddings", self.max_position_embeddings)?,
            norm_epsilon: self.norm_epsilon()?,
            rope,
            tied_embeddings: self.tie_word_embeddings.unwrap_or(false),
            qkv_bias: match architecture {
                Architecture::Llama | Architecture::Qwen3 => attention_bias,
                Architecture::Mistral => false,
                Architecture::Qwen2 => true,
            },
            output_bias: attention_bias && matches!(architecture, Architecture::Llama | Architecture::Qwen3),
            mlp_bias: architecture == Architecture::Llama && self.mlp_bias.unwrap_or(false),
            qk_norm: architecture == Architecture::Qwen3,
            windows: self.windows(architecture, layers)?,
            bos: self.bos_token_id,
            eos: self.eos_token_id.clone().map(Ids::into_vec).unwrap_or_default(),
        })
    }

    fn check_activation(&self) -> Result<()> {
        match self.hidden_act.as_deref() {
            None | Some("silu" | "swish") => Ok(()),
            Some(other) => Err(Error::unsupported(format!("activation '{other}' is not supported: silu is"))),
        }
    }

    fn layers(&self) -> Result<usize> {
        let layers = extent("num_hidden_layers", self.num_hidden_layers)?;
        if layers <= MAX_LAYERS {
            Ok(layers)
        } else {
            Err(Error::invalid_data(format!("'num_hidden_layers' is {layers}: at most {MAX_LAYERS} are supported")))
        }
    }

    /// transformers' default is one for each query head, but 8 in Mistral.
    fn kv_heads(&self, architecture: Architecture, heads: usize) -> Result<usize> {
        let default = if architecture == Architecture::Mistral { 8 } else { heads };
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
        if architecture == Architecture::Qwen3 {
            return Ok(128);
        }
        if !hidden.is_multiple_of(heads) {
            return Err(Error::invalid_data(format!(
                "'hidden_size' {hidden} is no multiple of 'num_attention_heads' {heads}, and 'head_dim' is missing"
            )));
        }
        Ok(hidden / heads)
    }

    fn norm_epsilon(&self) -> Result<f32> {
        let epsilon = self.rms_norm_eps.unwrap_or(1e-6);
        if epsilon.is_finite() && epsilon >= 0.0 {
            return Ok(epsilon as f32);
        }
        Err(Error::invalid_data(format!("'rms_norm_eps' is {epsilon}: it must not be negative")))
    }

    /// Mistral slides in every layer (over 4096 keys unless the file says otherwise); Qwen in the layers that `layer_types`, or
    /// `max_window_layers`, names, if `use_sliding_window` is set; Llama nowhere.
    fn windows(&self, architecture: Architecture, layers: usize) -> Result<Vec<Option<usize>>> {
        let given = self.sliding_window.unwrap_or(Some(4096));
        if given == Some(0) {
            return Err(Error::invalid_data("'sliding_window' is 0: a query must see itself"));
        }
        let window = match architecture {
            Architecture::Llama => None,
            Architecture::Mistral => return Ok(vec![given; layers]),
            Architecture::Qwen2 | Architecture::Qwen3 => given.filter(|_| self.use_sliding_window.unwrap_or(false)),
        };
        let Some(types) = self.layer_types.as_ref().filter(|_| architecture != Architecture::Llama) else {
            let full = self.max_window_layers.unwrap_or(28);
            return Ok((0..layers).map(|layer| window.filter(|_| layer >= full)).collect());
        };
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

/// A required extent: positive, and small enough that products of a few do not overflow.
fn extent(key: &str, value: Option<usize>) -> Result<usize> {
    const MOST: usize = 1 << 28;
    match value {
        None => Err(Error::invalid_data(format!("'{key}' is missing"))),
        Some(n) if (1..=MOST).contains(&n) => Ok(n),
        Some(n) => Err(Error::invalid_data(format!("'{key}' is {n}: it must be between 1 and {MOST}"))),
    }
}
