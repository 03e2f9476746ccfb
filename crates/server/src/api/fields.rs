//! The fields of a request, each read with an error that names it.

use std::{fmt, ops::RangeInclusive};

use serde_json::{Map, Value};

use super::ApiError;

/// An object of a request, at a path such as `messages[0]`.
#[derive(Clone)]
pub(crate) struct Fields<'a> {
    map: &'a Map<String, Value>,
    path: String,
}

impl<'a> Fields<'a> {
    /// A request's body.
    pub(crate) fn body(value: &'a Value) -> Result<Self, ApiError> {
        match value {
            Value::Object(map) => Ok(Self { map, path: String::new() }),
            other => Err(ApiError::invalid(None, format!("the body is {}: an object expected", kind(other)))),
        }
    }

    /// The object `value` at `path`.
    pub(crate) fn object(value: &'a Value, path: String) -> Result<Self, ApiError> {
        match value {
            Value::Object(map) => Ok(Self { map, path }),
            other => Err(wrong(&path, other, "an object")),
        }
    }

    /// How errors name a field.
    pub(crate) fn path(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    /// A field that is there and not null.
    pub(crate) fn get(&self, name: &str) -> Option<&'a Value> {
        self.map.get(name).filter(|value| !value.is_null())
    }

    /// An error of a field.
    pub(crate) fn reject(&self, name: &str, message: impl fmt::Display) -> ApiError {
        let path = self.path(name);
        ApiError::field(&path, format!("{path}: {message}"))
    }

    /// A field that must be there.
    pub(crate) fn required(&self, name: &str) -> Result<&'a Value, ApiError> {
        self.get(name).ok_or_else(|| self.reject(name, "missing, and required"))
    }

    pub(crate) fn boolean(&self, name: &str) -> Result<Option<bool>, ApiError> {
        self.typed(name, "true or false", Value::as_bool)
    }

    pub(crate) fn string(&self, name: &str) -> Result<Option<&'a str>, ApiError> {
        self.typed(name, "a string", Value::as_str)
    }

    pub(crate) fn array(&self, name: &str) -> Result<Option<&'a [Value]>, ApiError> {
        self.typed(name, "an array", |value| value.as_array().map(Vec::as_slice))
    }

    pub(crate) fn nested(&self, name: &str) -> Result<Option<Fields<'a>>, ApiError> {
        self.get(name).map(|value| Self::object(value, self.path(name))).transpose()
    }

    pub(crate) fn integer(&self, name: &str, range: RangeInclusive<i64>) -> Result<Option<i64>, ApiError> {
        let expected = format!("an integer from {} to {}", range.start(), range.end());
        self.typed(name, &expected, |value| integer(value).filter(|value| range.contains(value)))
    }

    /// An integer from zero on; what is more than `usize` has counts as the most.
    pub(crate) fn count(&self, name: &str) -> Result<Option<usize>, ApiError> {
        let count = |value: &Value| integer(value).and_then(|count| usize::try_from(count).ok());
        self.typed(name, "an integer from 0", |value| count(value).or_else(|| value.as_u64().map(|_| usize::MAX)))
    }

    pub(crate) fn number(&self, name: &str, range: RangeInclusive<f64>) -> Result<Option<f32>, ApiError> {
        let expected = format!("a number from {} to {}", range.start(), range.end());
        self.typed(name, &expected, |value| value.as_f64().filter(|value| range.contains(value)).map(|value| value as f32))
    }

    fn typed<T>(&self, name: &str, expected: &str, read: impl FnOnce(&'a Value) -> Option<T>) -> Result<Option<T>, ApiError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        read(value).map(Some).ok_or_else(|| wrong(&self.path(name), value, expected))
    }
}

/// An integer, also one that is written as `1.0`.
fn integer(value: &Value) -> Option<i64> {
    let whole = |value: f64| (value.fract() == 0.0 && value.abs() < 2f64.powi(53)).then_some(value as i64);
    value.as_i64().or_else(|| value.as_f64().and_then(whole))
}

/// The error of a value that is not as expected.
pub(crate) fn wrong(path: &str, value: &Value, expected: &str) -> ApiError {
    ApiError::field(path, format!("{path} is {}: {expected} expected", shown(value)))
}

/// A value, if it is short; its kind, if not.
fn shown(value: &Value) -> String {
    const MOST: usize = 40;
    let text = value.to_string();
    if text.len() <= MOST { text } else { kind(value).to_owned() }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_error_names_the_field_and_what_is_expected() {
        let value = json!({"a": {"n": 1.5, "s": [], "big": 1e300, "null": null, "whole": 7.0, "long": "x".repeat(50)}});
        let body = Fields::body(&value).unwrap();
        let a = body.nested("a").unwrap().unwrap();
        let message = |error: ApiError| (error.param.unwrap_or_default(), error.message);
        let of = |path: &str, text: &str| (path.to_owned(), text.to_owned());
        assert_eq!(message(a.integer("n", 0..=9).unwrap_err()), of("a.n", "a.n is 1.5: an integer from 0 to 9 expected"));
        assert_eq!(message(a.string("s").unwrap_err()), of("a.s", "a.s is []: a string expected"));
        assert_eq!(message(a.number("big", 0.0..=2.0).unwrap_err()), of("a.big", "a.big is 1e+300: a number from 0 to 2 expected"));
        assert_eq!(message(a.boolean("long").unwrap_err()), of("a.long", "a.long is a string: true or false expected"));
        assert_eq!(message(a.required("null").unwrap_err()), of("a.null", "a.null: missing, and required"));
        assert_eq!((a.integer("whole", 0..=9).unwrap(), a.boolean("null").unwrap()), (Some(7), None));
        assert_eq!(Fields::body(&json!([])).map(|_| ()).unwrap_err().message, "the body is an array: an object expected");
    }
}
