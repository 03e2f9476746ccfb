//! Tokenizers from the metadata of GGUF files: byte-level BPE, SentencePiece's BPE, and WordPiece.

mod pre;
#[cfg(test)]
mod tests;
mod word_piece;
pub(crate) mod write;

use elinvar::{Error, ErrorKind, Result};
use serde::de::DeserializeOwned;
use serde_json::{Value as Json, json};
use tokenizers::{
    AddedToken, DecoderWrapper, NormalizerWrapper, PreTokenizerWrapper,
    models::bpe::{BPE, Merges, Vocab},
};

use super::tokenizer::KEPT_WORDS;
use crate::gguf::{Gguf, TokenKind, Value, Vocabulary};

/// What a file says about its tokenizer.
pub(super) struct Parts {
    pub(super) inner: tokenizers::Tokenizer,
    pub(super) bos: Option<String>,
    pub(super) eos: Option<String>,
    pub(super) add_bos: bool,
    pub(super) add_eos: bool,
    pub(super) chat_template: Option<String>,
}

const MODEL: &str = "tokenizer.ggml.model";
const PRE: &str = "tokenizer.ggml.pre";
const MERGES: &str = "tokenizer.ggml.merges";
const SCORES: &str = "tokenizer.ggml.scores";

/// Builds it.
///
/// # Errors
/// A kind of tokenizer that is not supported, or parts that contradict each other.
pub(super) fn read(file: &Gguf) -> Result<Parts> {
    let vocabulary = Vocabulary::read(file)?;
    let model = file.text(MODEL)?.ok_or_else(|| file.reject(format!("key '{MODEL}' is missing")))?;
    let flag = |name: &str| file.bool(&format!("tokenizer.ggml.{name}"));
    let (mut inner, add_bos) = match model {
        "gpt2" => byte_level(file, &vocabulary)?,
        "llama" => (sentence_piece(file, &vocabulary, flag("add_space_prefix")?.unwrap_or(true))?, true),
        "bert" => (word_piece::build(file, &vocabulary)?, true),
        other => {
            let other = other.escape_debug();
            let message = format!(
                "{}: tokenizer model '{other}' is not supported: llama (SentencePiece), gpt2 (byte-level BPE) and bert (WordPiece) are",
                file.label()
            );
            return Err(Error::unsupported(message));
        }
    };
    inner.add_tokens(added(&vocabulary)).map_err(|e| library(file, &e))?;
    let [bos, eos] = if model == "bert" { word_piece::around(file, &vocabulary)? } else { [vocabulary.bos, vocabulary.eos] };
    let ends_with = if model == "bert" { flag("add_sep_token")?.unwrap_or(true) } else { flag("add_eos_token")?.unwrap_or(false) };
    Ok(Parts {
        inner,
        bos: vocabulary.text(bos),
        eos: vocabulary.text(eos),
        add_bos: flag("add_bos_token")?.unwrap_or(add_bos) && bos.is_some(),
        add_eos: ends_with,
        chat_template: file.text("tokenizer.chat_template")?.map(str::to_owned),
    })
}

fn library(file: &Gguf, error: &dyn std::fmt::Display) -> Error {
    file.reject(format!("the tokenizer's parts contradict each other: {}", super::tokenizer::one_line(error)))
}

/// A part of the library's, by its description.
fn part<T: DeserializeOwned>(description: Json) -> Result<Option<T>> {
    serde_json::from_value(description).map(Some).map_err(|e| Error::with_source(ErrorKind::Internal, "a part of the tokenizer", e))
}

/// Tokens that are found in a text before it is cut: those without text of their own, which are special, and those that users defined.
fn added(vocabulary: &Vocabulary<'_>) -> Vec<AddedToken> {
    let token = |(id, (text, kind)): (u32, (&&str, &TokenKind))| {
        let special = matches!(kind, TokenKind::Control | TokenKind::Unknown) || vocabulary.bos == Some(id) || vocabulary.ends.contains(&id);
        let found = (special || *kind == TokenKind::UserDefined) && !text.is_empty();
        found.then(|| AddedToken::from(*text, special).normalized(false))
    };
    (0..).zip(vocabulary.tokens.iter().zip(&vocabulary.kinds)).filter_map(token).collect()
}

/// Ids by text; of equal texts the last, as llama.cpp has it.
fn ids(vocabulary: &Vocabulary<'_>) -> Vocab {
    (0..).zip(&vocabulary.tokens).map(|(id, text)| ((*text).to_owned(), id)).collect()
}

