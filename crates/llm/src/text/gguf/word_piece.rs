//! WordPiece, as BERT has it: of each word the longest piece from where the last ended. Pieces that begin a word begin with `▁`.

use elinvar::Result;
use serde_json::json;
use tokenizers::{DecoderWrapper, NormalizerWrapper, PreTokenizerWrapper, models::wordpiece::WordPiece};

use super::{ids, library, part};
use crate::gguf::{Gguf, Vocabulary};

/// Characters of a word at most, as in BERT: a longer one is unknown.
const MAX_CHARACTERS: usize = 100;

/// Builds it.
pub(super) fn build(file: &Gguf, vocabulary: &Vocabulary<'_>) -> Result<tokenizers::Tokenizer> {
    let unknown = vocabulary.text(Some(named(file, vocabulary, "unknown")?));
    let builder = WordPiece::builder().vocab(ids(vocabulary)).unk_token(unknown.unwrap_or_default()).continuing_subword_prefix(String::new());
    let model = builder.max_input_chars_per_word(MAX_CHARACTERS + 1).build().map_err(|e| library(file, &e))?;
    let mut inner = tokenizers::Tokenizer::new(model);
    let normalizes = |name: &str| file.bool(&format!("tokenizer.ggml.normalizer.{name}"));
    let lowercase = normalizes("lowercase")?.unwrap_or(true);
    let normalizer = part::<NormalizerWrapper>(json!({
        "type": "BertNormalizer",
        "clean_text": true,
        "handle_chinese_chars": true,
        "strip_accents": normalizes("strip_accents")?.unwrap_or(lowercase),
        "lowercase": lowercase,
    }))?;
    inner.with_normalizer(normalizer).map_err(|e| library(file, &e))?;
    let marks = json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": false});
    inner.with_pre_tokenizer(part::<PreTokenizerWrapper>(json!({"type": "Sequence", "pretokenizers": [{"type": "BertPreTokenizer"}, marks]}))?);
    inner.with_decoder(part::<DecoderWrapper>(marks)?);
    Ok(inner)
}

/// The tokens that a text stands between.
pub(super) fn around(file: &Gguf, vocabulary: &Vocabulary<'_>) -> Result<[Option<u32>; 2]> {
    let known = |id: Option<u32>, name: &str| match id {
        Some(id) => Ok(Some(id)),
        None => named(file, vocabulary, name).map(Some),
    };
    // The key is spelt so.
    Ok([known(vocabulary.bos, "cls")?, known(vocabulary.eos, "seperator")?])
}

/// The id that the file must give to a token with a meaning.
fn named(file: &Gguf, vocabulary: &Vocabulary<'_>, name: &str) -> Result<u32> {
    vocabulary.id(file, name)?.ok_or_else(|| file.reject(format!("key 'tokenizer.ggml.{name}_token_id' is missing")))
}
