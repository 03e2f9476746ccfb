//! Lines that start with `#`.

use std::path::{Component, Path, PathBuf};

use elinvar_core::Result;

use super::{
    definition::{self, Definition},
    includes::Included,
    queries::unquoted,
    reader::Reader,
    token::{Kind, Token},
};

/// How deep files may include each other.
const DEPTH: usize = 200;
/// What opening a file costs, beside its length.
const OPENING: usize = 1024;

impl Reader<'_> {
    /// Does what the line whose `#` is `hash` says. A pragma is a token of the text.
    pub(super) fn directive(&mut self, hash: &Token) -> Result<Option<Token>> {
        let Some(span) = self.files.last_mut().and_then(|file| file.lexer.token_in_line()) else { return Ok(None) };
        let text = self.files.last().map(|file| file.lexer.text()).unwrap_or_default();
        let word = &text[span.start..span.end];
        match word {
            "define" => {
                let line = self.line();
                let definition = Definition::read(&line, &self.names).map_err(|found| self.error(hash, found))?;
                self.define(definition);
            }
            "undef" => {
                let line = self.line();
                let name = definition::named(line.first(), &self.names).map_err(|found| self.error(hash, found))?;
                self.set(name, None);
            }
            "include" => return self.include(hash, false),
            "import" => return self.include(hash, true),
            "pragma" => {
                let line = self.line();
                return self.pragma(line, hash);
            }
            "error" => {
                let message = self.files.last_mut().map(|file| file.lexer.rest_of_line().to_owned()).unwrap_or_default();
                return Err(self.error(hash, format!("#error {message}")));
            }
            "warning" => drop(self.line()),
            "line" => {
                let line = self.line();
                let line = self.expand(line)?;
                self.renumber(&line, hash)?;
            }
            _ if span.kind == Kind::Number => {
                let mut line = self.lex(word, hash);
                line.extend(self.line());
                self.renumber(&line, hash)?;
            }
            _ if self.condition(word, hash)? => {}
            _ => return Err(self.error(hash, format!("`#{word}` is no directive"))),
        }
        Ok(None)
    }

    /// `#line 12 "file"`: what the next line is called.
    fn renumber(&mut self, line: &[Token], at: &Token) -> Result<()> {
        let number = line.first().and_then(|token| self.names.text(token.text).parse::<u32>().ok());
        let Some(number) = number.filter(|number| *number <= i32::MAX as u32) else {
            return Err(self.error(at, "`#line` is not followed by a line's number"));
        };
        let shown = match line.get(1) {
            Some(name) if name.kind == Kind::Literal => Some(unquoted(self.names.text(name.text))),
            Some(_) => return Err(self.error(at, "`#line` and a number are followed by a file's name in quotes, or nothing")),
            None => None,
        };
        let shown = shown.map(|name| self.names.number(&name));
        if let Some(file) = self.files.last_mut() {
            file.shift = i64::from(number) - i64::from(file.lexer.line()) - 1;
            file.shown = shown.unwrap_or(file.shown);
        }
        Ok(())
    }

    /// Opens the file that is named, or gives the token that stands for one of Metal's headers.
    fn include(&mut self, at: &Token, once: bool) -> Result<Option<Token>> {
        let written = self.files.last_mut().and_then(|file| file.lexer.header_name());
        let rest = self.line();
        let (name, is_quoted) = match written {
            Some(written) => written,
            None => self.header(rest, at)?,
        };
        let (path, text) = match self.find(&name, is_quoted) {
            Some(Included::File(path, text)) => (path, text),
            Some(Included::System) => {
                let is_new = self.once.insert(format!("<{name}>"));
                return Ok(is_new.then(|| Token { kind: Kind::Include, text: self.names.number(&name), ..*at }));
            }
            None => {
                let name = if is_quoted { format!("\"{name}\"") } else { format!("<{name}>") };
                return Err(self.error(at, format!("cannot find {name}; looked for it in: {}", self.includes.searched())));
            }
        };
        if self.once.contains(&identity(&path)) {
            return Ok(None);
        }
        if self.files.len() > DEPTH {
            return Err(self.error(at, format!("files include each other deeper than {DEPTH}; does \"{name}\" lack `#pragma once`?")));
        }
        self.charge(text.len() + OPENING, at)?;
        self.push_file(&path, &text);
        if once {
            self.mark_once();
        }
        Ok(None)
    }

    /// The file that is being read is not read again.
    pub(super) fn mark_once(&mut self) {
        if let Some(file) = self.files.last() {
            self.once.insert(identity(self.names.text(file.path)));
        }
    }
}

/// A path without the detours by which it may be reached.
fn identity(path: &str) -> String {
    let mut straight = PathBuf::new();
    for component in Path::new(path).components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir if matches!(straight.components().next_back(), Some(Component::Normal(_))) => drop(straight.pop()),
            other => straight.push(other),
        }
    }
    straight.display().to_string()
}
