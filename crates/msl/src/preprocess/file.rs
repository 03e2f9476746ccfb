//! A file that is being read, and the conditions open in it.

use super::{lexer::Lexer, token::Name};

pub(super) struct File {
    pub(super) lexer: Lexer,
    pub(super) path: Name,
    /// The name by the last `#line`.
    pub(super) shown: Name,
    /// What `#line` adds to a line's number.
    pub(super) shift: i64,
    pub(super) conditions: Vec<Condition>,
}

impl File {
    pub(super) fn shown_line(&self, line: u32) -> u32 {
        (i64::from(line) + self.shift).clamp(0, i64::from(u32::MAX)) as u32
    }
}

/// An open `#if`.
pub(super) struct Condition {
    /// Where it was opened: the text's own line.
    pub(super) line: u32,
    /// One of its groups was read.
    pub(super) taken: bool,
    /// Its `#else` was seen.
    pub(super) last: bool,
}
