//! The configuration from the metadata of a GGUF file.

#[cfg(test)]
mod tests;

use elinvar::{Error, Result, kernels::rope::RopeScaling};

use super::{Activation, Architecture, Config, Divisors, GEMMA3_WINDOW_THETA, Rope, extent, rope::yarn_attention_factor, sliding};
use crate::gguf::{Gguf, Value, Vocabulary};

/// The tensor of frequency divisors: Llama 3's stretching of frequencies is in no key.
pub(crate) const DIVISORS: &str = "rope_freqs.weight";
/// LongRoPE's.
const SHORT: &str = "rope_factors_short.weight";
const LONG: &str = "rope_factors_long.weight";

/// Whether a tensor is part of the configuration.
pub(crate) fn is_configuration(tensor: &str) -> bool {
    [DIVISORS, SHORT, LONG].contains(&tensor)
}

/// Keys of every architecture that are read here, or change nothing. Any other might change the result.
const KNOWN: [&str; 24] = [
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
    "rope.scaling.attn_factor",
    "rope.scaling.yarn_beta_fast",
    "rope.scaling.yarn_beta_slow",
    "rope.scaling.yarn_ext_factor",
    "expert_count",
    "expert_used_count",
    "tensor_data_layout",
];

/// Keys of one architecture.
fn known(architecture: Architecture) -> &'static [&'static str] {
    match architecture {
        Architecture::Gemma2 => &["attn_logit_softcapping", "final_logit_softcapping", "attention.sliding_window_pattern"],
        Architecture::Gemma3 => &["final_logit_softcapping", "attention.sliding_window_pattern", "rope.freq_base_swa"],
        Architecture::Llama | Architecture::Mistral | Architecture::Qwen2 | Architecture::Qwen3 | Architecture::Phi3 => &[],
    }
}

