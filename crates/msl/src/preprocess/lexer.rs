//! From characters to preprocessing tokens.

use std::rc::Rc;

use super::token::Kind;

/// Longest first.
const PUNCTUATION: &[&str] = &[
    "%:%:", "...", "->*", "<<=", ">>=", "##", "::", ".*", "->", "++", "--", "<<", ">>", "<=", ">=", "==", "!=", "&&", "||", "+=", "-=", "*=", "/=",
    "%=", "^=", "&=", "|=", "<:", ":>", "<%", "%>", "%:",
];

/// A token's bytes and place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) kind: Kind,
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) line: u32,
    /// From 1.
    pub(super) column: u32,
    pub(super) space: bool,
    pub(super) first: bool,
}

/// A place in a text whose spliced lines are joined.
pub(super) struct Lexer {
    text: Rc<str>,
    /// Where lines were joined: a backslash and the line's end stood before that offset.
    splices: Vec<usize>,
    passed: usize,
    at: usize,
    line: u32,
    line_start: usize,
    first: bool,
    /// The line of a comment that does not end.
    pub(super) open_comment: Option<u32>,
}

impl Lexer {
    pub(super) fn new(text: &str) -> Self {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let (text, splices) = if text.contains(['\\', '\r']) { join_lines(text) } else { (text.into(), Vec::new()) };
        Self { text, splices, passed: 0, at: 0, line: 1, line_start: 0, first: true, open_comment: None }
    }

    pub(super) fn text(&self) -> Rc<str> {
        self.text.clone()
    }

    /// The line that is being read, from 1.
    pub(super) fn line(&self) -> u32 {
        self.line
    }

    /// The next token; none at the text's end.
    pub(super) fn token(&mut self) -> Option<Span> {
        let space = self.skip_space(true);
        self.take(space)
    }

    /// The next token of this line.
    pub(super) fn token_in_line(&mut self) -> Option<Span> {
        let space = self.skip_space(false);
        if self.byte(0) == b'\n' { None } else { self.take(space) }
    }

    /// Whether the next token is `(`. Nothing is read.
    pub(super) fn paren_follows(&mut self) -> bool {
        let (passed, at, line, line_start, first) = (self.passed, self.at, self.line, self.line_start, self.first);
        self.skip_space(true);
        let follows = self.byte(0) == b'(';
        (self.passed, self.at, self.line, self.line_start, self.first) = (passed, at, line, line_start, first);
        follows
    }

    /// `<name>` or `"name"` in this line, the name without its quotes; none, and nothing is read, if something else stands there.
    pub(super) fn header_name(&mut self) -> Option<(String, bool)> {
        self.skip_space(false);
        let close = match self.byte(0) {
            b'<' => '>',
            b'"' => '"',
            _ => return None,
        };
        let rest = self.text.get(self.at + 1..)?;
        let length = rest.find([close, '\n']).filter(|&end| rest[end..].starts_with(close))?;
        let name = rest[..length].to_owned();
        self.at += length + 2;
        self.first = false;
        Some((name, close == '"'))
    }

    /// What is left of this line, without white space around it.
    pub(super) fn rest_of_line(&mut self) -> &str {
        let start = self.at;
        while self.at < self.text.len() && self.byte(0) != b'\n' {
            self.at += 1;
        }
        self.text[start..self.at].trim()
    }

    /// The word after the next `#` that is the first of its line; empty if there is none. At the text's end, nothing.
    pub(super) fn next_directive(&mut self) -> Option<(usize, usize)> {
        loop {
            let token = self.token()?;
            if token.first && self.is_hash(&token) {
                return Some(self.token_in_line().filter(|word| word.kind == Kind::Identifier).map_or((0, 0), |word| (word.start, word.end)));
            }
        }
    }

    pub(super) fn is_hash(&self, token: &Span) -> bool {
        matches!(&self.text[token.start..token.end], "#" | "%:")
    }

    fn byte(&self, ahead: usize) -> u8 {
        self.text.as_bytes().get(self.at + ahead).copied().unwrap_or(if ahead == 0 && self.at >= self.text.len() { b'\n' } else { 0 })
    }

    /// Skips white space and comments; says whether there were any.
    fn skip_space(&mut self, newlines: bool) -> bool {
        let start = self.at;
        while self.at < self.text.len() {
            match self.byte(0) {
                b'\n' if newlines => {
                    self.newline();
                    self.first = true;
                }
                b' ' | b'\t' | 0x0b | 0x0c | 0 => self.at += 1,
                b'/' if self.byte(1) == b'/' => {
                    let rest = &self.text.as_bytes()[self.at..];
                    self.at += rest.iter().position(|&byte| byte == b'\n').unwrap_or(rest.len());
                }
                b'/' if self.byte(1) == b'*' => self.comment(),
                _ => break,
            }
        }
        self.pass_splices();
        self.at > start
    }

