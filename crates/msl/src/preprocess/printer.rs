//! The text of the tokens, each in its own line and, where it can be, column.

use std::fmt::Write;

use super::{
    lexer,
    queries::quoted,
    token::{EMPTY, Kind, Name, Names, Token},
};

/// Up to this many empty lines are written rather than a line marker.
const EMPTY_LINES: u32 = 8;

pub(super) struct Printer {
    text: String,
    file: Name,
    line: u32,
    /// Where the line starts in the text.
    line_start: usize,
    last: Option<Token>,
}

impl Printer {
    pub(super) fn new(name: &str) -> Self {
        let text = format!("# 1 {}\n", quoted(name));
        Self { line_start: text.len(), text, file: EMPTY, line: 0, last: None }
    }

    pub(super) fn len(&self) -> usize {
        self.text.len()
    }

    pub(super) fn finish(mut self) -> String {
        if !self.text.ends_with('\n') {
            self.text.push('\n');
        }
        self.text
    }

    pub(super) fn print(&mut self, token: &Token, names: &Names) {
        let line = match token.kind {
            Kind::Pragma => Some(format!("#pragma {}", names.text(token.text))),
            Kind::Include => Some(format!("#include <{}>", names.text(token.text))),
            Kind::Identifier | Kind::Number | Kind::Literal | Kind::Punctuation | Kind::Other | Kind::Placemarker | Kind::End => None,
        };
        if let Some(line) = line {
            self.end_line();
            self.move_to(token, names);
            self.text.push_str(&line);
            self.end_line();
            return;
        }
        self.move_to(token, names);
        self.space(token, names);
        let text = names.text(token.text);
        self.text.push_str(text);
        let lines = text.bytes().filter(|&byte| byte == b'\n').count();
        if lines > 0 {
            self.line += lines as u32;
            self.line_start = self.text.len() - text.rsplit('\n').next().map_or(0, str::len);
        }
        self.last = Some(*token);
    }

    fn end_line(&mut self) {
        if self.text.len() > self.line_start {
            self.text.push('\n');
            self.line += 1;
            self.line_start = self.text.len();
            self.last = None;
        }
    }

    fn move_to(&mut self, token: &Token, names: &Names) {
        if token.file == self.file && token.line == self.line {
            return;
        }
        if token.file == self.file && token.line > self.line && token.line - self.line <= EMPTY_LINES {
            for _ in self.line..token.line {
                self.text.push('\n');
            }
        } else {
            self.end_line();
            let _ = writeln!(self.text, "# {} {}", token.line, quoted(names.text(token.file)));
        }
        (self.file, self.line, self.line_start, self.last) = (token.file, token.line, self.text.len(), None);
    }

    /// What must stand before the token so that it is read as itself, and what can so that it stands where it was written.
    fn space(&mut self, token: &Token, names: &Names) {
        let written = (token.column as usize).saturating_sub(1);
        let here = self.text.len() - self.line_start;
        let Some(last) = &self.last else {
            self.text.extend(std::iter::repeat_n(' ', written.saturating_sub(here)));
            return;
        };
        if token.space {
            self.text.extend(std::iter::repeat_n(' ', written.saturating_sub(here).max(1)));
            return;
        }
        let before = names.text(last.text);
        let touching = !last.expanded && !token.expanded && token.column as usize == last.column as usize + before.len();
        if !touching && runs_together(before, names.text(token.text)) {
            self.text.push(' ');
        }
    }
}

/// Whether two tokens without space between them would be read as others.
fn runs_together(left: &str, right: &str) -> bool {
    let bracket = |text: &str| matches!(text, "(" | ")" | "[" | "]" | "{" | "}" | ";" | ",");
    if bracket(left) || bracket(right) {
        return false;
    }
    // Two dots alone are no token, three are.
    left == "." && right.starts_with('.')
        || lexer::token_at(&format!("{left}{right}")).1 != left.len()
        || left == "/" && right.starts_with(['/', '*'])
}
