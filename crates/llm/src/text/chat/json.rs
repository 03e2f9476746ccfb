//! JSON as values of templates, and as Python's `json.dumps(…, ensure_ascii=False)` writes it, which prompts depend on to the byte.

use std::fmt::Write;

use minijinja::{Error, ErrorKind, Value, value::ValueKind};
use serde_json::Value as Json;

use super::limits::MAX_OUTPUT;

const DEPTH: usize = 64;

/// What a template sees of JSON.
pub(super) fn read(json: &Json) -> Value {
    match json {
        Json::Null => ().into(),
        Json::Bool(value) => (*value).into(),
        Json::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(number), _) => number.into(),
            (None, Some(number)) => number.into(),
            (None, None) => number.as_f64().unwrap_or(f64::NAN).into(),
        },
        Json::String(text) => text.into(),
        Json::Array(values) => values.iter().map(read).collect(),
        Json::Object(map) => Value::from_pairs(map.iter().map(|(name, value)| (name, read(value)))),
    }
}

/// `value` on one line, or indented by `indent` spaces a level.
pub(super) fn write(value: &Value, indent: Option<usize>) -> Result<String, Error> {
    let mut writer = Writer { out: String::new(), indent };
    writer.value(value, 0)?;
    Ok(writer.out)
}

struct Writer {
    out: String,
    indent: Option<usize>,
}

impl Writer {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        if depth > DEPTH || self.out.len() > MAX_OUTPUT {
            return Err(Error::new(ErrorKind::InvalidOperation, "tojson: the value is too deep or too large"));
        }
        match value.kind() {
            ValueKind::Undefined | ValueKind::None => self.out.push_str("null"),
            ValueKind::Bool => self.out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => self.out.push_str(&value.to_string()),
            ValueKind::String => self.string(value.as_str().unwrap_or_default()),
            ValueKind::Seq | ValueKind::Iterable => {
                let items: Vec<_> = value.try_iter()?.collect();
                self.sequence(['[', ']'], items, depth, |writer, item| writer.value(item, depth + 1))?;
            }
            ValueKind::Map => {
                let keys: Vec<_> = value.try_iter()?.collect();
                self.sequence(['{', '}'], keys, depth, |writer, key| {
                    writer.string(&key.to_string());
                    writer.out.push_str(": ");
                    writer.value(&value.get_item(key)?, depth + 1)
                })?;
            }
            kind => return Err(Error::new(ErrorKind::InvalidOperation, format!("tojson: a value of kind {kind} has no JSON form"))),
        }
        Ok(())
    }

    fn sequence(
        &mut self,
        [open, close]: [char; 2],
        items: Vec<Value>,
        depth: usize,
        mut item: impl FnMut(&mut Self, &Value) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.out.push(open);
        for (index, value) in items.iter().enumerate() {
            if index > 0 {
                self.out.push_str(if self.indent.is_some() { "," } else { ", " });
            }
            self.new_line(depth + 1);
            item(self, value)?;
        }
        if !items.is_empty() {
            self.new_line(depth);
        }
        self.out.push(close);
        Ok(())
    }

    fn new_line(&mut self, depth: usize) {
        if let Some(indent) = self.indent {
            self.out.push('\n');
            self.out.extend(std::iter::repeat_n(' ', indent.min(16) * depth));
        }
    }

    fn string(&mut self, text: &str) {
        self.out.push('"');
        for c in text.chars() {
            match c {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                '\u{8}' => self.out.push_str("\\b"),
                '\u{c}' => self.out.push_str("\\f"),
                // Writing to a string cannot fail.
                c if c < ' ' => drop(write!(self.out, "\\u{:04x}", c as u32)),
                c => self.out.push(c),
            }
        }
        self.out.push('"');
    }
}
