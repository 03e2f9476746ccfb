//! `/v1/responses`.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::{
    ApiError, TextJob,
    chat::{self, Ending},
    fields::{Fields, wrong},
    form::Form,
    format,
    settings::Settings,
    tools::Tools,
};
use crate::models::Served;

pub(super) fn read(fields: &Fields<'_>, model: Arc<Served>) -> Result<TextJob, ApiError> {
    for name in ["previous_response_id", "conversation", "prompt"] {
        if fields.get(name).is_some() {
            return Err(fields.reject(name, "nothing is stored here: send the whole conversation as input"));
        }
    }
    if fields.boolean("background")?.unwrap_or(false) {
        return Err(fields.reject("background", "not supported"));
    }
    let mut messages = Vec::new();
    messages.extend(fields.string("instructions")?.map(|text| json!({"role": "system", "content": text})));
    match fields.required("input")? {
        Value::String(text) => messages.push(json!({"role": "user", "content": text})),
        Value::Array(items) => {
            for (index, value) in items.iter().enumerate() {
                messages.push(item(value, format!("input[{index}]"))?);
            }
        }
        other => return Err(wrong("input", other, "a string or an array of items")),
    }
    let mut settings = Settings::read(fields, &model, &["max_output_tokens"], usize::MAX)?;
    if settings.choices != 1 {
        return Err(fields.reject("n", "a response is one answer"));
    }
    if let Some(format) = fields.nested("text")?.map(|text| text.nested("format")).transpose()?.flatten()
        && let Some(grammar) = format::grammar(&format)?
    {
        settings.set_grammar("text.format", grammar);
    }
    let tools = Tools::read(fields, &model, "")?;
    let form = Form::Response { repeated: repeated(fields) };
    chat::conversation(fields, model, ("input", &messages), Ending::NewTurn, tools, settings, form)
}

/// What of the request is in the answer.
fn repeated(fields: &Fields<'_>) -> Map<String, Value> {
    let defaults = [
        ("instructions", Value::Null),
        ("max_output_tokens", Value::Null),
        ("metadata", json!({})),
        ("parallel_tool_calls", json!(true)),
        ("temperature", Value::Null),
        ("text", json!({"format": {"type": "text"}})),
        ("tool_choice", json!("auto")),
        ("tools", json!([])),
        ("top_p", Value::Null),
    ];
    let mut map: Map<_, _> = defaults.into_iter().map(|(name, default)| (name.to_owned(), fields.get(name).cloned().unwrap_or(default))).collect();
    map.insert("previous_response_id".to_owned(), Value::Null);
    map.insert("store".to_owned(), false.into());
    map
}

/// An item of the input as a turn.
fn item(value: &Value, path: String) -> Result<Value, ApiError> {
    let fields = Fields::object(value, path.clone())?;
    let required = |name: &str| fields.string(name)?.ok_or_else(|| fields.reject(name, "missing, and required"));
    match fields.string("type")? {
        None | Some("message") => chat::turn(value, path),
        Some("function_call") => {
            let function = json!({"name": required("name")?, "arguments": required("arguments")?});
            let call = json!({"id": required("call_id")?, "type": "function", "function": function});
            chat::turn(&json!({"role": "assistant", "tool_calls": [call]}), path)
        }
        Some("function_call_output") => Ok(json!({"role": "tool", "tool_call_id": required("call_id")?, "content": required("output")?})),
        Some(_) => Err(fields.reject("type", "message, function_call or function_call_output expected")),
    }
}
