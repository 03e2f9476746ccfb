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
        Self::new(fields, model, tools, choice(fields, place)?)
    }

    /// The same as Anthropic has it.
    pub(super) fn read_anthropic(fields: &Fields<'_>, model: &Served) -> Result<Option<Self>, ApiError> {
        let mut tools = Vec::new();
        for (index, tool) in fields.array("tools")?.unwrap_or_default().iter().enumerate() {
            let tool = Fields::object(tool, format!("tools[{index}]"))?;
            if tool.string("type")?.is_some_and(|kind| kind != "custom") {
                return Err(tool.reject("type", "only \"custom\" is supported"));
            }
            tools.push(described(&tool, "input_schema")?);
        }
        let wanted = match fields.nested("tool_choice")? {
            None => Choice::Auto,
            Some(choice) => match choice.string("type")? {
                Some("auto") => Choice::Auto,
                Some("any") => Choice::Required,
                Some("none") => Choice::None,
                Some("tool") => Choice::Named(choice.string("name")?.ok_or_else(|| choice.reject("name", "missing, and required"))?.to_owned()),
                Some(_) | None => return Err(choice.reject("type", "auto, any, tool or none expected")),
            },
        };
        Self::new(fields, model, tools, wanted)
    }

    fn new(fields: &Fields<'_>, model: &Served, mut tools: Vec<Function>, wanted: Choice) -> Result<Option<Self>, ApiError> {
        match &wanted {
            Choice::Named(name) if !tools.iter().any(|(other, ..)| other == name) => {
                return Err(fields.reject(CHOICE, format!("there is no tool '{}'", name.escape_debug())));
            }
            Choice::Required if tools.is_empty() => return Err(fields.reject(CHOICE, "there are no tools")),
            Choice::None | Choice::Auto | Choice::Required | Choice::Named(_) => {}
        }
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

const CHOICE: &str = "tool_choice";

/// A tool's name, the schema of its arguments, and what the template sees.
type Function = (String, Value, Value);

fn function(tool: &Fields<'_>, place: &str) -> Result<Function, ApiError> {
    if tool.string("type")? != Some("function") {
        return Err(tool.reject("type", "only \"function\" is supported"));
    }
    let function = if place.is_empty() { tool.clone() } else { tool.nested(place)?.ok_or_else(|| tool.reject(place, "missing, and required"))? };
    described(&function, "parameters")
}

/// A function by its name and description, whose arguments' schema has the name `schema`.
fn described(function: &Fields<'_>, schema: &str) -> Result<Function, ApiError> {
    let name = function.string("name")?.filter(|name| !name.is_empty()).ok_or_else(|| function.reject("name", "missing, and required"))?;
    let parameters = match function.get(schema) {
        None => json!({"type": "object", "properties": {}, "additionalProperties": false}),
        Some(schema @ Value::Object(_)) => schema.clone(),
        Some(other) => return Err(wrong(&function.path(schema), other, "a JSON schema")),
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

fn choice(fields: &Fields<'_>, place: &str) -> Result<Choice, ApiError> {
    match fields.get(CHOICE) {
        None => Ok(Choice::Auto),
        Some(Value::String(text)) => match text.as_str() {
            "none" => Ok(Choice::None),
            "auto" => Ok(Choice::Auto),
            "required" => Ok(Choice::Required),
            _ => Err(fields.reject(CHOICE, "none, auto, required or a function expected")),
        },
        Some(value) => {
            let choice = Fields::object(value, CHOICE.to_owned())?;
            let function =
                if place.is_empty() { choice } else { choice.nested(place)?.ok_or_else(|| choice.reject(place, "missing, and required"))? };
            let name = function.string("name")?.ok_or_else(|| function.reject("name", "missing, and required"))?;
            Ok(Choice::Named(name.to_owned()))
        }
    }
}
