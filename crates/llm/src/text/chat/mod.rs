//! Chat templates: the Jinja programs that model authors ship to turn a conversation into a prompt.
//!
//! The environment is that of transformers (`trim_blocks`, `lstrip_blocks`, loop controls, Python's string methods, `raise_exception`,
//! `strftime_now`, its `tojson`). A template is someone else's program: the instructions it executes, the depth of its macros,
//! the strings it passes on and its output are bounded (what it joins with `~` before passing it on is not).

mod functions;
mod json;
mod limits;
#[cfg(test)]
mod tests;
mod time;

use std::{io, time::SystemTime};

use elinvar::{Error, Result};
use minijinja::{AutoEscape, Environment, Value, syntax::SyntaxConfig};

use limits::{FUEL, MAX_OUTPUT, RECURSION};

use crate::text::tokenizer::one_line;

const NAME: &str = "chat template";

/// A turn of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Who speaks: `system`, `user` or `assistant`, as the template knows them.
    pub role: String,
    /// What is said.
    pub content: String,
}

impl Message {
    /// A turn.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self { role: role.into(), content: content.into() }
    }
}

/// What a template gets besides the messages.
#[derive(Clone, Debug)]
pub struct ChatOptions {
    /// End with the beginning of the assistant's turn.
    pub add_generation_prompt: bool,
    /// Further variables (`enable_thinking=false`): `true`, `false` and integers become such values, all else strings.
    pub variables: Vec<(String, String)>,
    /// The time that `strftime_now` returns, in UTC.
    pub now: SystemTime,
}

impl Default for ChatOptions {
    fn default() -> Self {
        Self { add_generation_prompt: true, variables: Vec::new(), now: SystemTime::now() }
    }
}

/// A parsed template with the tokens it may name.
pub struct ChatTemplate {
    environment: Environment<'static>,
    bos: String,
    eos: String,
}

impl ChatTemplate {
    /// Parses `source`; `bos` and `eos` are the texts of the tokens of those names.
    ///
    /// # Errors
    /// Syntax that is wrong, or not supported.
    pub fn new(source: &str, bos: Option<&str>, eos: Option<&str>) -> Result<Self> {
        let reject = |e: minijinja::Error| Error::invalid_data(format!("{NAME}: {}", one_line(&e)));
        let mut environment = Environment::new();
        environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build().map_err(reject)?);
        environment.set_auto_escape_callback(|_| AutoEscape::None);
        environment.set_debug(false);
        environment.set_fuel(Some(FUEL));
        environment.set_recursion_limit(RECURSION);
        functions::install(&mut environment);
        environment.add_template_owned(NAME, without_generation_blocks(source)).map_err(reject)?;
        Ok(Self { environment, bos: bos.unwrap_or_default().to_owned(), eos: eos.unwrap_or_default().to_owned() })
    }

    /// The prompt for a conversation.
    ///
    /// # Errors
    /// The template raises an exception (it rejects the roles or their order), fails, or exceeds a bound.
    pub fn render(&self, messages: &[Message], options: &ChatOptions) -> Result<String> {
        let turn = |m: &Message| Value::from_pairs([("role", Value::from(&*m.role)), ("content", Value::from(&*m.content))]);
        self.render_values(messages.iter().map(turn).collect::<Vec<_>>().into(), Value::from(()), options)
    }

    /// The same for turns as the OpenAI API has them, which may have more than a role and a content, and the tools that the model may call, if any.
    ///
    /// # Errors
    /// As [`ChatTemplate::render`].
    pub fn render_json(&self, messages: &[serde_json::Value], tools: &[serde_json::Value], options: &ChatOptions) -> Result<String> {
        let list = |values: &[serde_json::Value]| values.iter().map(json::read).collect::<Value>();
        self.render_values(list(messages), if tools.is_empty() { Value::from(()) } else { list(tools) }, options)
    }

    fn render_values(&self, messages: Value, tools: Value, options: &ChatOptions) -> Result<String> {
        let reject = |e: minijinja::Error| Error::invalid_argument(format!("{NAME}: {}", describe(&e)));
        let fixed = [
            ("messages", messages),
            ("add_generation_prompt", options.add_generation_prompt.into()),
            ("bos_token", Value::from(&*self.bos)),
            ("eos_token", Value::from(&*self.eos)),
            ("tools", tools),
            ("documents", Value::from(())),
            ("strftime_now", time::function(options.now)),
        ];
        let extra = options.variables.iter().map(|(name, value)| (name.as_str(), variable(value)));
        let context = Value::from_pairs(fixed.into_iter().chain(extra));
        let mut output = Bounded(Vec::new());
        let template = self.environment.get_template(NAME).map_err(reject)?;
        template.render_captured_to(context, &mut output).map_err(reject)?;
        String::from_utf8(output.0).map_err(|_| Error::invalid_data(format!("{NAME}: the output is not UTF-8")))
    }
}

/// Reads a variable's text.
fn variable(text: &str) -> Value {
    match (text, text.parse::<i64>()) {
        ("true", _) => true.into(),
        ("false", _) => false.into(),
        (_, Ok(number)) => number.into(),
        (text, _) => text.into(),
    }
}

/// The innermost message: what the template itself said, if it raised an exception.
fn describe(error: &minijinja::Error) -> String {
    let source = std::error::Error::source(error).map(|s| format!(": {s}")).unwrap_or_default();
    one_line(&format!("{error}{source}"))
}

/// transformers marks the assistant's text with `{% generation %}` blocks, which change nothing in the output.
fn without_generation_blocks(source: &str) -> String {
    let signs = ['-', '+'];
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find("{%") {
        let (before, tag) = rest.split_at(at + 2);
        let name = tag.trim_start_matches(signs).trim_start();
        let is = |word: &str| name.strip_prefix(word).is_some_and(|after| after.trim_start().trim_start_matches(signs).starts_with("%}"));
        let (word, replacement) = [("generation", "if true"), ("endgeneration", "endif")].into_iter().find(|(w, _)| is(w)).unwrap_or_default();
        let start = tag.len() - name.len();
        out.push_str(before);
        out.push_str(&tag[..start]);
        out.push_str(replacement);
        rest = &tag[start + word.len()..];
    }
    out + rest
}

/// A writer that does not grow beyond [`MAX_OUTPUT`].
struct Bounded(Vec<u8>);

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > MAX_OUTPUT {
            return Err(io::Error::other(format!("it writes more than {} MiB", MAX_OUTPUT >> 20)));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
