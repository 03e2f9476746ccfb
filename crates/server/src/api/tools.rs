//! `tools` and `tool_choice`.

use serde_json::{Value, json};

use super::{
    ApiError,
    fields::{Fields, wrong},
};
use crate::{grammar::Grammar, models::Served, tools::Dialect};

/// The tools that an answer may call.
pub(super) struct Tools {
    pub(super) dialect: Dialect,
    /// Names, and schemas of arguments.
    pub(super) functions: Vec<(String, Value)>,
    /// As the template sees them.
    pub(super) shown: Vec<Value>,
    is_required: bool,
}

impl Tools {
    /// Where a function's name is: in `function`, or beside the type where that is empty.
    pub(super) fn read(fields: &Fields<'_>, model: &Served, place: &str) -> Result<Option<Self>, ApiError> {
        let mut tools = Vec::new();
        for (index, tool) in fields.array("tools")?.unwrap_or_default().iter().enumerate() {
            tools.push(function(&Fields::object(tool, format!("tools[{index}]"))?, place)?);
        }
        let names: Vec<_> = tools.iter().map(|(name, ..)| name.as_str()).collect();
        let wanted = choice(fields, place, &names)?;
        if wanted == Choice::None || tools.is_empty() {
            return Ok(None);
        }
        let dialect = model.dialect.ok_or_else(|| {
            fields
                .reject("tools", "the model's chat template has none of the known ways to call tools: those of Hermes and Qwen, Llama 3 and Mistral")
        })?;
        if let Choice::Named(name) = &wanted {
            tools.retain(|(other, ..)| other == name);
        }
        let is_required = matches!(wanted, Choice::Required | Choice::Named(_));
        let shown = tools.iter().map(|(.., shown)| shown.clone()).collect();
        Ok(Some(Self { dialect, functions: tools.into_iter().map(|(name, schema, _)| (name, schema)).collect(), shown, is_required }))
    }

    /// What the answer must be, if it must call one.
    pub(super) fn grammar(&self) -> Option<Grammar> {
        self.is_required.then(|| self.dialect.grammar(&self.functions))
    }
}

/// A tool's name, the schema of its arguments, and what the template sees.
fn function(tool: &Fields<'_>, place: &str) -> Result<(String, Value, Value), ApiError> {
    if tool.string("type")? != Some("function") {
        return Err(tool.reject("type", "only \"function\" is supported"));
    }
    let function = if place.is_empty() { tool.clone() } else { tool.nested(place)?.ok_or_else(|| tool.reject(place, "missing, and required"))? };
    let name = function.string("name")?.filter(|name| !name.is_empty()).ok_or_else(|| function.reject("name", "missing, and required"))?;
    let parameters = match function.get("parameters") {
        None => json!({"type": "object", "properties": {}, "additionalProperties": false}),
        Some(schema @ Value::Object(_)) => schema.clone(),
        Some(other) => return Err(wrong(&function.path("parameters"), other, "a JSON schema")),
    };
    let description = function.string("description")?.unwrap_or_default();
    let shown = json!({"type": "function", "function": {"name": name, "description": description, "parameters": parameters}});
    Ok((name.to_owned(), parameters, shown))
}

#[derive(PartialEq)]
enum Choice {
    None,
    Auto,
    Required,
    Named(String),
}

fn choice(fields: &Fields<'_>, place: &str, names: &[&str]) -> Result<Choice, ApiError> {
    const NAME: &str = "tool_choice";
    let choice = match fields.get(NAME) {
        None => return Ok(Choice::Auto),
        Some(Value::String(text)) => match text.as_str() {
            "none" => Choice::None,
            "auto" => Choice::Auto,
            "required" => Choice::Required,
            _ => return Err(fields.reject(NAME, "none, auto, required or a function expected")),
        },
        Some(value) => {
            let choice = Fields::object(value, NAME.to_owned())?;
            let function =
                if place.is_empty() { choice } else { choice.nested(place)?.ok_or_else(|| choice.reject(place, "missing, and required"))? };
            let name = function.string("name")?.ok_or_else(|| function.reject("name", "missing, and required"))?;
            Choice::Named(name.to_owned())
        }
    };
    match &choice {
        Choice::Named(name) if !names.contains(&name.as_str()) => Err(fields.reject(NAME, format!("there is no tool '{}'", name.escape_debug()))),
        Choice::Required if names.is_empty() => Err(fields.reject(NAME, "there are no tools")),
        Choice::None | Choice::Auto | Choice::Required | Choice::Named(_) => Ok(choice),
    }
}
