//! Calls of tools in the text of an answer, as models write them.

use std::{
    collections::hash_map::RandomState,
    hash::{BuildHasher, Hasher},
};

use serde_json::{Value, json};

use crate::grammar::Grammar;

/// How a model writes calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// Hermes, Qwen: `<tool_call>{"name": …, "arguments": …}</tool_call>`.
    Hermes,
    /// Llama 3: the answer is `{"name": …, "parameters": …}`, several with `;` between them.
    Llama,
    /// Mistral: the answer ends with an array of `{"name": …, "arguments": …}` after `[TOOL_CALLS]`.
    Mistral,
}

const OPEN: &str = "<tool_call>";
const CLOSE: &str = "</tool_call>";
/// Special tokens, which may or may not be part of the text.
const MISTRAL: &str = "[TOOL_CALLS]";
const LLAMA: &str = "<|python_tag|>";

impl Dialect {
    /// That of a chat template, if it is one of these.
    pub(crate) fn of(template: &str) -> Option<Self> {
        let all = [(OPEN, Self::Hermes), (MISTRAL, Self::Mistral), (LLAMA, Self::Llama), ("ipython", Self::Llama)];
        all.into_iter().find(|(sign, _)| template.contains(sign)).map(|(_, dialect)| dialect)
    }

    fn arguments(self) -> &'static str {
        match self {
            Self::Hermes | Self::Mistral => "arguments",
            Self::Llama => "parameters",
        }
    }

    /// What an answer is that calls one of the tools: pairs of a name and a schema of its arguments.
    pub(crate) fn grammar(self, tools: &[(String, Value)]) -> Grammar {
        let call = |(name, schema): &(String, Value)| {
            json!({"type": "object", "properties": {"name": {"const": name}, self.arguments(): schema}, "required": ["name", self.arguments()],
                "additionalProperties": false})
        };
        let calls = json!({"anyOf": tools.iter().map(call).collect::<Vec<_>>(), "x-guidance": {"whitespace_flexible": false}});
        match self {
            Self::Hermes => Grammar::Lark(format!("start: {OPEN:?} \"\\n\" call \"\\n\" {CLOSE:?}\ncall: %json {calls}")),
            Self::Mistral => Grammar::Lark(format!("start: \"[\" call \"]\"\ncall: %json {calls}")),
            Self::Llama => Grammar::Schema(calls),
        }
    }
}

/// A call of a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) id: String,
    pub(crate) name: String,
    /// JSON.
    pub(crate) arguments: String,
}

/// Finds calls in a text that comes in pieces. What looks like the beginning of one is held back.
#[derive(Debug)]
pub(crate) struct Parser {
    dialect: Dialect,
    tools: Vec<String>,
    held: String,
    /// Whether nothing but space has come.
    is_start: bool,
    is_call: bool,
    count: usize,
}

impl Parser {
    pub(crate) fn new(dialect: Dialect, tools: Vec<String>) -> Self {
        Self { dialect, tools, held: String::new(), is_start: true, is_call: false, count: 0 }
    }

    /// Takes a piece; gives the text and the calls that are complete.
    pub(crate) fn push(&mut self, piece: &str) -> (String, Vec<Call>) {
        self.held.push_str(piece);
        let (mut text, mut calls) = (String::new(), Vec::new());
        loop {
            if self.is_call {
                // Other dialects' calls end with the answer.
                let end = self.held.find(CLOSE).filter(|_| self.dialect == Dialect::Hermes);
                let Some(end) = end else { return (text, calls) };
                let body = self.held[..end].to_owned();
                self.held.drain(..end + CLOSE.len());
                self.is_call = false;
                match self.read(&body) {
                    Some(found) => calls.extend(found),
                    None => text.push_str(&format!("{OPEN}{body}{CLOSE}")),
                }
                continue;
            }
            if self.is_start {
                let rest = self.held.trim_start();
                let is_open = rest.is_empty() || self.dialect == Dialect::Mistral && MISTRAL.len() > rest.len() && MISTRAL.starts_with(rest);
                if is_open {
                    return (text, calls);
                }
                let is_bare = match self.dialect {
                    Dialect::Hermes => false,
                    Dialect::Llama => rest.starts_with('{'),
                    Dialect::Mistral => rest.starts_with('[') && !rest.starts_with(MISTRAL),
                };
                self.is_start = false;
                if is_bare {
                    self.is_call = true;
                    continue;
                }
            }
            let sign = match self.dialect {
                Dialect::Hermes => OPEN,
                Dialect::Llama => LLAMA,
                Dialect::Mistral => MISTRAL,
            };
            if let Some(at) = self.held.find(sign) {
                text.push_str(self.held[..at].trim_end());
                self.held.drain(..at + sign.len());
                self.is_call = true;
                continue;
            }
            let kept = (1..sign.len()).rev().find(|&length| self.held.ends_with(&sign[..length])).unwrap_or(0);
            // Space before a call is no text either.
            let given = self.held[..self.held.len() - kept].trim_end().len();
            text.extend(self.held.drain(..given));
            return (text, calls);
        }
    }

