//! What an encoder is: a model of BERT's family, which gives a vector for each token of a whole text.

use elinvar::{Error, Result};
use serde::Deserialize;

use super::{FILE, MAX_LAYERS, extent};
use crate::{
    files::ModelFiles,
    gguf::{Gguf, Vocabulary},
};

/// The function between the two layers of a feed-forward network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EncoderActivation {
    /// GELU with the error function.
    Gelu,
    /// GELU in its tanh form.
    GeluTanh,
    /// The larger of x and 0.
    Relu,
}

/// The shape of an encoder and the constants of its forward pass.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct EncoderConfig {
    pub(crate) vocab_size: usize,
    pub(crate) hidden_size: usize,
    pub(crate) intermediate_size: usize,
    pub(crate) layers: usize,
    pub(crate) heads: usize,
    /// Rows of the position embedding: tokens of a text at most.
    pub(crate) max_positions: usize,
    /// Rows of the token-type embedding.
    pub(crate) types: usize,
    pub(crate) norm_epsilon: f32,
    pub(crate) activation: EncoderActivation,
}

/// The classes in transformers that have the encoder: what they have besides is not read.
pub(super) const CLASSES: [&str; 4] = ["BertModel", "BertForMaskedLM", "BertForPreTraining", "BertForSequenceClassification"];

/// The architecture's name in GGUF files.
const GGUF_NAME: &str = "bert";

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
    max_position_embeddings: Option<usize>,
    type_vocab_size: Option<usize>,
    layer_norm_eps: Option<f64>,
    hidden_act: Option<String>,
    position_embedding_type: Option<String>,
    is_decoder: Option<bool>,
}

impl EncoderConfig {
    /// Reads `config.json`, or the metadata of a GGUF file.
    ///
    /// # Errors
    /// It is missing or damaged, contradicts itself, or describes no encoder that is supported.
    pub(crate) fn read(files: &ModelFiles) -> Result<Self> {
        if let ModelFiles::Gguf(file) = files {
            return Self::read_gguf(file);
        }
        let raw: Option<Raw> = files.read_json(FILE)?;
        let raw = raw.ok_or_else(|| Error::io(format!("{} is missing: it describes the model", files.label(FILE))))?;
        raw.resolve().map_err(|e| e.context(files.label(FILE)))
    }

    /// Whether a GGUF file has an encoder.
    pub(crate) fn is_in(file: &Gguf) -> Result<bool> {
        Ok(file.text("general.architecture")? == Some(GGUF_NAME))
    }

    fn read_gguf(file: &Gguf) -> Result<Self> {
        if !Self::is_in(file)? {
            let found = file.text("general.architecture")?.unwrap_or("(none)");
            return Err(no_encoder(found, GGUF_NAME).context(file.label()));
        }
        let key = |name: &str| format!("{GGUF_NAME}.{name}");
        let own = key("");
        let unknown = |name: &&str| name.strip_prefix(&own).is_some_and(|name| !KNOWN.contains(&name));
        if let Some(name) = file.keys().map(|(name, _)| name).find(unknown) {
            return Err(Error::unsupported(format!("{}: key '{}' is not known, and might change the result", file.label(), name.escape_debug())));
        }
        if file.bool(&key("attention.causal"))? == Some(true) {
            return Err(Error::unsupported(format!("{}: attention of earlier tokens alone: that of all tokens is supported", file.label())));
        }
        let size = |name: &str| -> Result<usize> {
            let found = file.unsigned(&key(name))?.map(|n| usize::try_from(n).unwrap_or(usize::MAX));
            extent(&key(name), found).map_err(|e| e.context(file.label()))
        };
        let rows = |name: &str| file.tensor(name).and_then(|info| info.dims.first().copied());
        let vocab_size = Vocabulary::count(file)?.or_else(|| rows("token_embd.weight"));
        let config = Self {
            vocab_size: extent("tokenizer.ggml.tokens", vocab_size).map_err(|e| e.context(file.label()))?,
            hidden_size: size("embedding_length")?,
            intermediate_size: size("feed_forward_length")?,
            layers: size("block_count")?,
            heads: size("attention.head_count")?,
            max_positions: size("context_length")?,
            types: rows("token_types.weight").unwrap_or(1),
            norm_epsilon: file.float(&key("attention.layer_norm_epsilon"))?.unwrap_or(1e-12) as f32,
            activation: EncoderActivation::Gelu,
        };
        config.check().map_err(|e| e.context(file.label()))
    }

    fn check(self) -> Result<Self> {
        let Self { hidden_size, heads, layers, norm_epsilon, .. } = self;
        if !hidden_size.is_multiple_of(heads) {
            return Err(Error::invalid_data(format!("a width of {hidden_size} cannot be shared by {heads} heads evenly")));
        }
        if layers > MAX_LAYERS {
            return Err(Error::invalid_data(format!("{layers} layers: at most {MAX_LAYERS} are supported")));
        }
        if !norm_epsilon.is_finite() || norm_epsilon < 0.0 {
            return Err(Error::invalid_data(format!("'layer_norm_eps' is {norm_epsilon}: it must not be negative")));
        }
        Ok(self)
    }
}

/// Keys of a GGUF file that are read, here or for the pooling, or change nothing.
const KNOWN: [&str; 10] = [
    "vocab_size",
    "context_length",
    "embedding_length",
    "block_count",
    "feed_forward_length",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.layer_norm_epsilon",
    "attention.causal",
    "pooling_type",
];

impl Raw {
    fn resolve(self) -> Result<EncoderConfig> {
        let class = self.architectures.as_deref().and_then(<[_]>::first);
        let is_known = class.map_or(self.model_type.as_deref() == Some("bert"), |class| CLASSES.contains(&class.as_str()));
        if !is_known {
            return Err(no_encoder(class.or(self.model_type.as_ref()).map_or("(none)", String::as_str), &CLASSES.join(", ")));
        }
        if let Some(kind) = self.position_embedding_type.filter(|kind| kind != "absolute") {
            return Err(Error::unsupported(format!("'position_embedding_type' is '{}': absolute is supported", kind.escape_debug())));
        }
        if self.is_decoder == Some(true) {
            return Err(Error::unsupported("'is_decoder' is set: attention of all tokens is supported"));
        }
        let activation = match self.hidden_act.as_deref() {
            None | Some("gelu") => EncoderActivation::Gelu,
            Some("gelu_new" | "gelu_pytorch_tanh") => EncoderActivation::GeluTanh,
            Some("relu") => EncoderActivation::Relu,
            Some(other) => {
                let message = format!("activation '{}' is not supported: gelu, gelu_new, gelu_pytorch_tanh and relu are", other.escape_debug());
                return Err(Error::unsupported(message));
            }
        };
        let config = EncoderConfig {
            vocab_size: extent("vocab_size", self.vocab_size)?,
            hidden_size: extent("hidden_size", self.hidden_size)?,
            intermediate_size: extent("intermediate_size", self.intermediate_size)?,
            layers: extent("num_hidden_layers", self.num_hidden_layers)?,
            heads: extent("num_attention_heads", self.num_attention_heads)?,
            max_positions: extent("max_position_embeddings", self.max_position_embeddings)?,
            types: extent("type_vocab_size", self.type_vocab_size.or(Some(2)))?,
            norm_epsilon: self.layer_norm_eps.unwrap_or(1e-12) as f32,
            activation,
        };
        config.check()
    }
}

fn no_encoder(found: &str, supported: &str) -> Error {
    Error::unsupported(format!("architecture '{}' is no encoder that is supported: {supported}", found.escape_debug()))
}
