//! The macros that are not texts: where the text is, what there is, and `_Pragma`.

use elinvar_core::Result;

use super::{
    definition::Query,
    includes::Included,
    reader::Reader,
    token::{EMPTY, Kind, Token},
};

impl Reader<'_> {
    /// What `query`, asked at `at`, is replaced by.
    pub(super) fn answer(&mut self, query: Query, at: &Token) -> Result<Option<Token>> {
        let number = |value: u32| (Kind::Number, value.to_string());
        let (kind, text) = match query {
            Query::Line => number(if at.expanded { self.use_ends } else { at.line }),
            Query::File => (Kind::Literal, quoted(self.names.text(at.file))),
            Query::FileName => {
                let path = self.names.text(at.file);
                (Kind::Literal, quoted(path.rsplit('/').next().unwrap_or(path)))
            }
            Query::BaseFile => (Kind::Literal, quoted(self.files.first().map_or("", |file| self.names.text(file.shown)))),
            Query::IncludeLevel => number(self.files.len().saturating_sub(1) as u32),
            Query::Counter => {
                self.counter += 1;
                number(self.counter - 1)
            }
            Query::Date => (Kind::Literal, quoted("??? ?? ????")),
            Query::Time => (Kind::Literal, quoted("??:??:??")),
            Query::Timestamp => (Kind::Literal, quoted("??? ??? ?? ??:??:?? ????")),
            Query::Has => {
                self.argument(at)?;
                number(0)
            }
            Query::HasInclude => {
                let argument = self.argument(at)?;
                let (name, is_quoted) = self.header(argument, at)?;
                number(u32::from(self.find(&name, is_quoted).is_some()))
            }
            Query::Pragma => return self.pragma_operator(at),
        };
        Ok(Some(Token { kind, text: self.names.number(&text), expanded: true, ..*at }))
    }

    fn argument(&mut self, at: &Token) -> Result<Vec<Token>> {
        Ok(self.collect(at, 1)?.into_iter().next().unwrap_or_default())
    }

    /// `_Pragma("…")`
    fn pragma_operator(&mut self, at: &Token) -> Result<Option<Token>> {
        let argument = self.argument(at)?;
        let [Token { kind: Kind::Literal, text, .. }] = argument.as_slice() else {
            return Err(self.error(at, "`_Pragma` takes one string"));
        };
        let text = unquoted(self.names.text(*text));
        let line = self.lex(&text, at);
        self.pragma(line, at)
    }

    /// The token for `#pragma` and `line`, unless it is a matter of the preprocessor alone.
    pub(super) fn pragma(&mut self, line: Vec<Token>, at: &Token) -> Result<Option<Token>> {
        let words: Vec<&str> = line.iter().take(3).map(|token| self.names.text(token.text)).collect();
        let unexpanded = match words.as_slice() {
            ["once", ..] => {
                self.mark_once();
                return Ok(None);
            }
            ["push_macro" | "pop_macro", "(", name] => {
                let (name, pushes) = (name.trim_matches('"').to_owned(), words[0] == "push_macro");
                self.push_or_pop(&name, pushes);
                return Ok(None);
            }
            ["unroll" | "nounroll", ..] => 1,
            ["clang", "loop", ..] => 2,
            _ => line.len(),
        };
        let mut tokens = line;
        let rest = tokens.split_off(unexpanded);
        tokens.extend(self.expand(rest)?);
        let mut text = String::new();
        for token in &tokens {
            if token.space && !text.is_empty() {
                text.push(' ');
            }
            text.push_str(self.names.text(token.text));
        }
        Ok(Some(Token { kind: Kind::Pragma, text: self.names.number(&text), ..*at }))
    }

    fn push_or_pop(&mut self, name: &str, pushes: bool) {
        let name = self.names.number(name);
        let current = self.definition(name).cloned();
        let pushed = self.pushed.entry(name).or_default();
        if pushes {
            pushed.push(current);
        } else if let Some(earlier) = pushed.pop() {
            self.set(name, earlier);
        }
    }

    /// The name between quotes or angle brackets.
    pub(super) fn header(&mut self, mut tokens: Vec<Token>, at: &Token) -> Result<(String, bool)> {
        if !self.is_header(&tokens) {
            tokens = self.expand(tokens)?;
        }
        if !self.is_header(&tokens) {
            return Err(self.error(at, "a file's name is missing; write \"name\" or <name>"));
        }
        let mut text = String::new();
        for token in &tokens {
            text.push_str(if token.space && !text.is_empty() { " " } else { "" });
            text.push_str(self.names.text(token.text));
        }
        let name = text.get(1..).unwrap_or_default();
        let is_quoted = text.starts_with('"');
        Ok((name.split(if is_quoted { '"' } else { '>' }).next().unwrap_or_default().to_owned(), is_quoted))
    }

    fn is_header(&self, tokens: &[Token]) -> bool {
        let text = |token: &Token| self.names.text(token.text);
        match tokens.first() {
            Some(first) if first.kind == Kind::Literal => text(first).starts_with('"'),
            Some(first) => text(first).starts_with('<') && tokens.iter().any(|token| text(token).starts_with('>')),
            None => false,
        }
    }

    /// The file that an include here finds.
    pub(super) fn find(&self, name: &str, is_quoted: bool) -> Option<Included> {
        let from = self.files.last().map_or(EMPTY, |file| file.path);
        self.includes.open(name, is_quoted, self.names.text(from))
    }
}

pub(super) fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// What a string literal means to the preprocessor.
pub(super) fn unquoted(literal: &str) -> String {
    let text = literal.trim_start_matches(|character| character != '"').trim_matches('"');
    text.replace("\\\"", "\"").replace("\\\\", "\\")
}
