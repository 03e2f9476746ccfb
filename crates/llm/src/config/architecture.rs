//! The architectures, and what they are called.

use elinvar::{Error, Result};

use super::encoder;

/// The architectures, which differ in biases, norms, attention windows, activations and defaults.
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
    /// `Gemma2ForCausalLM`: norms before and after attention and feed-forward network, soft caps, a sliding window in every other layer.
    Gemma2,
    /// `Gemma3ForCausalLM`, and the text part of `Gemma3ForConditionalGeneration`: norms as Gemma 2 and of each query and key head, five layers with a
    /// sliding window and a rotary base of their own to one without.
    Gemma3,
    /// `Phi3ForCausalLM`: projections of one input stored as one.
    Phi3,
}

/// The class that has a Gemma 3 with vision.
pub(super) const GEMMA3_WITH_VISION: &str = "Gemma3ForConditionalGeneration";

impl Architecture {
    /// Each with its class in transformers, its `model_type`, and its name in GGUF files.
    const ALL: [(Architecture, &'static str, &'static str, Option<&'static str>); 7] = [
        (Architecture::Llama, "LlamaForCausalLM", "llama", Some("llama")),
        (Architecture::Mistral, "MistralForCausalLM", "mistral", None),
        (Architecture::Qwen2, "Qwen2ForCausalLM", "qwen2", Some("qwen2")),
        (Architecture::Qwen3, "Qwen3ForCausalLM", "qwen3", Some("qwen3")),
        (Architecture::Gemma2, "Gemma2ForCausalLM", "gemma2", Some("gemma2")),
        (Architecture::Gemma3, "Gemma3ForCausalLM", "gemma3_text", Some("gemma3")),
        (Architecture::Phi3, "Phi3ForCausalLM", "phi3", Some("phi3")),
    ];

    /// The name in `architectures`.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(a, ..)| *a == self).map_or("", |(_, name, ..)| name)
    }

    /// Whether it is one of Google's Gemmas, which share most of what sets them apart.
    pub(crate) fn is_gemma(self) -> bool {
        matches!(self, Architecture::Gemma2 | Architecture::Gemma3)
    }

    pub(super) fn find(architectures: Option<&[String]>, model_type: Option<&str>) -> Result<Self> {
        let first = architectures.and_then(<[_]>::first).map(String::as_str);
        let matches = |(_, name, kind, _): &&(_, &str, &str, _)| first.map_or(model_type == Some(*kind), |first| first == *name);
        Self::ALL.iter().find(matches).map(|(a, ..)| *a).ok_or_else(|| {
            if let Some(class) = first.filter(|class| encoder::CLASSES.contains(class)) {
                return Error::unsupported(format!(
                    "architecture '{class}' is an encoder, which generates no text: `elinvar embed` computes embeddings with it"
                ));
            }
            let found = first.or(model_type).unwrap_or("(none)");
            let names: Vec<_> = Self::ALL.iter().map(|(_, name, ..)| *name).collect();
            Error::unsupported(format!("architecture '{}' is not supported: {} are", found.escape_debug(), names.join(", ")))
        })
    }

    pub(super) fn find_gguf(found: &str) -> Result<Self> {
        Self::ALL.iter().find(|(.., name)| *name == Some(found)).map(|(a, ..)| *a).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().filter_map(|(.., name)| *name).collect();
            Error::unsupported(format!("architecture '{}' is not supported: {} are", found.escape_debug(), names.join(", ")))
        })
    }
}
