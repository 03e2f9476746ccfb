use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use elinvar::{Error, ErrorKind, Result};
use serde::{Deserialize, de::IgnoredAny};

use super::gguf;
use crate::{files::ModelFiles, gguf::Gguf};

const TOKENIZER: &str = "tokenizer.json";
const CONFIG: &str = "tokenizer_config.json";
const TEMPLATE: &str = "chat_template.jinja";

/// `tokenizer.json` with the choices of `tokenizer_config.json`, or what the metadata of a GGUF file describe. Clones share it.
#[derive(Clone)]
pub struct Tokenizer {
    inner: Arc<tokenizers::Tokenizer>,
    bos: Option<String>,
    eos: Option<String>,
    add_bos: Option<bool>,
    add_eos: bool,
    chat_template: Option<String>,
    is_byte_level: bool,
}

#[derive(Default, Deserialize)]
struct Raw {
    bos_token: Option<Token>,
    eos_token: Option<Token>,
    add_bos_token: Option<bool>,
    chat_template: Option<Templates>,
}

/// A token's text, bare or with its properties.
#[derive(Deserialize)]
#[serde(untagged)]
enum Token {
    Text(String),
    Described { content: String },
}

impl Token {
    fn into_text(self) -> String {
        match self {
            Token::Text(text) | Token::Described { content: text } => text,
        }
    }
}

/// One template, or several by name.
#[derive(Deserialize)]
#[serde(untagged)]
enum Templates {
    One(String),
    Named(Vec<NamedTemplate>),
}

#[derive(Deserialize)]
struct NamedTemplate {
    name: String,
    template: String,
}

impl Templates {
    /// The only one, or the one called `default`.
    fn into_default(self) -> Option<String> {
        match self {
            Templates::One(template) => Some(template),
            Templates::Named(all) => all.into_iter().find(|t| t.name == "default").map(|t| t.template),
        }
    }
}

impl Tokenizer {
    /// Reads `tokenizer.json` and, where they are there, `tokenizer_config.json` and `chat_template.jinja`; or the metadata of a GGUF file.
    ///
    /// # Errors
    /// No `tokenizer.json`, a damaged file, or a kind of tokenizer in a GGUF file that is not supported.
    pub fn open(files: &ModelFiles) -> Result<Self> {
        if let ModelFiles::Gguf(file) = files {
            return Self::from_gguf(file);
        }
        let bytes = files.read(TOKENIZER)?;
        let bytes =
            bytes.ok_or_else(|| Error::io(format!("{} is missing: other tokenizer files must be converted to it", files.label(TOKENIZER))))?;
        let inner = load(&bytes).map_err(|e| Error::with_source(ErrorKind::InvalidData, files.label(TOKENIZER), one_line(&e)))?;
        let raw: Raw = files.read_json(CONFIG)?.unwrap_or_default();
        let template = match files.read(TEMPLATE)? {
            Some(text) => {
                Some(String::from_utf8(text.into_owned()).map_err(|_| Error::invalid_data(format!("{} is not UTF-8", files.label(TEMPLATE))))?)
            }
            None => raw.chat_template.and_then(Templates::into_default),
        };
        Ok(Self {
            is_byte_level: is_byte_level(&inner),
            inner: Arc::new(inner),
            bos: raw.bos_token.map(Token::into_text),
            eos: raw.eos_token.map(Token::into_text),
            add_bos: raw.add_bos_token,
            add_eos: false,
            chat_template: template,
        })
    }

    fn from_gguf(file: &Gguf) -> Result<Self> {
        let mut parts = None;
        // The library may panic on what contradicts itself.
        guarded(|| {
            parts = Some(gguf::read(file));
            Ok(())
        })
        .map_err(|e| file.reject(one_line(&e)))?;
        let parts = parts.ok_or_else(|| Error::internal("no tokenizer was read"))??;
        let gguf::Parts { inner, bos, eos, add_bos, add_eos, chat_template } = parts;
        Ok(Self { is_byte_level: is_byte_level(&inner), inner: Arc::new(inner), bos, eos, add_bos: Some(add_bos), add_eos, chat_template })
    }

    /// The text of a `tokenizer.json`.
    ///
    /// # Errors
    /// The library cannot write it.
    pub(crate) fn to_json(&self) -> Result<String> {
        self.inner.to_string(true).map_err(|e| Error::with_source(ErrorKind::Internal, "the tokenizer cannot be written", one_line(&e)))
    }

    /// Whether texts end with the token for that.
    pub(crate) fn adds_eos(&self) -> bool {
        self.add_eos
    }

