//! What a model is: read from `config.json` ([`json`]) or from the metadata of a GGUF file ([`gguf`]).

mod architecture;
mod encoder;
mod generation;
pub(crate) mod gguf;
mod json;
mod quantization;
mod ranks;
mod rope;
#[cfg(test)]
mod tests;

use elinvar::{Error, Result, kernels::rope::RopeScaling};

use crate::files::ModelFiles;
pub use architecture::Architecture;
pub(crate) use encoder::{EncoderActivation, EncoderConfig};
pub use generation::GenerationConfig;
use json::Raw;
pub use quantization::Groups;
pub(crate) use quantization::Quantization;
pub use rope::{Divisors, Rope};

/// The function of the gate in a feed-forward network, `down(function(gate(x)) · up(x))`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// `x · sigmoid(x)`.
    Silu,
    /// GELU in its tanh form.
    GeluTanh,
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
    /// The weights of norms are stored less 1.
    pub norms_less_one: bool,
    /// What attention and feed-forward network give is normalised before it is added.
    pub post_norms: bool,
    /// Rotary embedding.
    pub rope: Rope,
    /// Rotary embedding of layers with a window, where it is another.
    pub window_rope: Option<Rope>,
    /// What embeddings are multiplied by.
    pub embedding_scale: Option<f32>,
    /// The factor of scores; `1 / √head_dim` unless given.
    pub attention_scale: Option<f32>,
    /// Scores `s` become `c · tanh(s / c)`.
    pub attention_softcap: Option<f32>,
    /// Logits `l` become `c · tanh(l / c)`.
    pub final_softcap: Option<f32>,
    /// The function of the gate.
    pub activation: Activation,
    /// The output projection is the embedding.
    pub tied_embeddings: bool,
    /// Queries, keys and values are stored as one projection, gate and up as another.
    pub fused_projections: bool,
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
    /// What the names of its tensors begin with; tensors of other names belong to what is not read.
    pub tensor_prefix: &'static str,
    /// Token a text begins with.
    pub bos: Option<u32>,
    /// Tokens that end a text.
    pub eos: Vec<u32>,
}

const FILE: &str = "config.json";

/// Layers at most.
const MAX_LAYERS: usize = 4096;

/// The rotary base of Gemma 3's layers with a window, where none is given.
const GEMMA3_WINDOW_THETA: f64 = 10_000.0;

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
            norms_less_one: false,
            post_norms: false,
            rope: Rope::new(500_000.0, head_dim, RopeScaling::None),
            window_rope: None,
            embedding_scale: None,
            attention_scale: None,
            attention_softcap: None,
            final_softcap: None,
            activation: Activation::Silu,
            tied_embeddings: false,
            fused_projections: false,
            qkv_bias: false,
            output_bias: false,
            mlp_bias: false,
            qk_norm: false,
            windows: vec![None; layers],
            tensor_prefix: "",
            bos: None,
            eos: Vec::new(),
        }
    }

    /// The rotary embedding of a layer.
    pub(crate) fn rope_of(&self, layer: usize) -> &Rope {
        self.window_rope.as_ref().filter(|_| self.window(layer).is_some()).unwrap_or(&self.rope)
    }

    /// The window of a layer.
    pub(crate) fn window(&self, layer: usize) -> Option<usize> {
        self.windows.get(layer).copied().flatten()
    }

    /// Reads `config.json`, or the metadata of a GGUF file.
    ///
    /// # Errors
    /// It is missing, damaged, contradicts itself or asks for what is not supported.
    pub fn read(files: &ModelFiles) -> Result<Self> {
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

/// In which layers a window slides: all but the last of every `pattern` layers.
fn sliding(layers: usize, pattern: usize, window: Option<usize>) -> Vec<Option<usize>> {
    (1..=layers).map(|number| window.filter(|_| !number.is_multiple_of(pattern))).collect()
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
