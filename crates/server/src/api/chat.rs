//! `/v1/chat/completions`.

use std::{
    collections::hash_map::RandomState,
    hash::{BuildHasher, Hasher},
    sync::Arc,
    time::SystemTime,
};

use elinvar_llm::ChatOptions;
use serde_json::{Map, Value, json};

use super::{
    ApiError, TextJob, check_length,
    fields::{Fields, wrong},
    form::{Form, Head},
    settings::Settings,
    tools::Tools,
};
use crate::models::{Models, Served};

const MAX_TOP_LOGPROBS: i64 = 20;

pub(super) fn read(fields: &Fields<'_>, model: Arc<Served>) -> Result<TextJob, ApiError> {
    for name in ["functions", "function_call"] {
        if fields.get(name).is_some() {
            return Err(fields.reject(name, "no longer supported: use tools"));
        }
    }
    let messages = turns(fields)?;
    let mut settings = Settings::read(fields, &model, &["max_tokens", "max_completion_tokens"], usize::MAX)?;
    let top = fields.integer("top_logprobs", 0..=MAX_TOP_LOGPROBS)?;
    let reports = fields.boolean("logprobs")?.unwrap_or(false);
    if top.is_some() && !reports {
        return Err(fields.reject("top_logprobs", "needs logprobs to be true"));
    }
    settings.set_logprobs(reports.then(|| top.unwrap_or(0) as usize));
    let tools = Tools::read(fields, &model, "function")?;
    conversation(fields, model, ("messages", &messages), ending(fields)?, tools, settings, Form::Chat)
}

/// The text that a model is given of a conversation.
pub(super) fn template(fields: &Fields<'_>, models: &Models) -> Result<Value, ApiError> {
    let (model, _) = models.find(fields.string("model")?)?;
    let tools = Tools::read(fields, model, "function")?;
    Ok(json!({"prompt": render(fields, model, ("messages", &turns(fields)?), ending(fields)?, tools.as_ref())?}))
}

/// What the text of a conversation ends with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// The beginning of the assistant's turn.
    NewTurn,
    /// The last turn.
    Nothing,
    /// The content of the last turn, with which the answer goes on.
    Continued,
}

fn ending(fields: &Fields<'_>) -> Result<Ending, ApiError> {
    const CONTINUED: &str = "continue_final_message";
    let begins = fields.boolean("add_generation_prompt")?;
    match (fields.boolean(CONTINUED)?.unwrap_or(false), begins) {
        (true, Some(true)) => Err(fields.reject(CONTINUED, "not possible together with add_generation_prompt")),
        (true, Some(false) | None) => Ok(Ending::Continued),
        (false, Some(false)) => Ok(Ending::Nothing),
        (false, Some(true) | None) => Ok(Ending::NewTurn),
    }
}

fn turns(fields: &Fields<'_>) -> Result<Vec<Value>, ApiError> {
    let messages = fields.required("messages")?;
    let messages = messages.as_array().ok_or_else(|| wrong("messages", messages, "an array of messages"))?;
    messages.iter().enumerate().map(|(index, message)| turn(message, format!("messages[{index}]"))).collect()
}

/// The text of a conversation: turns, and the field that has them.
pub(super) fn render(
    fields: &Fields<'_>,
    model: &Served,
    (param, messages): (&str, &[Value]),
    ending: Ending,
    tools: Option<&Tools>,
) -> Result<String, ApiError> {
    let Some(last) = messages.last() else { return Err(fields.reject(param, "empty, and at least one is required")) };
    let options = ChatOptions { add_generation_prompt: ending == Ending::NewTurn, variables: variables(fields)?, now: SystemTime::now() };
    let render = |messages: &[Value]| {
        let text = model.template.render_json(messages, tools.map_or(&[], |tools| &tools.shown), &options);
        text.map_err(|error| ApiError::field(param, error.to_string()))
    };
    if ending != Ending::Continued {
        return render(messages);
    }
    // Templates put something after a turn: what stands behind a mark that nothing else contains is cut.
    let content = last["content"].as_str().unwrap_or_default().trim_end();
    if last["role"] != "assistant" || content.is_empty() {
        return Err(fields.reject(param, "the last message cannot be continued: one of the assistant's with content expected"));
    }
    let mark = format!("{:016x}", RandomState::new().build_hasher().finish());
    let mut marked = messages.to_vec();
    marked[messages.len() - 1]["content"] = format!("{content}{mark}").into();
    let text = render(&marked)?;
    let end = text.rfind(&mark).ok_or_else(|| fields.reject(param, "the chat template leaves out the last message, which is to be continued"))?;
    Ok(text[..end].to_owned())
}

/// The next turn of a conversation: turns, and the field that has them.
pub(super) fn conversation(
    fields: &Fields<'_>,
    model: Arc<Served>,
    (param, messages): (&str, &[Value]),
    ending: Ending,
    tools: Option<Tools>,
    mut settings: Settings,
    form: Form,
) -> Result<TextJob, ApiError> {
    let prompt = render(fields, &model, (param, messages), ending, tools.as_ref())?;
    let prompt = model.tokenizer.encode_rendered(&prompt).map_err(|error| ApiError::field(param, error.to_string()))?;
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
    let content = text(&fields, "content")?;
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
    for name in ["name", "reasoning_content", "tool_call_id"] {
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

/// A text, or parts that are put together.
pub(super) fn text(fields: &Fields<'_>, name: &str) -> Result<Option<String>, ApiError> {
    match fields.get(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(Value::Array(parts)) => {
            let part = |(index, part): (usize, &Value)| {
                let part = Fields::object(part, fields.path(&format!("{name}[{index}]")))?;
                match part.string("type")? {
                    Some("text" | "input_text" | "output_text") => {
                        part.string("text")?.map(str::to_owned).ok_or_else(|| part.reject("text", "missing, and required"))
                    }
                    Some(_) | None => Err(part.reject("type", "only \"text\" is supported")),
                }
            };
            parts.iter().enumerate().map(part).collect::<Result<String, _>>().map(Some)
        }
        Some(other) => Err(wrong(&fields.path(name), other, "a string or an array of parts")),
    }
}