/// The tokenizer, and whether texts begin with the token for that.
fn byte_level(file: &Gguf, vocabulary: &Vocabulary<'_>) -> Result<(tokenizers::Tokenizer, bool)> {
    let name = file.text(PRE)?.ok_or_else(|| file.reject(format!("key '{PRE}' is missing, by which texts are cut: convert the model again")))?;
    let pre = pre::find(name).ok_or_else(|| {
        let name = name.escape_debug();
        Error::unsupported(format!("{}: key '{PRE}' is '{name}', which is not supported: texts would be cut at the wrong places", file.label()))
    })?;
    let merges = file.texts(MERGES)?.ok_or_else(|| file.reject(format!("key '{MERGES}' is missing")))?;
    let pair = |merge: &str| {
        let (left, right) =
            merge.split_once(' ').ok_or_else(|| file.reject(format!("key '{MERGES}': '{}' is no pair of tokens", merge.escape_debug())))?;
        Ok((left.to_owned(), right.to_owned()))
    };
    let merges = merges.into_iter().map(pair).collect::<Result<Merges>>()?;
    let builder = BPE::builder().cache_capacity(KEPT_WORDS).vocab_and_merges(ids(vocabulary), merges).ignore_merges(pre.ignore_merges);
    let mut inner = tokenizers::Tokenizer::new(builder.build().map_err(|e| library(file, &e))?);
    let split = |pattern: &&str| json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false});
    let bytes = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false});
    let steps: Vec<_> = pre.patterns.iter().map(split).chain([bytes.clone()]).collect();
    inner.with_pre_tokenizer(part::<PreTokenizerWrapper>(json!({"type": "Sequence", "pretokenizers": steps}))?);
    inner.with_decoder(part::<DecoderWrapper>(bytes)?);
    Ok((inner, pre.add_bos))
}

/// `▁` for spaces, one before the text if `prefix`, bytes as `<0xNN>`.
fn sentence_piece(file: &Gguf, vocabulary: &Vocabulary<'_>, prefix: bool) -> Result<tokenizers::Tokenizer> {
    let ids = ids(vocabulary);
    let merges = merges_of_scores(file, vocabulary, &ids)?;
    let mut builder = BPE::builder().cache_capacity(KEPT_WORDS).vocab_and_merges(ids, merges).byte_fallback(true).fuse_unk(true);
    let unknown = vocabulary.kinds.iter().position(|kind| *kind == TokenKind::Unknown).and_then(|id| vocabulary.tokens.get(id));
    if let Some(unknown) = unknown {
        builder = builder.unk_token((*unknown).to_owned());
    }
    let mut inner = tokenizers::Tokenizer::new(builder.build().map_err(|e| library(file, &e))?);
    let (mut before, mut after) = (Vec::new(), vec![json!({"type": "Replace", "pattern": {"String": "▁"}, "content": " "})]);
    after.extend([json!({"type": "ByteFallback"}), json!({"type": "Fuse"})]);
    if prefix {
        before.push(json!({"type": "Prepend", "prepend": "▁"}));
        after.push(json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}));
    }
    before.push(json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"}));
    let normalizer = part::<NormalizerWrapper>(json!({"type": "Sequence", "normalizers": before}))?;
    inner.with_normalizer(normalizer).map_err(|e| library(file, &e))?;
    inner.with_decoder(part::<DecoderWrapper>(json!({"type": "Sequence", "decoders": after}))?);
    Ok(inner)
}

/// SentencePiece joins the two neighbours whose joint token has the highest score. As merges: every split of a token into two, by the score of the
/// token.
fn merges_of_scores(file: &Gguf, vocabulary: &Vocabulary<'_>, ids: &Vocab) -> Result<Merges> {
    /// The number of splits grows with the square of a token's length.
    const MAX_LENGTH: usize = 1024;
    /// Bytes of all splits for each byte of the tokens. Real vocabularies have fewer than ten.
    const MAX_SPLIT_BYTES: usize = 32;
    let scores = file.list(SCORES, "an array of scores", |value| match value {
        Value::Float(score) => Some(score),
        Value::Signed(score) => Some(score as f64),
        Value::Unsigned(_) | Value::Bool(_) | Value::Text(_) | Value::Array(_) => None,
    })?;
    let scores = scores.filter(|scores| scores.len() == vocabulary.tokens.len());
    let scores = scores.ok_or_else(|| file.reject(format!("key '{SCORES}' must have a score for each of {} tokens", vocabulary.tokens.len())))?;
    let mut room = MAX_SPLIT_BYTES * vocabulary.tokens.iter().map(|text| text.len()).sum::<usize>();
    let mut merges = Vec::new();
    for ((id, text), (score, kind)) in vocabulary.tokens.iter().enumerate().zip(scores.iter().zip(&vocabulary.kinds)) {
        if !matches!(kind, TokenKind::Normal | TokenKind::UserDefined | TokenKind::Unused) {
            continue;
        }
        if text.len() > MAX_LENGTH {
            return Err(file.reject(format!("token {id} has {} bytes: at most {MAX_LENGTH} are supported", text.len())));
        }
        for (at, _) in text.char_indices().skip(1) {
            let (left, right) = text.split_at(at);
            if let (Some(&l), Some(&r)) = (ids.get(left), ids.get(right)) {
                room = room
                    .checked_sub(text.len())
                    .ok_or_else(|| file.reject(format!("token {id} and those before it can be split in more ways than tokens of a text have")))?;
                merges.push((*score, id, l, r, left, right));
            }
        }
    }
    merges.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then((a.1, a.2, a.3).cmp(&(b.1, b.2, b.3))));
    Ok(merges.into_iter().map(|(.., left, right)| (left.to_owned(), right.to_owned())).collect())
}
