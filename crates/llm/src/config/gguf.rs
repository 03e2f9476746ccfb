//! The configuration from the metadata of a GGUF file.

#[cfg(test)]
mod tests;

use elinvar::{Error, Result, kernels::rope::RopeScaling};

use super::{Architecture, Config, Rope, extent};
use crate::gguf::{Gguf, Value, Vocabulary};

/// The tensor of frequency divisors: Llama 3's stretching of frequencies is in no key.
pub(crate) const DIVISORS: &str = "rope_freqs.weight";

/// Keys of an architecture that are read here, or change nothing. Any other might change the result.
const KNOWN: [&str; 20] = [
    "vocab_size",
    "context_length",
    "embedding_length",
    "block_count",
    "feed_forward_length",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.layer_norm_rms_epsilon",
    "attention.key_length",
    "attention.value_length",
    "attention.sliding_window",
    "rope.dimension_count",
    "rope.freq_base",
    "rope.scaling.type",
    "rope.scaling.factor",
    "rope.scaling.finetuned",
    "rope.scaling.original_context_length",
    "expert_count",
    "expert_used_count",
    "tensor_data_layout",
];

/// The file and the prefix of its architecture's keys.
struct Keys<'a> {
    file: &'a Gguf,
    name: &'a str,
}

impl Keys<'_> {
    fn key(&self, key: &str) -> String {
        format!("{}.{key}", self.name)
    }

    fn size(&self, key: &str) -> Result<Option<usize>> {
        let key = self.key(key);
        // An array has the size of each layer; one for all is supported.
        if !matches!(self.file.value(&key)?, Some(Value::Array(_))) {
            return Ok(self.file.unsigned(&key)?.map(|n| usize::try_from(n).unwrap_or(usize::MAX)));
        }
        let sizes = self.file.list(&key, "an array of sizes", |value| match value {
            Value::Unsigned(n) => usize::try_from(n).ok(),
            Value::Signed(n) => usize::try_from(n).ok(),
            Value::Float(_) | Value::Bool(_) | Value::Text(_) | Value::Array(_) => None,
        })?;
        let sizes = sizes.unwrap_or_default();
        match sizes.first() {
            Some(&first) if sizes.iter().all(|&size| size == first) => Ok(Some(first)),
            Some(_) | None => Err(self.unsupported(&key, "differs by layer")),
        }
    }

    fn extent(&self, key: &str) -> Result<usize> {
        extent(&self.key(key), self.size(key)?).map_err(|e| e.context(self.file.label()))
    }

    fn positive(&self, key: &str, default: Option<f64>) -> Result<f64> {
        let full = self.key(key);
        let value = self.file.float(&full)?.or(default).ok_or_else(|| self.file.reject(format!("key '{full}' is missing")))?;
        if value.is_finite() && value > 0.0 { Ok(value) } else { Err(self.file.reject(format!("key '{full}' is {value}: it must be positive"))) }
    }

    fn unsupported(&self, key: &str, what: &str) -> Error {
        Error::unsupported(format!("{}: key '{key}' {what}, which is not supported", self.file.label()))
    }

    fn check_keys(&self) -> Result<()> {
        let own = |key: &str| key.strip_prefix(self.name).and_then(|key| key.strip_prefix('.')).is_some_and(|key| !KNOWN.contains(&key));
        match self.file.keys().find(|(key, _)| own(key)) {
            Some((key, _)) => Err(self.unsupported(key, "may change the result")),
            None => Ok(()),
        }
    }

    fn rope(&self, head_dim: usize) -> Result<Rope> {
        let dimensions = match self.size("rope.dimension_count")? {
            None => head_dim,
            Some(n) if n > 0 && n <= head_dim && n.is_multiple_of(2) => n,
            Some(n) => return Err(self.file.reject(format!("key '{}' is {n} of heads of {head_dim}", self.key("rope.dimension_count")))),
        };
        let factor = self.file.float(&self.key("rope.scaling.factor"))?.filter(|&factor| factor != 0.0);
        let kind = self.key("rope.scaling.type");
        let scaling = match (self.file.text(&kind)?, factor) {
            (Some("none"), _) | (None | Some("linear"), None) => RopeScaling::None,
            (None | Some("linear"), Some(_)) => RopeScaling::Linear { factor: self.positive("rope.scaling.factor", None)? as f32 },
            (Some(other), _) => return Err(self.unsupported(&kind, &format!("is '{}'", other.escape_debug()))),
        };
        Ok(Rope { theta: self.positive("rope.freq_base", Some(10_000.0))?, dimensions, scaling, divisors: self.divisors(dimensions / 2)? })
    }

    fn divisors(&self, pairs: usize) -> Result<Option<Vec<f32>>> {
        let Some(tensor) = self.file.tensor(DIVISORS) else { return Ok(None) };
        if tensor.dims != [pairs] {
            return Err(self.file.reject(format!("tensor '{DIVISORS}' has shape {:?}: {pairs} divisors expected", tensor.dims)));
        }
        let mut divisors = vec![0.0; pairs];
        tensor.kind.decode(self.file.data(tensor)?.bytes(), &mut divisors).map_err(|e| e.context(format!("tensor '{DIVISORS}'")))?;
        match divisors.iter().find(|d| !(d.is_finite() && **d > 0.0)) {
            Some(divisor) => Err(self.file.reject(format!("tensor '{DIVISORS}' has the divisor {divisor}: it must be positive"))),
            None => Ok(Some(divisors)),
        }
    }
}

