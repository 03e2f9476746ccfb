//! Replacing macros, and collecting their arguments.

use std::rc::Rc;

use elinvar_core::Result;

use super::{
    definition::{Definition, Meaning},
    reader::Reader,
    token::{CLOSE, COMMA, DEFINED, Kind, OPEN, Token},
};

/// The arguments of a use, and where it ends.
pub(super) struct Arguments {
    pub(super) given: Vec<Vec<Token>>,
    /// Nothing was given for `...`, not even a comma before it.
    pub(super) rest_omitted: bool,
}

impl Reader<'_> {
    /// The next token after all replacements.
    pub(super) fn next(&mut self) -> Result<Token> {
        loop {
            let token = self.raw()?;
            if token.kind != Kind::Identifier || token.painted {
                return Ok(token);
            }
            if token.text == DEFINED && self.in_condition {
                return self.defined(&token);
            }
            let Some(definition) = self.definition(token.text) else { return Ok(token) };
            if definition.active.get() {
                return Ok(Token { painted: true, ..token });
            }
            let definition = definition.clone();
            if definition.takes_arguments() && !self.paren_follows() {
                return Ok(token);
            }
            if !token.expanded {
                self.use_ends = token.line;
            }
            if let Some(answer) = self.replace(token, definition)? {
                return Ok(answer);
            }
        }
    }

    /// Replaces the macro that `token` names: by a token, or by what is read next.
    fn replace(&mut self, token: Token, definition: Rc<Definition>) -> Result<Option<Token>> {
        let body = match &definition.meaning {
            Meaning::Query(query) => return self.answer(*query, &token),
            Meaning::Object(body) => self.object(body, &token)?,
            Meaning::Function { parameters, variadic, body } => {
                let arguments = self.arguments(&token, *variadic, *parameters)?;
                self.call(body, *variadic, arguments, &token)?
            }
        };
        if body.is_empty() {
            self.pending_space |= token.space;
        } else {
            self.push(body, definition, &token)?;
        }
        Ok(None)
    }

    /// `defined NAME` or `defined(NAME)`.
    fn defined(&mut self, at: &Token) -> Result<Token> {
        let mut name = self.raw()?;
        let parenthesised = name.text == OPEN;
        if parenthesised {
            name = self.raw()?;
        }
        if name.kind != Kind::Identifier || parenthesised && self.raw()?.text != CLOSE {
            return Err(self.error(at, "`defined` is not followed by a macro's name"));
        }
        let text = if self.definition(name.text).is_some() { "1" } else { "0" };
        Ok(Token { kind: Kind::Number, text: self.names.number(text), ..*at })
    }

    /// The arguments of the macro that `of` names, which takes `parameters`.
    fn arguments(&mut self, of: &Token, variadic: bool, parameters: usize) -> Result<Arguments> {
        let mut given = self.collect(of, if variadic { parameters } else { usize::MAX })?;
        if parameters == 0 && given.len() == 1 && given[0].is_empty() {
            given.clear();
        }
        let alone = variadic && parameters == 1 && given[0].is_empty();
        let rest_omitted = alone || variadic && given.len() + 1 == parameters;
        if rest_omitted && !alone {
            given.push(Vec::new());
        }
        if given.len() == parameters {
            return Ok(Arguments { given, rest_omitted });
        }
        let (name, least) = (self.names.text(of.text), if variadic { "at least " } else { "" });
        let needed = parameters - usize::from(variadic);
        Err(self.error(of, format!("the macro `{name}` takes {least}{needed} argument{}, found {}", if needed == 1 { "" } else { "s" }, given.len())))
    }

    /// Reads `(…)`: what stands between the commas outside inner parentheses. The last of `most` keeps its commas.
    pub(super) fn collect(&mut self, of: &Token, most: usize) -> Result<Vec<Vec<Token>>> {
        let files = self.files.len();
        self.raw()?;
        let (mut given, mut last, mut depth) = (Vec::new(), Vec::new(), 1_usize);
        loop {
            let mut token = self.raw()?;
            if token.kind == Kind::End || self.files.len() < files {
                let name = self.names.text(of.text);
                return Err(self.error(of, format!("the arguments of the macro `{name}` do not end; a `)` is missing")));
            }
            match token.text {
                OPEN => depth += 1,
                CLOSE => depth -= 1,
                COMMA if depth == 1 && given.len() + 1 < most => {
                    given.push(std::mem::take(&mut last));
                    continue;
                }
                _ => {}
            }
            if depth == 0 {
                if !token.expanded {
                    self.use_ends = token.line;
                }
                given.push(last);
                return Ok(given);
            }
            token.painted |= token.kind == Kind::Identifier && self.definition(token.text).is_some_and(|found| found.active.get());
            token.space |= token.first;
            (token.first, token.column) = (false, 0);
            last.push(token);
        }
    }
}