    fn comment(&mut self) {
        let line = self.line;
        self.at += 2;
        while self.at < self.text.len() {
            match self.byte(0) {
                b'*' if self.byte(1) == b'/' => {
                    self.at += 2;
                    return;
                }
                b'\n' => self.newline(),
                _ => self.at += 1,
            }
        }
        self.open_comment = self.open_comment.or(Some(line));
    }

    fn newline(&mut self) {
        self.pass_splices();
        self.at += 1;
        self.line += 1;
        self.line_start = self.at;
    }

    fn pass_splices(&mut self) {
        while let Some(&splice) = self.splices.get(self.passed).filter(|&&splice| splice <= self.at) {
            self.passed += 1;
            self.line += 1;
            self.line_start = splice;
        }
    }

    fn take(&mut self, space: bool) -> Option<Span> {
        if self.at >= self.text.len() {
            return None;
        }
        let (start, line, column, first) = (self.at, self.line, (self.at - self.line_start + 1) as u32, self.first);
        let (kind, length) = token_at(&self.text[start..]);
        if kind == Kind::Literal {
            // A raw string may hold lines.
            while let Some(length) = self.text[self.at..start + length].find('\n') {
                self.at += length;
                self.newline();
            }
        }
        self.at = start + length;
        self.first = false;
        Some(Span { kind, start, end: self.at, line, column, space, first })
    }
}

/// The kind and length of the token that `text`, which is neither empty nor starts with white space, starts with.
pub(super) fn token_at(text: &str) -> (Kind, usize) {
    let bytes = text.as_bytes();
    let first = bytes.first().copied().unwrap_or(0);
    let second = bytes.get(1).copied().unwrap_or(0);
    if first.is_ascii_digit() || first == b'.' && second.is_ascii_digit() {
        return (Kind::Number, number(bytes));
    }
    if is_word(first) {
        let length = bytes.iter().position(|&byte| !is_word(byte)).unwrap_or(bytes.len());
        return match (&text[..length], bytes.get(length)) {
            ("R" | "LR" | "uR" | "UR" | "u8R", Some(b'"')) => raw_string(text, length),
            ("L" | "u" | "U" | "u8", Some(b'"' | b'\'')) => quoted(bytes, length),
            _ => (Kind::Identifier, length),
        };
    }
    if first == b'"' || first == b'\'' {
        return quoted(bytes, 0);
    }
    if text.starts_with("<::") && !matches!(bytes.get(3), Some(b':' | b'>')) {
        return (Kind::Punctuation, 1);
    }
    let alone = matches!(first, b'\\' | b'@' | b'`') || !first.is_ascii_graphic();
    let found = PUNCTUATION.iter().filter(|_| second.is_ascii_punctuation()).find(|operator| text.starts_with(**operator));
    (if alone { Kind::Other } else { Kind::Punctuation }, found.map_or(1, |operator| operator.len()))
}

pub(super) fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$' || byte >= 0x80
}

fn number(bytes: &[u8]) -> usize {
    let mut at = 1;
    while let Some(&byte) = bytes.get(at) {
        let sign = matches!(byte, b'+' | b'-') && matches!(bytes[at - 1], b'e' | b'E' | b'p' | b'P');
        let separator = byte == b'\'' && bytes.get(at + 1).is_some_and(|next| next.is_ascii_alphanumeric() || *next == b'_');
        if !(is_word(byte) || byte == b'.' || sign || separator) {
            break;
        }
        at += 1;
    }
    at
}

/// A literal whose quote stands at `at`; without its end in the line, the line's rest.
fn quoted(bytes: &[u8], mut at: usize) -> (Kind, usize) {
    let quote = bytes[at];
    at += 1;
    while let Some(&byte) = bytes.get(at).filter(|&&byte| byte != b'\n') {
        at += 1;
        if byte == quote {
            return (Kind::Literal, at);
        }
        if byte == b'\\' && bytes.get(at).is_some_and(|&next| next != b'\n') {
            at += 1;
        }
    }
    (Kind::Other, at)
}

fn raw_string(text: &str, at: usize) -> (Kind, usize) {
    let rest = &text[at + 1..];
    let delimiter = rest.find(['(', ')', '\\', ' ', '\n', '"']).filter(|&end| end <= 16 && rest[end..].starts_with('(')).map(|end| &rest[..end]);
    let Some(delimiter) = delimiter else { return quoted(text.as_bytes(), at) };
    let close = format!("){delimiter}\"");
    rest.find(&close).map_or((Kind::Other, text.len()), |end| (Kind::Literal, at + 1 + end + close.len()))
}

/// Joins lines that end in a backslash (white space may follow it), with where that was done, and makes every line end `\n`.
fn join_lines(text: &str) -> (Rc<str>, Vec<usize>) {
    let (mut joined, mut splices) = (String::with_capacity(text.len()), Vec::new());
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    for line in text.split_inclusive('\n') {
        match line.strip_suffix('\n').and_then(|line| line.trim_end_matches([' ', '\t', '\x0b', '\x0c']).strip_suffix('\\')) {
            Some(line) => {
                joined.push_str(line);
                splices.push(joined.len());
            }
            None => joined.push_str(line),
        }
    }
    (joined.into(), splices)
}