    /// What is left at the end.
    pub(crate) fn end(&mut self) -> (String, Vec<Call>) {
        let rest = std::mem::take(&mut self.held);
        if !std::mem::take(&mut self.is_call) {
            let is_between = self.count > 0 && rest.trim().is_empty();
            return (if is_between { String::new() } else { rest }, Vec::new());
        }
        match (self.read(&rest), self.dialect) {
            (Some(calls), _) => (String::new(), calls),
            (None, Dialect::Hermes) => (format!("{OPEN}{rest}"), Vec::new()),
            (None, Dialect::Llama | Dialect::Mistral) => (rest, Vec::new()),
        }
    }

    /// Calls of tools that there are, one or an array, or one after the other.
    fn read(&mut self, text: &str) -> Option<Vec<Call>> {
        let mut values = Vec::new();
        let mut rest = text.trim();
        while !rest.is_empty() {
            let mut stream = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
            match stream.next()?.ok()? {
                Value::Array(items) => values.extend(items),
                value => values.push(value),
            }
            rest = rest[stream.byte_offset()..].trim_start_matches([';', ' ', '\n']);
        }
        let calls: Option<Vec<_>> = values.iter().map(|value| self.call(value)).collect();
        let calls = calls.filter(|calls| !calls.is_empty())?;
        self.count += calls.len();
        Some(calls)
    }

    fn call(&self, value: &Value) -> Option<Call> {
        let name = value.get("name")?.as_str()?;
        let arguments = value.get("arguments").or_else(|| value.get("parameters"))?;
        let arguments = match arguments {
            Value::Object(_) => arguments.to_string(),
            Value::String(text) => text.clone(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => return None,
        };
        // Nine characters, as Mistral's templates demand.
        let id = format!("{:09x}", RandomState::new().build_hasher().finish() >> 28);
        self.tools.iter().any(|tool| tool == name).then(|| Call { id, name: name.to_owned(), arguments })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What comes of a text in pieces of `size` bytes: its text, and names and arguments of calls.
    fn run(dialect: Dialect, text: &str, size: usize) -> (String, Vec<(String, String)>) {
        let mut parser = Parser::new(dialect, vec!["add".to_owned(), "now".to_owned()]);
        let (mut out, mut calls) = (String::new(), Vec::new());
        let pieces = text.as_bytes().chunks(size).map(|piece| std::str::from_utf8(piece).unwrap().to_owned());
        for piece in pieces {
            let (text, found) = parser.push(&piece);
            out.push_str(&text);
            calls.extend(found);
        }
        let (text, found) = parser.end();
        out.push_str(&text);
        calls.extend(found);
        (out, calls.into_iter().map(|call| (call.name, call.arguments)).collect())
    }

    #[test]
    fn calls_are_found_in_every_dialect_and_cut() {
        let add = ("add".to_owned(), r#"{"a":1,"b":"}</"}"#.to_owned());
        let now = ("now".to_owned(), "{}".to_owned());
        let one = r#"{"name": "add", "arguments": {"a": 1, "b": "}</"}}"#;
        let hermes = format!("Let me see.\n<tool_call>\n{one}\n</tool_call>\n<tool_call>\n{{\"name\": \"now\", \"arguments\": {{}}}}\n</tool_call>");
        let mistral = format!("[TOOL_CALLS][{one}, {{\"name\": \"now\", \"arguments\": {{}}}}]");
        let llama = r#"{"name": "add", "parameters": {"a": 1, "b": "}</"}}; {"name": "now", "parameters": {}}"#;
        for size in 1..60 {
            assert_eq!(run(Dialect::Hermes, &hermes, size), ("Let me see.".to_owned(), vec![add.clone(), now.clone()]), "{size}");
            for text in [&mistral[..], mistral.strip_prefix(MISTRAL).unwrap()] {
                assert_eq!(run(Dialect::Mistral, text, size), (String::new(), vec![add.clone(), now.clone()]), "{size}");
            }
            for text in [llama.to_owned(), format!("{LLAMA}{llama}")] {
                assert_eq!(run(Dialect::Llama, &text, size), (String::new(), vec![add.clone(), now.clone()]), "{size}");
            }
        }
    }

    #[test]
    fn what_is_no_call_stays_text() {
        for (dialect, text) in [
            (Dialect::Hermes, "a < b <tool"),
            (Dialect::Hermes, "<tool_call>\n{\"name\": \"other\", \"arguments\": {}}\n</tool_call>"),
            (Dialect::Hermes, "<tool_call>\n{\"name\": \"add\""),
            (Dialect::Llama, "{\"name\": \"other\", \"parameters\": {}}"),
            (Dialect::Llama, "{\"a\": 1} and more"),
            (Dialect::Mistral, "[1, 2]"),
            (Dialect::Mistral, "  plain"),
        ] {
            for size in 1..text.len() {
                assert_eq!(run(dialect, text, size), (text.to_owned(), vec![]), "{text} {size}");
            }
        }
    }
}
