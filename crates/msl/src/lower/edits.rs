//! Changes to a text, collected token by token and applied at once.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::tokens::Tokens;

pub(crate) struct Edits<'a> {
    tokens: &'a Tokens,
    replaced: HashMap<usize, String>,
    before: HashMap<usize, String>,
    after: HashMap<usize, String>,
    /// Tokens that no pass touches any more.
    dropped: HashSet<usize>,
    /// Byte ranges outside tokens, by start.
    outside: BTreeMap<usize, (usize, String)>,
}

impl<'a> Edits<'a> {
    pub(crate) fn new(tokens: &'a Tokens) -> Self {
        Self { tokens, replaced: HashMap::new(), before: HashMap::new(), after: HashMap::new(), dropped: HashSet::new(), outside: BTreeMap::new() }
    }

    pub(crate) fn replace(&mut self, index: usize, text: impl Into<String>) {
        if !self.dropped.contains(&index) {
            self.replaced.insert(index, text.into());
        }
    }

    /// Removes the tokens of `start..end` and whatever was inserted around them; the lines between them stay.
    pub(crate) fn blank(&mut self, start: usize, end: usize) {
        for index in start..end {
            self.replaced.insert(index, String::new());
            self.before.remove(&index);
            self.after.remove(&index);
        }
    }

    /// Blanks the tokens for good: what is asked for them later is ignored.
    pub(crate) fn drop(&mut self, start: usize, end: usize) {
        self.blank(start, end);
        self.dropped.extend(start..end);
    }

    pub(crate) fn is_replaced(&self, index: usize) -> bool {
        self.replaced.contains_key(&index)
    }

    pub(crate) fn is_blank(&self, index: usize) -> bool {
        self.replaced.get(&index).is_some_and(String::is_empty)
    }

    /// Puts `text` before the token, before what was put there earlier.
    pub(crate) fn insert_before(&mut self, index: usize, text: &str) {
        if !self.dropped.contains(&index) {
            self.before.entry(index).or_default().insert_str(0, text);
        }
    }

    /// Puts `text` before the token, after what was put there earlier.
    pub(crate) fn open(&mut self, index: usize, text: &str) {
        if !self.dropped.contains(&index) {
            self.before.entry(index).or_default().push_str(text);
        }
    }

    /// Puts `text` after the token, before what was put there earlier.
    pub(crate) fn close(&mut self, index: usize, text: &str) {
        if !self.dropped.contains(&index) {
            self.after.entry(index).or_default().insert_str(0, text);
        }
    }

    pub(crate) fn replace_bytes(&mut self, start: usize, end: usize, text: String) {
        self.outside.insert(start, (end, text));
    }

    /// The tokens of `start..end` with the changes made so far, on one line.
    pub(crate) fn render(&self, start: usize, end: usize) -> String {
        let mut text = String::new();
        for index in start..end {
            if index > start && self.tokens.token(index - 1).end < self.tokens.token(index).start {
                text.push(' ');
            }
            self.parts(index).iter().for_each(|part| text.push_str(part));
        }
        text
    }

    fn parts<'s>(&'s self, index: usize) -> [&'s str; 3] {
        let inserted = |map: &'s HashMap<usize, String>| map.get(&index).map_or("", String::as_str);
        [inserted(&self.before), self.replaced.get(&index).map_or_else(|| self.tokens.text(index), String::as_str), inserted(&self.after)]
    }

    /// The whole text, changed.
    pub(crate) fn apply(self) -> String {
        let source = self.tokens.source();
        let mut text = String::with_capacity(source.len() + source.len() / 4);
        let mut from = 0;
        for index in 0..self.tokens.len() {
            let token = self.tokens.token(index);
            self.gap(&mut text, from, token.start);
            self.parts(index).iter().for_each(|part| text.push_str(part));
            from = token.end;
        }
        self.gap(&mut text, from, source.len());
        text
    }

    fn gap(&self, text: &mut String, start: usize, end: usize) {
        let mut from = start;
        for (&start, (stop, replacement)) in self.outside.range(start..end) {
            text.push_str(&self.tokens.source()[from..start]);
            text.push_str(replacement);
            from = *stop;
        }
        text.push_str(&self.tokens.source()[from..end]);
    }
}
