//! Preprocessing tokens and the table of their texts.

use std::{collections::HashMap, rc::Rc};

/// A text, by its number in [`Names`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Name(u32);

impl Name {
    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Identifier,
    Number,
    /// A string or character literal.
    Literal,
    Punctuation,
    /// A character no token starts with, or the rest of a line after a quote that does not end.
    Other,
    /// A `#pragma` line; its text is what follows the word.
    Pragma,
    /// An `#include` line of one of Metal's headers, which is its text.
    Include,
    /// What an empty argument leaves beside `##`.
    Placemarker,
    /// Past the last token.
    End,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Token {
    pub(super) kind: Kind,
    pub(super) text: Name,
    pub(super) file: Name,
    pub(super) line: u32,
    /// From 1; 0 where there is none.
    pub(super) column: u32,
    /// White space stands before it.
    pub(super) space: bool,
    /// It is the first of its line.
    pub(super) first: bool,
    /// It came out of a macro.
    pub(super) expanded: bool,
    /// It named a macro that was being expanded, and is never expanded.
    pub(super) painted: bool,
}

macro_rules! words {
    ($($constant:ident $text:literal)*) => {
        #[repr(u32)]
        #[allow(clippy::upper_case_acronyms, non_camel_case_types)]
        enum Word { $($constant),* }
        $(pub(super) const $constant: Name = Name(Word::$constant as u32);)*
        const WORDS: &[&str] = &[$($text),*];
    };
}

// The words with a meaning of their own.
words! {
    EMPTY "" OPEN "(" CLOSE ")" COMMA "," HASH "#" HASH_DIGRAPH "%:" PASTE "##" PASTE_DIGRAPH "%:%:" ELLIPSIS "..."
    DEFINED "defined" VA_ARGS "__VA_ARGS__" VA_OPT "__VA_OPT__"
}

/// Every text once.
pub(super) struct Names {
    texts: Vec<Rc<str>>,
    numbers: HashMap<Rc<str>, Name>,
}

impl Names {
    pub(super) fn new() -> Self {
        let mut names = Self { texts: Vec::new(), numbers: HashMap::new() };
        for word in WORDS {
            names.number(word);
        }
        names
    }

    pub(super) fn number(&mut self, text: &str) -> Name {
        if let Some(&found) = self.numbers.get(text) {
            return found;
        }
        let (name, text) = (Name(self.texts.len() as u32), Rc::<str>::from(text));
        self.texts.push(text.clone());
        self.numbers.insert(text, name);
        name
    }

    pub(super) fn text(&self, name: Name) -> &str {
        self.texts.get(name.index()).map_or("", |text| text)
    }
}
