//! Where tokens come from: the replacements being read, and below them the files.

use std::{
    collections::{HashMap, HashSet},
    rc::Rc,
};

use elinvar_core::{Error, Result};

use super::{
    definition::{Definition, Meaning, Query},
    file::File,
    includes::Includes,
    lexer::{Lexer, Span},
    token::{EMPTY, Kind, Name, Names, Token},
};

/// What a text may cost: a byte for each character and eight for each token, counted whenever a macro or an include makes them again.
const WORK: usize = 1 << 26;
/// How long the result may be, in bytes.
const OUTPUT: usize = 1 << 26;
/// How deep arguments with macros in them may nest.
const NESTING: usize = 128;
/// How many macros may be under way at once.
const UNDER_WAY: usize = 4096;

pub(super) struct Reader<'a> {
    pub(super) names: Names,
    /// By the name's number.
    macros: Vec<Option<Rc<Definition>>>,
    pub(super) pushed: HashMap<Name, Vec<Option<Rc<Definition>>>>,
    pub(super) files: Vec<File>,
    /// Replacements, the innermost last.
    pub(super) replacements: Vec<Replacement>,
    pub(super) includes: &'a dyn Includes,
    /// Files that are not included again.
    pub(super) once: HashSet<String>,
    pub(super) counter: u32,
    /// The tokens are those of a condition, where `defined` is an operator.
    pub(super) in_condition: bool,
    /// The line where the outermost macro's use ends.
    pub(super) use_ends: u32,
    /// A macro that was replaced by nothing had space before it.
    pub(super) pending_space: bool,
    nesting: usize,
    work: usize,
}

pub(super) struct Replacement {
    tokens: Vec<Token>,
    at: usize,
    /// None: nothing below is seen before this is read to its end.
    of: Option<Rc<Definition>>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(name: &str, text: &str, includes: &'a dyn Includes) -> Self {
        let mut reader = Self {
            names: Names::new(),
            macros: Vec::new(),
            pushed: HashMap::new(),
            files: Vec::new(),
            replacements: Vec::new(),
            includes,
            once: HashSet::new(),
            counter: 0,
            in_condition: false,
            use_ends: 0,
            pending_space: false,
            nesting: 0,
            work: 0,
        };
        reader.push_file(name, text);
        for (name, query) in Query::ALL {
            let name = reader.names.number(name);
            reader.define(Definition { name, meaning: Meaning::Query(*query), active: false.into() });
        }
        reader
    }

    /// Defines `name` (with its parameters, if any) as `body`.
    pub(super) fn predefine(&mut self, name: &str, body: &str) -> Result<()> {
        let at = Token { file: self.names.number("<predefined>"), line: 1, ..self.nothing() };
        let line = self.lex(&format!("{name} {body}"), &at);
        let definition = Definition::read(&line, &self.names).map_err(|found| self.error(&at, format!("`{name}`: {found}")))?;
        self.define(definition);
        Ok(())
    }

    pub(super) fn push_file(&mut self, path: &str, text: &str) {
        let path = self.names.number(path);
        self.files.push(File { lexer: Lexer::new(text), path, shown: path, shift: 0, conditions: Vec::new() });
    }

    pub(super) fn definition(&self, name: Name) -> Option<&Rc<Definition>> {
        self.macros.get(name.index()).and_then(Option::as_ref)
    }

    pub(super) fn define(&mut self, definition: Definition) {
        let name = definition.name;
        self.set(name, Some(Rc::new(definition)));
    }

    pub(super) fn set(&mut self, name: Name, definition: Option<Rc<Definition>>) {
        if self.macros.len() <= name.index() {
            self.macros.resize(name.index() + 1, None);
        }
        self.macros[name.index()] = definition;
    }

    /// The next token before any replacement of it.
    pub(super) fn raw(&mut self) -> Result<Token> {
        let mut token = self.unspaced()?;
        token.space |= std::mem::take(&mut self.pending_space);
        Ok(token)
    }

    fn unspaced(&mut self) -> Result<Token> {
        while let Some(innermost) = self.replacements.last_mut() {
            if let Some(token) = innermost.tokens.get(innermost.at) {
                innermost.at += 1;
                return Ok(*token);
            }
            let Some(read) = &innermost.of else { return Ok(self.nothing()) };
            read.active.set(false);
            self.replacements.pop();
        }
        self.file_token()
    }

    fn file_token(&mut self) -> Result<Token> {
        while let Some(file) = self.files.last_mut() {
            let Some(span) = file.lexer.token() else {
                self.end_file()?;
                if self.files.len() == 1 {
                    break;
                }
                self.files.pop();
                continue;
            };
            if !(span.first && file.lexer.is_hash(&span)) {
                return Ok(self.token(&span));
            }
            let at = self.token(&span);
            if let Some(pragma) = self.directive(&at)? {
                return Ok(pragma);
            }
        }
        Ok(self.nothing())
    }

