//! `/v1/chat/completions`.

use std::{sync::Arc, time::SystemTime};

use elinvar_llm::ChatOptions;
use serde_json::{Map, Value, json};

use super::{
    ApiError, TextJob, check_length,
    fields::{Fields, wrong},
    form::{Form, Head},
    settings::Settings,
    tools::Tools,
};
use crate::models::Served;

const MAX_TOP_LOGPROBS: i64 = 20;

pub(super) fn read(fields: &Fields<'_>, model: Arc<Served>) -> Result<TextJob, ApiError> {
    for name in ["functions", "function_call"] {
        if fields.get(name).is_some() {
            return Err(fields.reject(name, "no longer supported: use tools"));
        }
    }
    let messages = fields.required("messages")?;
    let messages = messages.as_array().ok_or_else(|| wrong("messages", messages, "an array of messages"))?;
    let messages = messages.iter().enumerate().map(|(index, message)| turn(message, format!("messages[{index}]"))).collect::<Result<Vec<_>, _>>()?;
    let mut settings = Settings::read(fields, &model, &["max_tokens", "max_completion_tokens"], usize::MAX)?;
    let top = fields.integer("top_logprobs", 0..=MAX_TOP_LOGPROBS)?;
    let reports = fields.boolean("logprobs")?.unwrap_or(false);
    if top.is_some() && !reports {
        return Err(fields.reject("top_logprobs", "needs logprobs to be true"));
    }
    settings.set_logprobs(reports.then(|| top.unwrap_or(0) as usize));
    let tools = Tools::read(fields, &model, "function")?;
    conversation(fields, model, "messages", &messages, tools, settings, Form::Chat)
}

/// The next turn of a conversation, which `param` has.
pub(super) fn conversation(
    fields: &Fields<'_>,
    model: Arc<Served>,
    param: &str,
    messages: &[Value],
    tools: Option<Tools>,
    mut settings: Settings,
    form: Form,
) -> Result<TextJob, ApiError> {
    if messages.is_empty() {
        return Err(fields.reject(param, "empty, and at least one is required"));
    }
    let options = ChatOptions { add_generation_prompt: true, variables: variables(fields)?, now: SystemTime::now() };
    let prompt = model.template.render_json(messages, tools.as_ref().map_or(&[], |tools| &tools.shown), &options);
    let prompt = prompt.and_then(|prompt| model.tokenizer.encode_rendered(&prompt)).map_err(|error| ApiError::field(param, error.to_string()))?;
    check_length(param, &prompt, &model)?;
    settings.stop.extend_from_slice(&model.turn_ends);
    if let Some(grammar) = tools.as_ref().and_then(Tools::grammar) {
        settings.set_grammar("tools", grammar);
    }
    let head = Head::new(form.prefix(), settings.seed);
    let stream = settings.stream;
    let work = settings.work(&model, &[prompt], tools.map(|tools| (tools.dialect, tools.functions.into_iter().map(|(name, _)| name).collect())))?;
    Ok(TextJob { model, work, form, head, stream })
}

/// Variables for the template.
fn variables(fields: &Fields<'_>) -> Result<Vec<(String, String)>, ApiError> {
    const NAME: &str = "chat_template_kwargs";
    let Some(value) = fields.get(NAME) else { return Ok(Vec::new()) };
    let Value::Object(map) = value else { return Err(wrong(NAME, value, "an object")) };
    let text = |(name, value): (&String, &Value)| match value {
        Value::String(text) => Ok((name.clone(), text.clone())),
        Value::Bool(_) | Value::Number(_) => Ok((name.clone(), value.to_string())),
        Value::Null | Value::Array(_) | Value::Object(_) => Err(wrong(&format!("{NAME}.{name}"), value, "a string, a number, true or false")),
    };
    map.iter().map(text).collect()
}

/// A turn as templates expect it: its content as one text.
pub(super) fn turn(value: &Value, path: String) -> Result<Value, ApiError> {
    let fields = Fields::object(value, path)?;
    let role = match fields.string("role")? {
        Some(role @ ("system" | "user" | "assistant" | "tool")) => role,
        Some("developer") => "system",
        Some(_) => return Err(fields.reject("role", "system, developer, user, assistant or tool expected")),
        None => return Err(fields.reject("role", "missing, and required")),
    };
    let content = content(&fields)?;
    let mut turn = Map::new();
    turn.insert("role".to_owned(), role.into());
    let calls = fields.array("tool_calls")?.unwrap_or_default();
    let calls =
        calls.iter().enumerate().map(|(index, value)| call(value, fields.path(&format!("tool_calls[{index}]")))).collect::<Result<Vec<_>, _>>()?;
    match content {
        Some(content) => drop(turn.insert("content".to_owned(), content.into())),
        None if role == "assistant" && !calls.is_empty() => drop(turn.insert("content".to_owned(), "".into())),
        None => return Err(fields.reject("content", "missing, and required")),
    }
    if !calls.is_empty() {
        turn.insert("tool_calls".to_owned(), calls.into());
    }
    for name in ["name", "tool_call_id"] {
        if let Some(text) = fields.string(name)? {
            turn.insert(name.to_owned(), text.into());
        }
    }
    Ok(Value::Object(turn))
}

/// A call of an earlier turn; templates expect its arguments as an object.
fn call(value: &Value, path: String) -> Result<Value, ApiError> {
    let fields = Fields::object(value, path)?;
    let function = fields.nested("function")?.ok_or_else(|| fields.reject("function", "missing, and required"))?;
    let name = function.string("name")?.ok_or_else(|| function.reject("name", "missing, and required"))?;
    let arguments = match function.get("arguments") {
        None => json!({}),
        Some(Value::String(text)) => serde_json::from_str(text).map_err(|_| function.reject("arguments", "a string of JSON expected"))?,
        Some(other) => other.clone(),
    };
    Ok(json!({"id": fields.string("id")?, "type": "function", "function": {"name": name, "arguments": arguments}}))
}

fn content(fields: &Fields<'_>) -> Result<Option<String>, ApiError> {
    match fields.get("content") {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(Value::Array(parts)) => {
            let part = |(index, part): (usize, &Value)| {
                let part = Fields::object(part, fields.path(&format!("content[{index}]")))?;
                match part.string("type")? {
                    Some("text" | "input_text" | "output_text") => {
                        part.string("text")?.map(str::to_owned).ok_or_else(|| part.reject("text", "missing, and required"))
                    }
                    Some(_) | None => Err(part.reject("type", "only \"text\" is supported")),
                }
            };
            parts.iter().enumerate().map(part).collect::<Result<String, _>>().map(Some)
        }
        Some(other) => Err(wrong(&fields.path("content"), other, "a string or an array of parts")),
    }
}
