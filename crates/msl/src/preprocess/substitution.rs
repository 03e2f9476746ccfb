//! From a replacement and arguments to tokens: arguments put in, `#` and `##`.

use elinvar_core::Result;

use super::{
    definition::Part,
    expansion::Arguments,
    lexer,
    reader::Reader,
    token::{COMMA, EMPTY, Kind, Token},
};

/// An argument, as written and, once asked for, with its macros replaced.
pub(super) struct Argument {
    written: Vec<Token>,
    expanded: Option<Vec<Token>>,
}

/// What a replacement is filled with.
struct Filling<'a> {
    arguments: &'a mut [Argument],
    /// The index of the argument for `...`.
    rest: Option<usize>,
    rest_omitted: bool,
    /// The use of the macro.
    at: &'a Token,
}

impl Reader<'_> {
    /// The replacement of an object-like macro used at `at`.
    pub(super) fn object(&mut self, body: &[Part], at: &Token) -> Result<Vec<Token>> {
        self.fill(body, &mut Filling { arguments: &mut [], rest: None, rest_omitted: false, at })
    }

    /// The replacement of a function-like macro used at `at`.
    pub(super) fn call(&mut self, body: &[Part], variadic: bool, arguments: Arguments, at: &Token) -> Result<Vec<Token>> {
        let rest = arguments.given.len().checked_sub(1).filter(|_| variadic);
        let mut given: Vec<Argument> = arguments.given.into_iter().map(|written| Argument { written, expanded: None }).collect();
        self.fill(body, &mut Filling { arguments: &mut given, rest, rest_omitted: arguments.rest_omitted, at })
    }

    fn fill(&mut self, body: &[Part], filling: &mut Filling<'_>) -> Result<Vec<Token>> {
        let (at, ends) = (*filling.at, self.use_ends);
        let mut filled = self.sequence(body, filling)?;
        // Macros used in arguments ended elsewhere.
        self.use_ends = ends;
        let cost = filled.iter().map(|token| 8 + self.names.text(token.text).len()).sum();
        self.charge(cost, &at)?;
        for token in &mut filled {
            (token.file, token.line, token.column, token.first, token.expanded) = (at.file, at.line, 0, false, true);
        }
        if let Some(first) = filled.first_mut() {
            (first.column, first.first, first.space) = (at.column, at.first, at.space);
        }
        Ok(filled)
    }

    fn sequence(&mut self, parts: &[Part], filling: &mut Filling<'_>) -> Result<Vec<Token>> {
        let mut filled: Vec<Token> = Vec::new();
        for (index, part) in parts.iter().enumerate() {
            let pasted = index > 0 && matches!(parts[index - 1], Part::Paste);
            let pastes = matches!(parts.get(index + 1), Some(Part::Paste));
            let piece = match part {
                Part::Paste => continue,
                Part::Token(token) => vec![*token],
                Part::Quoted(argument, at) => vec![self.quote(&filling.arguments[*argument].written, at, filling.at)?],
                Part::Argument(argument, at) => self.put(*argument, at, pasted || pastes, filling)?,
                Part::Optional(inner, at) => self.optional(inner, at, filling)?,
            };
            let mut piece = piece.into_iter();
            if pasted && let Some(left) = filled.pop() {
                let is_rest = matches!(part, Part::Argument(argument, _) if Some(*argument) == filling.rest);
                match piece.next() {
                    // GNU: the comma goes if there are no arguments for `...`, and else is not joined with them.
                    Some(_) if is_rest && left.text == COMMA && filling.rest_omitted => filled.push(placemarker(&left)),
                    Some(right) if is_rest && left.text == COMMA => filled.extend([left, Token { space: false, ..right }]),
                    Some(right) => filled.push(self.paste(&left, &right, filling.at)?),
                    None => filled.push(left),
                }
            }
            filled.extend(piece);
        }
        filled.retain(|token| token.kind != Kind::Placemarker);
        Ok(filled)
    }

    /// An argument where the parameter stands: as written beside `##`, else with its macros replaced.
    fn put(&mut self, index: usize, at: &Token, as_written: bool, filling: &mut Filling<'_>) -> Result<Vec<Token>> {
        let argument = &mut filling.arguments[index];
        let mut put = if as_written {
            if argument.written.is_empty() { vec![placemarker(at)] } else { argument.written.clone() }
        } else if let Some(expanded) = &argument.expanded {
            expanded.clone()
        } else {
            let written = argument.written.clone();
            let expanded = self.expand(written)?;
            filling.arguments[index].expanded.insert(expanded).clone()
        };
        if let Some(first) = put.first_mut() {
            first.space = at.space;
        }
        self.charge(8 * put.len(), filling.at)?;
        Ok(put)
    }

    /// What `__VA_OPT__` holds, if there are tokens for `...`.
    fn optional(&mut self, inner: &[Part], at: &Token, filling: &mut Filling<'_>) -> Result<Vec<Token>> {
        let Some(rest) = filling.rest.filter(|_| !inner.is_empty()) else { return Ok(vec![placemarker(at)]) };
        let mut put = match self.put(rest, at, false, filling)?.is_empty() {
            true => Vec::new(),
            false => self.sequence(inner, filling)?,
        };
        match put.first_mut() {
            Some(first) => first.space = at.space,
            None => put.push(placemarker(at)),
        }
        Ok(put)
    }

    /// `#`: the tokens as they are spelled, in a string that stands at `place`.
    fn quote(&mut self, tokens: &[Token], place: &Token, at: &Token) -> Result<Token> {
        let mut text = String::from("\"");
        for (index, token) in tokens.iter().enumerate() {
            if index > 0 && token.space {
                text.push(' ');
            }
            for character in self.names.text(token.text).chars() {
                match character {
                    '"' | '\\' if token.kind == Kind::Literal => text.extend(['\\', character]),
                    '\n' => text.push_str("\\n"),
                    _ => text.push(character),
                }
            }
        }
        if text.bytes().rev().take_while(|&byte| byte == b'\\').count() % 2 == 1 {
            text.pop();
        }
        text.push('"');
        self.charge(text.len(), at)?;
        Ok(Token { kind: Kind::Literal, text: self.names.number(&text), ..*place })
    }

    /// `left ## right`
    fn paste(&mut self, left: &Token, right: &Token, at: &Token) -> Result<Token> {
        if right.kind == Kind::Placemarker {
            return Ok(*left);
        }
        if left.kind == Kind::Placemarker {
            return Ok(Token { space: left.space, ..*right });
        }
        let text = format!("{}{}", self.names.text(left.text), self.names.text(right.text));
        self.charge(text.len(), at)?;
        let (kind, length) = lexer::token_at(&text);
        if length != text.len()
            || matches!(kind, Kind::Other | Kind::Pragma)
            || [left.kind, right.kind].iter().any(|kind| matches!(kind, Kind::Pragma | Kind::Include))
        {
            return Err(self.error(at, format!("`##` makes `{text}`, which is no token; it joins two tokens to one")));
        }
        Ok(Token { kind, text: self.names.number(&text), painted: false, ..*left })
    }
}

fn placemarker(at: &Token) -> Token {
    Token { kind: Kind::Placemarker, text: EMPTY, ..*at }
}
