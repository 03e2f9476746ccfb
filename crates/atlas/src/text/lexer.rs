//! Tokens of a line.

use elinvar_core::{Error, Result};

use crate::program::{Location, Site};

/// What a token is.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Kind {
    /// A name, or several joined by dots.
    Name(String),
    /// A number, as it is written.
    Number(String),
    /// Punctuation.
    Mark(&'static str),
}

/// A token and its place.
#[derive(Clone, Debug)]
pub(super) struct Token {
    pub(super) kind: Kind,
    pub(super) at: Location,
}

impl Token {
    /// How it is written.
    pub(super) fn text(&self) -> &str {
        match &self.kind {
            Kind::Name(text) | Kind::Number(text) => text,
            Kind::Mark(text) => text,
        }
    }
}

/// An error at a place of the text.
pub(super) fn error_at(at: Location, message: impl std::fmt::Display) -> Error {
    Error::invalid_data(format!("{}: {message}", Site::Text(at)))
}

const MARKS: &[&str] = &["->", ":", "=", "[", "]", "(", ")", ","];

/// The tokens of a line, up to its comment.
pub(super) fn tokens(line: &str, number: u32) -> Result<Vec<Token>> {
    let mut found = Vec::new();
    let mut rest = line;
    let mut column = 1;
    while let Some(first) = rest.chars().next() {
        let at = Location { line: number, column };
        if rest.starts_with("//") {
            break;
        }
        let length = if first.is_whitespace() {
            first.len_utf8()
        } else if first.is_ascii_alphabetic() || first == '_' {
            let length = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '.').unwrap_or(rest.len());
            found.push(Token { kind: Kind::Name(rest[..length].to_owned()), at });
            length
        } else if let Some(mark) = MARKS.iter().find(|m| rest.starts_with(**m)) {
            found.push(Token { kind: Kind::Mark(mark), at });
            mark.len()
        } else if first.is_ascii_digit() || matches!(first, '-' | '+' | '.') {
            let length = number_length(rest);
            found.push(Token { kind: Kind::Number(rest[..length].to_owned()), at });
            length
        } else {
            return Err(error_at(at, format_args!("{first:?} is no part of the language")));
        };
        column += rest[..length].chars().count() as u32;
        rest = &rest[length..];
    }
    Ok(found)
}

/// Bytes of the number that `text` starts with: letters and digits, dots, and signs that follow an `e` of a decimal.
fn number_length(text: &str) -> usize {
    let mut before = ' ';
    let hexadecimal = text.trim_start_matches(['-', '+']).starts_with("0x");
    let goes_on = |(index, c): (usize, char)| {
        let sign = matches!(c, '-' | '+') && (index == 0 || !hexadecimal && matches!(before, 'e' | 'E'));
        before = c;
        !(sign || c.is_ascii_alphanumeric() || c == '.' || c == '_')
    };
    let mut goes_on = goes_on;
    text.char_indices().find(|&place| goes_on(place)).map_or(text.len(), |(index, _)| index)
}
