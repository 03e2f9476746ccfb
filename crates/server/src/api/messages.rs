//! `/v1/messages` and `/v1/messages/count_tokens`, as Anthropic has them.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    ApiError, TextJob,
    chat::{self, Ending},
    fields::{Fields, wrong},
    form::Form,
    format,
    settings::{Settings, stops},
    tools::Tools,
};
use crate::models::{Models, Served};

pub(super) fn read(fields: &Fields<'_>, model: Arc<Served>) -> Result<TextJob, ApiError> {
    fields.required("max_tokens")?;
    let mut settings = Settings::read(fields, &model, &["max_tokens"], usize::MAX)?;
    if settings.choices != 1 {
        return Err(fields.reject("n", "a message is one answer"));
    }
    let stop_sequences = stops(fields, "stop_sequences")?;
    settings.stop.clone_from(&stop_sequences);
    let config = fields.nested("output_config")?;
    let format = config.as_ref().map_or(Ok(None), |config| config.nested("format"))?;
    if let Some(format) = &format
        && let Some(grammar) = format::grammar(format)?
    {
        settings.set_grammar("output_config.format", grammar);
    }
    let Asked { messages, tools, ending } = asked(fields, &model)?;
    chat::conversation(fields, model, ("messages", &messages), ending, tools, settings, Form::Message { stop_sequences })
}

/// How many tokens a conversation has.
pub(super) fn count(fields: &Fields<'_>, models: &Models) -> Result<Value, ApiError> {
    let (model, _) = models.find(fields.string("model")?)?;
    let Asked { messages, tools, ending } = asked(fields, model)?;
    let text = chat::render(fields, model, ("messages", &messages), ending, tools.as_ref())?;
    Ok(json!({"input_tokens": model.tokenizer.encode_rendered(&text)?.len()}))
}

struct Asked {
    messages: Vec<Value>,
    tools: Option<Tools>,
    ending: Ending,
}

fn asked(fields: &Fields<'_>, model: &Served) -> Result<Asked, ApiError> {
    let mut messages = Vec::new();
    if fields.get("system").is_some() {
        messages.push(json!({"role": "system", "content": text(fields, "system")?}));
    }
    let given = fields.required("messages")?;
    for (index, value) in given.as_array().ok_or_else(|| wrong("messages", given, "an array of messages"))?.iter().enumerate() {
        turns(value, format!("messages[{index}]"), &mut messages)?;
    }
    // An answer whose beginning is given goes on with it.
    let ending = match messages.last() {
        Some(last) if last["role"] == "assistant" && last.get("tool_calls").is_none() => Ending::Continued,
        Some(_) | None => Ending::NewTurn,
    };
    Ok(Asked { messages, tools: Tools::read_anthropic(fields, model)?, ending })
}

/// A message as turns: what came of tools is a turn of its own.
fn turns(value: &Value, path: String, turns: &mut Vec<Value>) -> Result<(), ApiError> {
    let fields = Fields::object(value, path)?;
    let role = match fields.string("role")? {
        Some(role @ ("user" | "assistant" | "system")) => role,
        Some(_) | None => return Err(fields.reject("role", "user, assistant or system expected")),
    };
    let Value::Array(blocks) = fields.required("content")? else {
        turns.push(json!({"role": role, "content": text(&fields, "content")?}));
        return Ok(());
    };
    let (mut content, mut thinking, mut calls, mut has_results) = (String::new(), String::new(), Vec::new(), false);
    for (index, block) in blocks.iter().enumerate() {
        let block = Fields::object(block, fields.path(&format!("content[{index}]")))?;
        let required = |name: &str| block.string(name)?.ok_or_else(|| block.reject(name, "missing, and required"));
        match (block.string("type")?, role) {
            (Some("text"), _) => content.push_str(required("text")?),
            (Some("thinking"), "assistant") => thinking.push_str(required("thinking")?),
            (Some("redacted_thinking"), "assistant") => {}
            (Some("tool_use"), "assistant") => {
                let function = json!({"name": required("name")?, "arguments": block.required("input")?});
                calls.push(json!({"id": required("id")?, "type": "function", "function": function}));
            }
            (Some("tool_result"), "user") => {
                let content = if block.get("content").is_some() { text(&block, "content")? } else { String::new() };
                turns.push(json!({"role": "tool", "tool_call_id": required("tool_use_id")?, "content": content}));
                has_results = true;
            }
            (Some(_) | None, _) => return Err(block.reject("type", format!("not supported in a message of role {role}"))),
        }
    }
    if content.is_empty() && calls.is_empty() && has_results {
        return Ok(());
    }
    let mut turn = json!({"role": role, "content": content});
    if !thinking.is_empty() {
        turn["reasoning_content"] = thinking.into();
    }
    if !calls.is_empty() {
        turn["tool_calls"] = calls.into();
    }
    turns.push(turn);
    Ok(())
}

/// A text, or blocks of text.
fn text(fields: &Fields<'_>, name: &str) -> Result<String, ApiError> {
    chat::text(fields, name)?.ok_or_else(|| fields.reject(name, "missing, and required"))
}