    /// The ids of a text to be continued, with the special tokens the model expects around it.
    ///
    /// # Errors
    /// The text cannot be expressed in the vocabulary.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        let mut ids = self.encode_with(text, true)?;
        if let (Some(add), Some(bos)) = (self.add_bos, self.bos.as_deref().and_then(|t| self.id(t))) {
            match (add, ids.first() == Some(&bos)) {
                (true, false) => ids.insert(0, bos),
                (false, true) => drop(ids.remove(0)),
                _ => {}
            }
        }
        if self.add_eos {
            ids.extend(self.eos.as_deref().and_then(|t| self.id(t)));
        }
        Ok(ids)
    }

    /// The ids of a rendered chat template, which spells out its special tokens.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`].
    pub fn encode_rendered(&self, text: &str) -> Result<Vec<u32>> {
        self.encode_with(text, false)
    }

    fn encode_with(&self, text: &str, special: bool) -> Result<Vec<u32>> {
        let encoding = guarded(|| self.inner.encode_fast(text, special));
        encoding.map(|e| e.get_ids().to_vec()).map_err(|e| Error::with_source(ErrorKind::InvalidData, "the text cannot be tokenised", one_line(&e)))
    }

    /// The text of ids, without special tokens. Bytes that are no UTF-8 become U+FFFD.
    ///
    /// # Errors
    /// The tokenizer's decoder fails.
    pub fn decode(&self, ids: &[u32]) -> Result<String> {
        guarded(|| self.inner.decode(ids, true)).map_err(|e| Error::with_source(ErrorKind::InvalidData, "the tokens cannot be decoded", one_line(&e)))
    }

    /// A token's id.
    pub fn id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    /// An id's token.
    pub fn token(&self, id: u32) -> Option<String> {
        self.inner.id_to_token(id)
    }

    /// The bytes that an id stands for in the middle of a text, which may be a part of a character; none for a special token.
    pub fn token_bytes(&self, id: u32) -> Vec<u8> {
        let Some(token) = self.token(id).filter(|_| !self.is_silent(id)) else { return Vec::new() };
        if self.inner.get_added_vocabulary().get_added_tokens_decoder().contains_key(&id) {
            return token.into_bytes();
        }
        if self.is_byte_level {
            return token.chars().flat_map(byte_of).collect();
        }
        let byte = token.strip_prefix("<0x").and_then(|rest| rest.strip_suffix('>')).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        byte.map_or_else(|| token.replace('\u{2581}', " ").into_bytes(), |byte| vec![byte])
    }

    /// Whether an id has no text: a special token, or none of this vocabulary.
    pub(crate) fn is_silent(&self, id: u32) -> bool {
        self.token(id).is_none_or(|token| self.inner.get_added_vocabulary().is_special_token(&token))
    }

    /// Number of tokens, added ones included.
    pub fn vocab_size(&self) -> usize {
        self.inner.get_vocab_size(true)
    }

    /// The token a text begins with, as `tokenizer_config.json` names it.
    pub fn bos(&self) -> Option<&str> {
        self.bos.as_deref()
    }

    /// The token that ends a text, as `tokenizer_config.json` names it.
    pub fn eos(&self) -> Option<&str> {
        self.eos.as_deref()
    }

    /// The source of the chat template, if the model has one.
    pub fn chat_template(&self) -> Option<&str> {
        self.chat_template.as_deref()
    }
}

/// The bytes that a character of a byte-level vocabulary stands for: printable ones for themselves, the others, in their order, from U+0100 on.
fn byte_of(character: char) -> Vec<u8> {
    let is_printable = |byte: &u8| matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    let code = u32::from(character);
    let byte = match u8::try_from(code) {
        Ok(byte) => Some(byte).filter(is_printable),
        Err(_) => (0..=u8::MAX).filter(|byte| !is_printable(byte)).nth(code as usize - 0x100),
    };
    byte.map_or_else(|| character.to_string().into_bytes(), |byte| vec![byte])
}

/// Whether tokens are written in the characters that stand for bytes.
fn is_byte_level(inner: &tokenizers::Tokenizer) -> bool {
    inner.get_decoder().is_some_and(|decoder| serde_json::to_string(decoder).is_ok_and(|text| text.contains("ByteLevel")))
}

/// Words of which each thread keeps the tokens: a word of 256 letters takes some 9 KiB.
pub(super) const KEPT_WORDS: usize = 1024;

fn load(bytes: &[u8]) -> Result<tokenizers::Tokenizer, tokenizers::Error> {
    serde_json::from_slice::<IgnoredAny>(bytes)?;
    guarded(|| {
        let mut inner = tokenizers::Tokenizer::from_bytes(bytes)?;
        let mut model = inner.get_model().clone();
        model.resize_cache(KEPT_WORDS);
        inner.with_model(model);
        // Both are meant for batches of training; a prompt is neither cut nor padded.
        inner.with_truncation(None)?.with_padding(None);
        Ok(inner)
    })
}

/// Runs the library, which panics on some damaged files.
fn guarded<T>(body: impl FnOnce() -> Result<T, tokenizers::Error>) -> Result<T, tokenizers::Error> {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| Err("the tokenizer's parts contradict each other".into()))
}

/// A library's message without line breaks.
pub(crate) fn one_line(error: &dyn std::fmt::Display) -> String {
    error.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
}