/// Reads the metadata.
///
/// # Errors
/// They contradict themselves, or ask for what is not supported.
pub(crate) fn read(file: &Gguf) -> Result<Config> {
    const ARCHITECTURE: &str = "general.architecture";
    let name = file.text(ARCHITECTURE)?.ok_or_else(|| file.reject(format!("key '{ARCHITECTURE}' is missing: the file describes no model")))?;
    let architecture = match name {
        "llama" => Architecture::Llama,
        "qwen2" => Architecture::Qwen2,
        "qwen3" => Architecture::Qwen3,
        other => {
            let (label, other) = (file.label(), other.escape_debug());
            return Err(Error::unsupported(format!("{label}: architecture '{other}' is not supported: llama, qwen2 and qwen3 are")));
        }
    };
    let keys = Keys { file, name };
    keys.check_keys()?;
    if keys.size("expert_count")?.is_some_and(|experts| experts > 0) {
        return Err(keys.unsupported(&keys.key("expert_count"), "asks for a mixture of experts"));
    }
    let max_context = keys.extent("context_length")?;
    if keys.size("attention.sliding_window")?.is_some_and(|window| window > 0 && window < max_context) {
        return Err(keys.unsupported(&keys.key("attention.sliding_window"), "is shorter than the context"));
    }
    let (hidden_size, heads, layers) = (keys.extent("embedding_length")?, keys.extent("attention.head_count")?, keys.extent("block_count")?);
    let kv_heads = keys.size("attention.head_count_kv")?.unwrap_or(heads);
    let head_dim = keys.size("attention.key_length")?.unwrap_or(hidden_size / heads);
    if kv_heads == 0 || !heads.is_multiple_of(kv_heads) {
        return Err(file.reject(format!("{heads} query heads cannot share {kv_heads} key and value heads evenly")));
    }
    if keys.size("attention.value_length")?.is_some_and(|values| values != head_dim) {
        return Err(keys.unsupported(&keys.key("attention.value_length"), "differs from the keys' length"));
    }
    extent(&keys.key("attention.key_length"), Some(head_dim)).map_err(|e| e.context(file.label()))?;
    if layers > super::MAX_LAYERS {
        return Err(file.reject(format!("{layers} layers: at most {} are supported", super::MAX_LAYERS)));
    }
    let vocabulary = Vocabulary::count(file)?;
    let (bos, eos) = match vocabulary {
        Some(_) => Vocabulary::read(file).map(|v| (v.bos, v.ends))?,
        None => (None, Vec::new()),
    };
    let has = |name: &str| file.tensor(name).is_some();
    Ok(Config {
        architecture,
        vocab_size: extent("tokenizer.ggml.tokens", vocabulary.map_or_else(|| keys.size("vocab_size"), |count| Ok(Some(count)))?)?,
        hidden_size,
        intermediate_size: keys.extent("feed_forward_length")?,
        layers,
        heads,
        kv_heads,
        head_dim,
        max_context,
        norm_epsilon: keys.positive("attention.layer_norm_rms_epsilon", None)? as f32,
        rope: keys.rope(head_dim)?,
        tied_embeddings: !has("output.weight"),
        qkv_bias: has("blk.0.attn_q.bias"),
        output_bias: has("blk.0.attn_output.bias"),
        mlp_bias: has("blk.0.ffn_up.bias"),
        qk_norm: architecture == Architecture::Qwen3,
        windows: vec![None; layers],
        bos,
        eos,
    })
}
