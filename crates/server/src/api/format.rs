//! `response_format`: what an answer is limited to.

use serde_json::{Value, json};

use super::{ApiError, fields::Fields};
use crate::grammar::Grammar;

pub(super) const NAME: &str = "response_format";

/// How other servers ask for the same. What limits answers there must not be passed over here.
const OTHERS: [&str; 7] = ["grammar", "json_schema", "guided_json", "guided_regex", "guided_choice", "guided_grammar", "structured_outputs"];

pub(super) fn read(fields: &Fields<'_>) -> Result<Option<Grammar>, ApiError> {
    if let Some(name) = OTHERS.into_iter().find(|name| fields.get(name).is_some()) {
        return Err(fields.reject(name, "not supported: use response_format, of type json_schema, regex or lark"));
    }
    fields.nested(NAME)?.map_or(Ok(None), |format| grammar(&format))
}

/// Of `{"type": …}`; a schema is in `json_schema`, or beside the type.
pub(super) fn grammar(format: &Fields<'_>) -> Result<Option<Grammar>, ApiError> {
    let text = |name: &str| format.string(name)?.map(str::to_owned).ok_or_else(|| format.reject(name, "missing, and required"));
    let schema = |fields: &Fields<'_>| match fields.required("schema")? {
        schema @ (Value::Object(_) | Value::Bool(_)) => Ok(Some(Grammar::Schema(schema.clone()))),
        _ => Err(fields.reject("schema", "a JSON schema expected")),
    };
    match format.string("type")? {
        Some("text") => Ok(None),
        Some("json_object") if format.get("schema").is_some() => schema(format),
        Some("json_object") => Ok(Some(Grammar::Schema(json!({"type": "object"})))),
        Some("json_schema") => match format.nested("json_schema")? {
            Some(nested) => schema(&nested),
            None => schema(format),
        },
        Some("regex") => Ok(Some(Grammar::Regex(text("pattern")?))),
        Some("lark") => Ok(Some(Grammar::Lark(text("grammar")?))),
        Some(_) | None => Err(format.reject("type", "text, json_object, json_schema, regex or lark expected")),
    }
}