    fn end_file(&mut self) -> Result<()> {
        let Some(file) = self.files.last() else { return Ok(()) };
        let at = |line| Token { file: file.shown, line: file.shown_line(line), ..self.nothing() };
        if let Some(line) = file.lexer.open_comment {
            return Err(self.error(&at(line), "the comment does not end; `*/` is missing"));
        }
        match file.conditions.last() {
            Some(open) => Err(self.error(&at(open.line), "the condition does not end; `#endif` is missing")),
            None => Ok(()),
        }
    }

    fn token(&mut self, span: &Span) -> Token {
        let Some(file) = self.files.last() else { return self.nothing() };
        let text = self.names.number(&file.lexer.text()[span.start..span.end]);
        Token {
            kind: span.kind,
            text,
            file: file.shown,
            line: file.shown_line(span.line),
            column: span.column,
            space: span.space,
            first: span.first,
            expanded: false,
            painted: false,
        }
    }

    /// The rest of the line that is being read.
    pub(super) fn line(&mut self) -> Vec<Token> {
        let mut line = Vec::new();
        while let Some(span) = self.files.last_mut().and_then(|file| file.lexer.token_in_line()) {
            line.push(self.token(&span));
        }
        line
    }

    /// The tokens of a text that is no file, as if they stood at `at`.
    pub(super) fn lex(&mut self, text: &str, at: &Token) -> Vec<Token> {
        let (mut lexer, mut tokens) = (Lexer::new(text), Vec::new());
        while let Some(span) = lexer.token() {
            let text = self.names.number(&lexer.text()[span.start..span.end]);
            tokens.push(Token { kind: span.kind, text, column: 0, space: span.space, first: false, expanded: true, painted: false, ..*at });
        }
        tokens
    }

    /// Whether an opening parenthesis comes next. Nothing is read.
    pub(super) fn paren_follows(&mut self) -> bool {
        for replacement in self.replacements.iter().rev() {
            if let Some(next) = replacement.tokens.get(replacement.at) {
                return next.text == super::token::OPEN;
            }
            if replacement.of.is_none() {
                return false;
            }
        }
        self.files.last_mut().is_some_and(|file| file.lexer.paren_follows())
    }

    /// Reads `tokens`, the replacement of the macro used at `at`, before all else.
    pub(super) fn push(&mut self, tokens: Vec<Token>, of: Rc<Definition>, at: &Token) -> Result<()> {
        if self.replacements.len() == UNDER_WAY {
            return Err(self.error(at, format!("more than {UNDER_WAY} macros stand in each other's replacements; write them with fewer levels")));
        }
        of.active.set(true);
        self.replacements.push(Replacement { tokens, at: 0, of: Some(of) });
        Ok(())
    }

    /// Expands `tokens` as if nothing followed them.
    pub(super) fn expand(&mut self, tokens: Vec<Token>) -> Result<Vec<Token>> {
        if self.nesting == NESTING {
            let at = tokens.first().copied().unwrap_or(self.nothing());
            return Err(self.error(&at, format!("macros nest deeper than {NESTING} in arguments of macros; write them with fewer levels")));
        }
        self.nesting += 1;
        let space = std::mem::take(&mut self.pending_space);
        self.replacements.push(Replacement { tokens, at: 0, of: None });
        let mut expanded = Vec::new();
        loop {
            let token = self.next()?;
            if token.kind == Kind::End {
                break;
            }
            expanded.push(token);
        }
        self.replacements.pop();
        self.pending_space = space;
        self.nesting -= 1;
        Ok(expanded)
    }

    /// Counts what a macro or an include made at `at`.
    pub(super) fn charge(&mut self, cost: usize, at: &Token) -> Result<()> {
        self.work = self.work.saturating_add(cost);
        if self.work <= WORK {
            Ok(())
        } else {
            Err(self.error(at, "macros and includes make more text than a kernel can need; do they multiply each other?"))
        }
    }

    /// Rejects results that grow without bounds.
    pub(super) fn check_output(&self, length: usize) -> Result<()> {
        if length <= OUTPUT {
            return Ok(());
        }
        Err(self.error(&self.here(), format!("the preprocessed text is longer than {OUTPUT} bytes; do macros and includes multiply each other?")))
    }

    /// A token that is none.
    pub(super) fn nothing(&self) -> Token {
        let (kind, text) = (Kind::End, EMPTY);
        Token { kind, text, file: EMPTY, line: 0, column: 0, space: false, first: false, expanded: false, painted: false }
    }

    /// The line that is being read.
    pub(super) fn here(&self) -> Token {
        let Some(file) = self.files.last() else { return self.nothing() };
        Token { file: file.shown, line: file.shown_line(file.lexer.line()), ..self.nothing() }
    }

    pub(super) fn error(&self, at: &Token, message: impl AsRef<str>) -> Error {
        Error::compile_failed(format!("{}:{}: {}", self.names.text(at.file), at.line, message.as_ref()))
    }
}
