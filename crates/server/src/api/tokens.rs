//! `/tokenize` and `/detokenize`, as llama.cpp has them.

use serde_json::{Value, json};

use super::{ApiError, fields::Fields};
use crate::models::Models;

pub(super) fn tokenize(fields: &Fields<'_>, models: &Models) -> Result<Value, ApiError> {
    let (model, _) = models.find(fields.string("model")?)?;
    let content = fields.string("content")?.ok_or_else(|| fields.reject("content", "missing, and required"))?;
    let is_special = fields.boolean("add_special")?.unwrap_or(false);
    let tokens = if is_special { model.tokenizer.encode(content) } else { model.tokenizer.encode_rendered(content) }?;
    if !fields.boolean("with_pieces")?.unwrap_or(false) {
        return Ok(json!({"tokens": tokens}));
    }
    let piece = |&id: &u32| {
        // Bytes that are a part of a character are given as numbers.
        let piece = String::from_utf8(model.tokenizer.token_bytes(id)).map_or_else(|error| json!(error.into_bytes()), Value::from);
        json!({"id": id, "piece": piece})
    };
    Ok(json!({"tokens": tokens.iter().map(piece).collect::<Vec<_>>()}))
}

pub(super) fn detokenize(fields: &Fields<'_>, models: &Models) -> Result<Value, ApiError> {
    let (model, _) = models.find(fields.string("model")?)?;
    let expected = || fields.reject("tokens", format!("an array of token ids below {} expected", model.vocabulary));
    let tokens = fields.array("tokens")?.ok_or_else(expected)?;
    let tokens: Option<Vec<_>> = tokens.iter().map(|id| id.as_u64().filter(|&id| id < model.vocabulary as u64).map(|id| id as u32)).collect();
    Ok(json!({"content": model.tokenizer.decode(&tokens.ok_or_else(expected)?)?}))
}
