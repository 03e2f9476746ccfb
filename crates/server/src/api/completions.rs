//! `/v1/completions`.

use std::sync::Arc;

use serde_json::Value;

use super::{
    ApiError, TextJob, check_length,
    fields::Fields,
    form::{Form, Head},
    settings::{MAX_CHOICES, Settings},
};
use crate::models::Served;

const MAX_LOGPROBS: i64 = 20;
/// As OpenAI has it.
const MAX_TOKENS: usize = 16;

pub(super) fn read(fields: &Fields<'_>, model: Arc<Served>) -> Result<TextJob, ApiError> {
    if fields.get("suffix").is_some() {
        return Err(fields.reject("suffix", "not supported"));
    }
    let prompts = prompts(fields.required("prompt")?, &model)?;
    let mut settings = Settings::read(fields, &model, &["max_tokens"], MAX_TOKENS)?;
    let count = fields.integer("logprobs", 0..=MAX_LOGPROBS)?.map(|count| count as usize);
    settings.set_logprobs(count);
    if fields.integer("best_of", 1..=i64::MAX)?.is_some_and(|best| best != settings.choices as i64) {
        return Err(fields.reject("best_of", "not supported, other than as many as n"));
    }
    let echo = fields.boolean("echo")?.unwrap_or(false);
    if echo && count.is_some() {
        return Err(fields.reject("echo", "not supported together with logprobs"));
    }
    if prompts.len() * settings.choices > MAX_CHOICES {
        return Err(
            fields.reject("prompt", format!("{} prompts with n = {}: at most {MAX_CHOICES} answers a request", prompts.len(), settings.choices))
        );
    }
    let mut echoes = Vec::new();
    for prompt in prompts.iter().filter(|_| echo) {
        let text = model.tokenizer.decode(prompt)?;
        echoes.extend(std::iter::repeat_n(text, settings.choices));
    }
    let (seed, stream) = (settings.seed, settings.stream);
    let work = settings.work(&model, &prompts, None)?;
    Ok(TextJob { model, work, form: Form::Completion { echoes }, head: Head::new("cmpl", seed), stream })
}

/// The tokens of each prompt: a text, tokens, or an array of either.
fn prompts(value: &Value, model: &Served) -> Result<Vec<Vec<u32>>, ApiError> {
    const EXPECTED: &str = "a string, an array of strings, an array of token ids, or an array of such arrays expected";
    let one = |value: &Value, path: &str| {
        let tokens = match value {
            Value::String(text) => model.tokenizer.encode(text).map_err(|error| ApiError::field(path, format!("{path}: {error}")))?,
            Value::Array(ids) => {
                let ids: Option<Vec<_>> = ids.iter().map(|id| id.as_u64().filter(|&id| id < model.vocabulary as u64).map(|id| id as u32)).collect();
                ids.ok_or_else(|| ApiError::field(path, format!("{path}: token ids below {} expected", model.vocabulary)))?
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => return Err(ApiError::field(path, format!("{path}: {EXPECTED}"))),
        };
        if tokens.is_empty() {
            return Err(ApiError::field(path, format!("{path}: empty, and the tokenizer begins texts with no token")));
        }
        check_length(path, &tokens, model)?;
        Ok(tokens)
    };
    match value {
        Value::Array(items) if items.is_empty() => Err(ApiError::field("prompt", format!("prompt: {EXPECTED}"))),
        Value::Array(items) if items.len() > MAX_CHOICES && !items[0].is_number() => {
            Err(ApiError::field("prompt", format!("{} prompts: at most {MAX_CHOICES} answers a request", items.len())))
        }
        Value::Array(items) if !items[0].is_number() => {
            items.iter().enumerate().map(|(index, item)| one(item, &format!("prompt[{index}]"))).collect()
        }
        _ => Ok(vec![one(value, "prompt")?]),
    }
}
