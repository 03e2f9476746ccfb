//! The lexer: the significant tokens of a preprocessed text, with what stands between them left where it is.

use crate::location::{LineMap, Location};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TokenKind {
    Identifier,
    Number,
    /// A string or character literal.
    Literal,
    Punctuation,
    /// Past the last token.
    End,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Token {
    pub(crate) kind: TokenKind,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// A preprocessed text and its tokens. White space, line markers and pragmas are not tokens.
#[derive(Clone, Debug)]
pub(crate) struct Tokens {
    source: String,
    items: Vec<Token>,
    /// Byte ranges of `#pragma` and `#include` lines.
    directives: Vec<(usize, usize)>,
    /// For each bracket `( [ {`, the index of its partner; for every other token, itself.
    partners: Vec<usize>,
    lines: LineMap,
}

/// Operators of two characters. `>>` and `<<` are left separate: template argument lists end with them.
const PAIRS: &[&str] = &["==", "!=", "<=", ">=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "++", "--", "->", "::", "&&", "||", "##"];

impl Tokens {
    pub(crate) fn new(source: &str) -> Self {
        let mut lexer =
            Lexer { bytes: source.as_bytes(), at: 0, line_start: true, items: Vec::new(), directives: Vec::new(), lines: LineMap::default() };
        while lexer.at < lexer.bytes.len() {
            lexer.step(source);
        }
        let partners = partners(source, &lexer.items);
        Self { source: source.to_owned(), items: lexer.items, directives: lexer.directives, partners, lines: lexer.lines }
    }

    pub(crate) fn source(&self) -> &str {
        &self.source
    }

    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    pub(crate) fn directives(&self) -> &[(usize, usize)] {
        &self.directives
    }

    /// The token's place in the text; past the end, the text's end.
    pub(crate) fn token(&self, index: usize) -> Token {
        let end = self.source.len();
        self.items.get(index).copied().unwrap_or(Token { kind: TokenKind::End, start: end, end })
    }

    pub(crate) fn kind(&self, index: usize) -> TokenKind {
        self.token(index).kind
    }

    pub(crate) fn is_identifier(&self, index: usize) -> bool {
        self.kind(index) == TokenKind::Identifier
    }

    /// The token's text; empty past the end.
    pub(crate) fn text(&self, index: usize) -> &str {
        let token = self.token(index);
        &self.source[token.start..token.end]
    }

    /// The text of the token before `index`; empty at the start.
    pub(crate) fn before(&self, index: usize) -> &str {
        index.checked_sub(1).map_or("", |previous| self.text(previous))
    }

    pub(crate) fn location(&self, index: usize) -> Location {
        self.lines.location(&self.source, self.token(index).start)
    }

    /// The names of the files that the text is made of.
    pub(crate) fn files(&self) -> impl Iterator<Item = &str> {
        self.lines.files()
    }

    /// Whether `index` starts an attribute list `[[`.
    pub(crate) fn is_attribute(&self, index: usize) -> bool {
        self.text(index) == "[" && self.text(index + 1) == "[" && self.token(index).end == self.token(index + 1).start
    }

    /// The index after the group that `index` opens: `( )`, `[ ]`, `{ }` or, where it reads as one, `< >`; for any other token the next index.
    pub(crate) fn after(&self, index: usize) -> usize {
        match self.text(index) {
            "<" => self.after_angle(index).unwrap_or(index + 1),
            _ => self.partners.get(index).map_or(index, |&partner| partner) + 1,
        }
    }

    /// The index of the bracket that belongs to the one at `index`.
    pub(crate) fn partner(&self, index: usize) -> usize {
        self.partners.get(index).copied().unwrap_or(index)
    }

    /// The index after the `>` that closes the `<` at `index`, if the tokens between can be template arguments.
    pub(crate) fn after_angle(&self, index: usize) -> Option<usize> {
        let (mut depth, mut at) = (0_usize, index);
        while at < self.len() {
            match self.text(at) {
                "<" => depth += 1,
                ">" => {
                    depth -= 1;
                    if depth == 0 {
                        return Some(at + 1);
                    }
                }
                "(" | "[" | "{" => {
                    at = self.after(at);
                    continue;
                }
                ";" | ")" | "]" | "}" => return None,
                _ => {}
            }
            at += 1;
        }
        None
    }

    /// The `<` that the `>` before `end` closes, searched backwards.
    pub(crate) fn angle_start(&self, end: usize) -> Option<usize> {
        let (mut depth, mut at) = (0_usize, end);
        while at > 0 {
            at -= 1;
            match self.text(at) {
                ">" => depth += 1,
                "<" => {
                    depth -= 1;
                    if depth == 0 {
                        return Some(at);
                    }
                }
                ")" | "]" | "}" => at = self.partner(at),
                ";" | "(" | "[" | "{" => return None,
                _ => {}
            }
        }
        None
    }

    /// The ranges between the commas of `start..end` that no bracket encloses; angle brackets count where they read as template arguments.
    pub(crate) fn split(&self, start: usize, end: usize) -> Vec<(usize, usize)> {
        let (mut parts, mut from, mut at) = (Vec::new(), start, start);
        while at < end {
            match self.text(at) {
                "," => {
                    parts.push((from, at));
                    from = at + 1;
                    at += 1;
                }
                "<" => at = self.after(at).min(end).max(at + 1),
                _ => at = self.after(at),
            }
        }
        if from < end {
            parts.push((from, end));
        }
        parts
    }

    /// The first index in `start..end` outside brackets whose text is one of `stops`; `end` if there is none.
    pub(crate) fn find(&self, start: usize, end: usize, stops: &[&str]) -> usize {
        let mut at = start;
        while at < end {
            if stops.contains(&self.text(at)) {
                return at;
            }
            at = if matches!(self.text(at), "(" | "[" | "{") { self.after(at) } else { at + 1 };
        }
        end
    }

    /// The tokens of `start..end` in one line, a space between words only.
    pub(crate) fn join(&self, start: usize, end: usize) -> String {
        join((start..end.min(self.len())).map(|index| self.text(index)))
    }

    /// Adjacent string literals from `index` on, without their quotes, as one.
    pub(crate) fn string(&self, index: usize) -> String {
        let literals = (index..self.len()).take_while(|&at| self.kind(at) == TokenKind::Literal);
        literals.map(|at| self.text(at).trim_matches('"')).collect()
    }
}

/// Joins tokens, with spaces only where words or operators would run together and after commas.
pub(crate) fn join<'a>(words: impl Iterator<Item = &'a str>) -> String {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut joined = String::new();
    for word in words.filter(|word| !word.is_empty()) {
        if let (Some(last), Some(first)) = (joined.chars().last(), word.chars().next()) {
            let word_follows = is_word(first) && (is_word(last) || matches!(last, '*' | '&' | '>'));
            let runs_together = last == first && matches!(last, '>' | '<' | '&' | '-' | '+');
            if word_follows || runs_together || last == ',' {
                joined.push(' ');
            }
        }
        joined.push_str(word);
    }
    joined
}

fn partners(source: &str, items: &[Token]) -> Vec<usize> {
    let mut partners: Vec<usize> = (0..items.len()).collect();
    let mut open: Vec<(usize, &str)> = Vec::new();
    for (index, token) in items.iter().enumerate() {
        let closes = match &source[token.start..token.end] {
            text @ ("(" | "[" | "{") => {
                open.push((index, text));
                continue;
            }
            ")" => "(",
            "]" => "[",
            "}" => "{",
            _ => continue,
        };
        if let Some(&(start, text)) = open.last()
            && text == closes
        {
            open.pop();
            (partners[start], partners[index]) = (index, start);
        }
    }
    partners
}

struct Lexer<'a> {
    bytes: &'a [u8],
    at: usize,
    line_start: bool,
    items: Vec<Token>,
    directives: Vec<(usize, usize)>,
    lines: LineMap,
}

impl Lexer<'_> {
    fn peek(&self, ahead: usize) -> u8 {
        self.bytes.get(self.at + ahead).copied().unwrap_or(0)
    }

    fn step(&mut self, source: &str) {
        let (start, first) = (self.at, self.bytes[self.at]);
        if first.is_ascii_whitespace() {
            self.line_start |= first == b'\n';
            self.at += 1;
            return;
        }
        if first == b'#' && self.line_start {
            self.directive(source);
            return;
        }
        self.line_start = false;
        let kind = if is_word_start(first) {
            self.take_while(is_word);
            TokenKind::Identifier
        } else if first.is_ascii_digit() || first == b'.' && self.peek(1).is_ascii_digit() {
            self.number();
            TokenKind::Number
        } else if first == b'"' || first == b'\'' {
            self.quoted(first);
            TokenKind::Literal
        } else {
            let pair = source.get(start..start + 2).is_some_and(|text| PAIRS.contains(&text));
            self.at += if pair { 2 } else { 1 };
            TokenKind::Punctuation
        };
        self.items.push(Token { kind, start, end: self.at });
    }

    fn take_while(&mut self, accept: fn(u8) -> bool) {
        while self.at < self.bytes.len() && accept(self.bytes[self.at]) {
            self.at += 1;
        }
    }

    fn number(&mut self) {
        let hexadecimal = matches!(self.peek(1), b'x' | b'X');
        let exponents: &[u8] = if hexadecimal { b"pP" } else { b"eE" };
        self.at += 1;
        while self.at < self.bytes.len() {
            let (current, previous) = (self.bytes[self.at], self.bytes[self.at - 1]);
            let sign = matches!(current, b'+' | b'-') && exponents.contains(&previous);
            let separator = current == b'\'' && self.peek(1).is_ascii_alphanumeric();
            if !(is_word(current) || current == b'.' || sign || separator) {
                break;
            }
            self.at += 1;
        }
    }

    fn quoted(&mut self, quote: u8) {
        self.at += 1;
        while self.at < self.bytes.len() && self.bytes[self.at] != quote {
            self.at += if self.bytes[self.at] == b'\\' { 2 } else { 1 };
        }
        self.at = (self.at + 1).min(self.bytes.len());
    }

    /// A line that starts with `#`: a line marker, a pragma, a header of Metal's, or something the preprocessor should have taken.
    fn directive(&mut self, source: &str) {
        let start = self.at;
        self.take_while(|byte| byte != b'\n');
        let text = source[start + 1..self.at].trim();
        if text.starts_with("pragma") || text.starts_with("include") {
            self.directives.push((start, self.at));
        } else {
            self.lines.marker(self.at + 1, text.strip_prefix("line").unwrap_or(text).trim_start());
        }
    }
}

