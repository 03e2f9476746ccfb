//! Tokens of a line.

use elinvar_core::{DType, Result};

use super::lexer::{Kind, Token, error_at};
use crate::program::Location;

/// The tokens of a line, taken one after the other.
pub(super) struct Line {
    tokens: std::vec::IntoIter<Token>,
    /// Where the line ends.
    end: Location,
}

impl Line {
    pub(super) fn new(tokens: Vec<Token>, end: Location) -> Self {
        Self { tokens: tokens.into_iter(), end }
    }

    pub(super) fn at(&self) -> Location {
        self.tokens.as_slice().first().map_or(self.end, |t| t.at)
    }

    pub(super) fn peek(&self) -> Option<&Token> {
        self.tokens.as_slice().first()
    }

    pub(super) fn next(&mut self, what: &str) -> Result<Token> {
        let end = self.end;
        self.tokens.next().ok_or_else(|| error_at(end, format_args!("the line ends where {what} is expected")))
    }

    pub(super) fn name(&mut self, what: &str) -> Result<(String, Location)> {
        let token = self.next(what)?;
        let Kind::Name(name) = &token.kind else {
            return Err(error_at(token.at, format_args!("'{}' where {what} is expected", token.text())));
        };
        Ok((name.clone(), token.at))
    }

    pub(super) fn mark(&mut self, mark: &str) -> Result<()> {
        let token = self.next(&format!("'{mark}'"))?;
        if token.kind != Kind::Mark(MARK_NAMES.iter().find(|m| **m == mark).copied().unwrap_or("")) {
            return Err(error_at(token.at, format_args!("'{}' where '{mark}' is expected", token.text())));
        }
        Ok(())
    }

    pub(super) fn takes(&mut self, mark: &str) -> bool {
        let found = self.peek().is_some_and(|t| matches!(t.kind, Kind::Mark(m) if m == mark));
        if found {
            self.tokens.next();
        }
        found
    }

    pub(super) fn dtype(&mut self) -> Result<DType> {
        let (name, at) = self.name("a type")?;
        DType::of_program(&name).map_err(|error| error_at(at, error))
    }

    pub(super) fn count(&mut self, what: &str) -> Result<u32> {
        let token = self.next(what)?;
        token.text().parse().map_err(|_| error_at(token.at, format_args!("'{}' where {what} is expected", token.text())))
    }

    pub(super) fn finish(mut self) -> Result<()> {
        match self.tokens.next() {
            Some(token) => Err(error_at(token.at, format_args!("'{}' where the line should end", token.text()))),
            None => Ok(()),
        }
    }
}

const MARK_NAMES: &[&str] = &["->", ":", "=", "[", "]", "(", ")", ","];