/// The file and the prefix of its architecture's keys.
struct Keys<'a> {
    file: &'a Gguf,
    name: &'a str,
    architecture: Architecture,
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
        let known = |key: &str| KNOWN.contains(&key) || known(self.architecture).contains(&key);
        let own = |key: &str| key.strip_prefix(self.name).and_then(|key| key.strip_prefix('.')).is_some_and(|key| !known(key));
        match self.file.keys().find(|(key, _)| own(key)) {
            Some((key, _)) => Err(self.unsupported(key, "may change the result")),
            None => Ok(()),
        }
    }

    fn rope(&self, head_dim: usize, max_context: usize) -> Result<Rope> {
        let dimensions = match self.size("rope.dimension_count")? {
            None => head_dim,
            Some(n) if n > 0 && n <= head_dim && n.is_multiple_of(2) => n,
            Some(n) => return Err(self.file.reject(format!("key '{}' is {n} of heads of {head_dim}", self.key("rope.dimension_count")))),
        };
        // Gemma 3's converter always writes its base, which is not the default of the others.
        let theta = self.positive("rope.freq_base", (self.architecture != Architecture::Gemma3).then_some(10_000.0))?;
        let factor = self.file.float(&self.key("rope.scaling.factor"))?.filter(|&factor| factor != 0.0);
        let factor = factor.map(|_| self.positive("rope.scaling.factor", None)).transpose()?;
        let divisors = self.divisors(dimensions / 2)?;
        let by_context = matches!(divisors, Divisors::ByContext { .. });
        let kind = self.key("rope.scaling.type");
        let (scaling, sharpened) = match (self.file.text(&kind)?, factor) {
            (Some("none"), _) | (None | Some("linear"), None) => (RopeScaling::None, 1.0),
            (None | Some("linear"), Some(factor)) => (RopeScaling::Linear { factor: factor as f32 }, 1.0),
            (Some("yarn"), Some(factor)) => (self.yarn(factor, theta, max_context)?, yarn_attention_factor(factor, 1.0)),
            (Some("longrope"), _) if by_context => (RopeScaling::None, 1.0),
            (Some(other), _) => return Err(self.unsupported(&kind, &format!("is '{}'", other.escape_debug()))),
        };
        let attention_factor = (sharpened * self.positive("rope.scaling.attn_factor", Some(1.0))?) as f32;
        Ok(Rope { theta, dimensions, scaling, divisors, attention_factor })
    }

    fn yarn(&self, factor: f64, theta: f64, max_context: usize) -> Result<RopeScaling> {
        // It blends the frequencies wholly where this is 1, or left to the reader (below 0).
        let blend = self.key("rope.scaling.yarn_ext_factor");
        if self.file.float(&blend)?.is_some_and(|blend| blend >= 0.0 && blend != 1.0) {
            return Err(self.unsupported(&blend, "is not 1"));
        }
        let (beta_fast, beta_slow) =
            (self.positive("rope.scaling.yarn_beta_fast", Some(32.0))?, self.positive("rope.scaling.yarn_beta_slow", Some(1.0))?);
        if beta_fast <= beta_slow || theta <= 1.0 {
            return Err(self
                .file
                .reject(format!("YaRN from {beta_slow} to {beta_fast} turns of base {theta}: they must ascend, and the base exceed 1")));
        }
        let original = self.size("rope.scaling.original_context_length")?.unwrap_or(max_context);
        let original_max_position = extent("rope.scaling.original_context_length", Some(original)).map_err(|e| e.context(self.file.label()))? as u32;
        Ok(RopeScaling::Yarn {
            factor: factor as f32,
            beta_fast: beta_fast as f32,
            beta_slow: beta_slow as f32,
            original_max_position,
            truncate: true,
        })
    }

    fn divisors(&self, pairs: usize) -> Result<Divisors> {
        let [fixed, short, long] = [DIVISORS, SHORT, LONG].map(|name| self.read_divisors(name, pairs));
        match (fixed?, short?, long?) {
            (None, None, None) => Ok(Divisors::None),
            (Some(fixed), None, None) => Ok(Divisors::Fixed(fixed)),
            (None, Some(short), Some(long)) => {
                let original = self.extent("rope.scaling.original_context_length")?;
                Ok(Divisors::ByContext { original, short, long })
            }
            (Some(_), ..) | (None, Some(_), None) | (None, None, Some(_)) => {
                Err(self.file.reject(format!("it needs '{DIVISORS}', or both '{SHORT}' and '{LONG}', or none of them")))
            }
        }
    }

    fn read_divisors(&self, name: &str, pairs: usize) -> Result<Option<Vec<f32>>> {
        let Some(tensor) = self.file.tensor(name) else { return Ok(None) };
        if tensor.dims != [pairs] {
            return Err(self.file.reject(format!("tensor '{name}' has shape {:?}: {pairs} divisors expected", tensor.dims)));
        }
        let mut divisors = vec![0.0; pairs];
        tensor.kind.decode(self.file.data(tensor)?.bytes(), &mut divisors).map_err(|e| e.context(format!("tensor '{name}'")))?;
        match divisors.iter().find(|d| !(d.is_finite() && **d > 0.0)) {
            Some(divisor) => Err(self.file.reject(format!("tensor '{name}' has the divisor {divisor}: it must be positive"))),
            None => Ok(Some(divisors)),
        }
    }

    /// Phi-3 slides in every layer if it has a window; Gemma in all but every second (Gemma 2, over 4096 keys unless the file says otherwise) or sixth, or
    /// as the file says; the others nowhere.
    fn windows(&self, layers: usize, max_context: usize) -> Result<Vec<Option<usize>>> {
        const WINDOW: &str = "attention.sliding_window";
        let given = self.size(WINDOW)?.filter(|&window| window > 0);
        match self.architecture {
            Architecture::Llama | Architecture::Mistral | Architecture::Qwen2 | Architecture::Qwen3 => match given {
                Some(window) if window < max_context => Err(self.unsupported(&self.key(WINDOW), "is shorter than the context")),
                Some(_) | None => Ok(vec![None; layers]),
            },
            Architecture::Phi3 => Ok(vec![given; layers]),
            Architecture::Gemma2 => self.pattern(layers, 2, given.or(Some(4096))),
            Architecture::Gemma3 => self.pattern(layers, 6, given),
        }
    }

    /// A window in each layer that the file names, or in all but the last of as many as it says.
    fn pattern(&self, layers: usize, default: usize, window: Option<usize>) -> Result<Vec<Option<usize>>> {
        let key = self.key("attention.sliding_window_pattern");
        if !matches!(self.file.value(&key)?, Some(Value::Array(_))) {
            return Ok(sliding(layers, self.size("attention.sliding_window_pattern")?.unwrap_or(default), window));
        }
        let slides = self.file.list(&key, "an array of truth values", |value| match value {
            Value::Bool(slides) => Some(slides),
            Value::Unsigned(_) | Value::Signed(_) | Value::Float(_) | Value::Text(_) | Value::Array(_) => None,
        })?;
        match slides.unwrap_or_default() {
            slides if slides.len() == layers => Ok(slides.into_iter().map(|slides| window.filter(|_| slides)).collect()),
            slides => Err(self.file.reject(format!("key '{key}' has {} entries for {layers} layers", slides.len()))),
        }
    }

    /// The factor of Gemma's scores: no key has it. The largest model of each generation, known by its layers, divides by the root of another number than
    /// the elements of a head.
    fn attention_scale(&self, layers: usize, hidden_size: usize, heads: usize, head_dim: usize) -> Option<f32> {
        let largest = match self.architecture {
            Architecture::Gemma2 => 46,
            Architecture::Gemma3 => 62,
            Architecture::Llama | Architecture::Mistral | Architecture::Qwen2 | Architecture::Qwen3 | Architecture::Phi3 => return None,
        };
        let scalar = if layers == largest { hidden_size / heads } else { head_dim };
        Some((scalar as f64).powf(-0.5) as f32)
    }

    fn softcap(&self, key: &str, default: Option<f64>) -> Result<Option<f32>> {
        match self.file.float(&self.key(key))?.or(default) {
            None | Some(0.0) => Ok(None),
            given => self.positive(key, given).map(|cap| Some(cap as f32)),
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
    let architecture = Architecture::find_gguf(name).map_err(|e| e.context(file.label()))?;
    let keys = Keys { file, name, architecture };
    keys.check_keys()?;
    if keys.size("expert_count")?.is_some_and(|experts| experts > 0) {
        return Err(keys.unsupported(&keys.key("expert_count"), "asks for a mixture of experts"));
    }
    let max_context = keys.extent("context_length")?;
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
    let is_gemma = architecture.is_gemma();
    let rope = keys.rope(head_dim, max_context)?;
    let window_rope = match architecture {
        Architecture::Gemma3 => Some(Rope::new(keys.positive("rope.freq_base_swa", Some(GEMMA3_WINDOW_THETA))?, rope.dimensions, RopeScaling::None)),
        Architecture::Llama | Architecture::Mistral | Architecture::Qwen2 | Architecture::Qwen3 | Architecture::Gemma2 | Architecture::Phi3 => None,
    };
    let softcaps = (architecture == Architecture::Gemma2).then_some((50.0, 30.0));
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
        norms_less_one: false,
        post_norms: is_gemma,
        rope,
        window_rope,
        embedding_scale: is_gemma.then(|| (hidden_size as f64).sqrt() as f32),
        attention_scale: keys.attention_scale(layers, hidden_size, heads, head_dim),
        attention_softcap: keys.softcap("attn_logit_softcapping", softcaps.map(|(scores, _)| scores))?,
        final_softcap: keys.softcap("final_logit_softcapping", softcaps.map(|(_, logits)| logits))?,
        activation: if is_gemma { Activation::GeluTanh } else { Activation::Silu },
        tied_embeddings: !has("output.weight"),
        fused_projections: architecture == Architecture::Phi3,
        qkv_bias: has("blk.0.attn_q.bias"),
        output_bias: has("blk.0.attn_output.bias"),
        mlp_bias: has("blk.0.ffn_up.bias"),
        qk_norm: matches!(architecture, Architecture::Qwen3 | Architecture::Gemma3),
        windows: keys.windows(layers, max_context)?,
        tensor_prefix: "",
        bos,
        eos,
    })
}