fn is_word_start(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || byte == b'_' || byte == b'$' || byte >= 0x80
}

fn is_word(byte: u8) -> bool {
    is_word_start(byte) || byte.is_ascii_digit()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(source: &str) -> Vec<String> {
        let tokens = Tokens::new(source);
        (0..tokens.len()).map(|index| tokens.text(index).to_owned()).collect()
    }

    #[test]
    fn numbers_take_their_suffixes_exponents_and_separators() {
        assert_eq!(texts("1.0e-5f+0x1.8p+3h-.5bf*1'000u 0xE+1"), ["1.0e-5f", "+", "0x1.8p+3h", "-", ".5bf", "*", "1'000u", "0xE", "+", "1"]);
    }

    #[test]
    fn shifts_stay_separate_and_other_pairs_do_not() {
        assert_eq!(texts("a>>b->c<=d"), ["a", ">", ">", "b", "->", "c", "<=", "d"]);
    }

    #[test]
    fn literals_hide_brackets() {
        let tokens = Tokens::new("f(\"a)\\\"\", ')')");
        assert_eq!(tokens.after(1), tokens.len());
    }

    #[test]
    fn line_markers_give_locations_and_pragmas_are_set_aside() {
        let tokens = Tokens::new("# 7 \"dir/a.metal\" 2\nx\n\n  y\n#pragma once\n# 1 \"b.h\"\nz");
        let places: Vec<String> = (0..3).map(|index| tokens.location(index).to_string()).collect();
        assert_eq!(places, ["dir/a.metal:7", "dir/a.metal:9", "b.h:1"]);
        assert_eq!(tokens.directives().len(), 1);
    }

    #[test]
    fn angles_close_only_where_template_arguments_can_stand() {
        let tokens = Tokens::new("a<b<c>, (d > e)> f; i < n;");
        assert_eq!(tokens.after(1), 13);
        let less = (0..tokens.len()).rfind(|&index| tokens.text(index) == "<").unwrap();
        assert_eq!(tokens.after_angle(less), None);
        assert_eq!(tokens.angle_start(13), Some(1));
    }

    #[test]
    fn unbalanced_brackets_do_not_lose_the_reader() {
        let tokens = Tokens::new("f(a]; }");
        assert_eq!((tokens.after(1), tokens.after(3), tokens.after(99)), (2, 4, 100));
    }
}
