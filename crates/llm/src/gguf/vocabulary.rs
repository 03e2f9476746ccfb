//! The vocabulary as the metadata have it.

use elinvar::{Error, Result};

use super::{Gguf, value::Value};

/// The tokens of a file, and those with a meaning of their own.
pub(crate) struct Vocabulary<'a> {
    pub(crate) tokens: Vec<&'a str>,
    pub(crate) kinds: Vec<TokenKind>,
    pub(crate) bos: Option<u32>,
    pub(crate) eos: Option<u32>,
    /// All that end a text.
    pub(crate) ends: Vec<u32>,
}

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenKind {
    Normal,
    Unknown,
    Control,
    UserDefined,
    Unused,
    Byte,
}

impl TokenKind {
    fn find(value: Value<'_>) -> Option<Self> {
        Some(match value {
            Value::Signed(1) | Value::Unsigned(1) => Self::Normal,
            Value::Signed(2) | Value::Unsigned(2) => Self::Unknown,
            Value::Signed(3) | Value::Unsigned(3) => Self::Control,
            Value::Signed(4) | Value::Unsigned(4) => Self::UserDefined,
            Value::Signed(5) | Value::Unsigned(5) => Self::Unused,
            Value::Signed(6) | Value::Unsigned(6) => Self::Byte,
            Value::Signed(_) | Value::Unsigned(_) | Value::Float(_) | Value::Bool(_) | Value::Text(_) | Value::Array(_) => return None,
        })
    }
}

const TOKENS: &str = "tokenizer.ggml.tokens";
const KINDS: &str = "tokenizer.ggml.token_type";

/// Texts of tokens that end a turn. Files mark only one as the end, and some none of a chat's.
const ENDS: [&str; 14] = [
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
];

impl<'a> Vocabulary<'a> {
    /// Reads it.
    ///
    /// # Errors
    /// It is missing, or its parts contradict each other.
    pub(crate) fn read(file: &'a Gguf) -> Result<Self> {
        let tokens = file.texts(TOKENS)?.ok_or_else(|| file.reject(format!("key '{TOKENS}' is missing: the file has no vocabulary")))?;
        let kinds = file.list(KINDS, "an array of token types, 1 to 6", TokenKind::find)?.unwrap_or_else(|| vec![TokenKind::Normal; tokens.len()]);
        if kinds.len() != tokens.len() {
            return Err(file.reject(format!("key '{KINDS}' has {} values for {} tokens", kinds.len(), tokens.len())));
        }
        let id = |name: &str| token_id(file, name, tokens.len());
        let eos = id("eos")?;
        let mut ends: Vec<u32> = [eos, id("eot")?, id("eom")?].into_iter().flatten().collect();
        ends.extend((0..).zip(&tokens).filter(|(_, text)| ENDS.contains(text)).map(|(id, _)| id));
        ends.sort_unstable();
        ends.dedup();
        Ok(Self { bos: id("bos")?, eos, ends, tokens, kinds })
    }

    /// How many tokens, without reading them.
    pub(crate) fn count(file: &Gguf) -> Result<Option<usize>> {
        match file.value(TOKENS)? {
            Some(Value::Array(array)) => Ok(Some(array.len)),
            Some(_) => Err(Error::invalid_data(format!("{}: key '{TOKENS}' is no array", file.label()))),
            None => Ok(None),
        }
    }

    /// The id that the file gives to a token with a meaning.
    pub(crate) fn id(&self, file: &Gguf, name: &str) -> Result<Option<u32>> {
        token_id(file, name, self.tokens.len())
    }

    /// The text of a token.
    pub(crate) fn text(&self, id: Option<u32>) -> Option<String> {
        self.tokens.get(id? as usize).map(|text| (*text).to_owned())
    }
}

fn token_id(file: &Gguf, name: &str, tokens: usize) -> Result<Option<u32>> {
    let key = format!("tokenizer.ggml.{name}_token_id");
    let Some(id) = file.unsigned(&key)? else { return Ok(None) };
    let inside = u32::try_from(id).ok().filter(|&id| (id as usize) < tokens);
    inside.map(Some).ok_or_else(|| file.reject(format!("key '{key}' is {id}, outside the vocabulary of {tokens} tokens")))
}
