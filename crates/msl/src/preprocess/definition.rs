//! What `#define` says.

use std::cell::Cell;

use super::token::{CLOSE, COMMA, DEFINED, ELLIPSIS, HASH, HASH_DIGRAPH, Kind, Name, Names, OPEN, PASTE, PASTE_DIGRAPH, Token, VA_ARGS, VA_OPT};

/// How many parameters a macro may have.
const PARAMETERS: usize = 4096;

/// A macro.
pub(super) struct Definition {
    pub(super) name: Name,
    pub(super) meaning: Meaning,
    /// Its replacement is being read, so that it is not replaced.
    pub(super) active: Cell<bool>,
}

pub(super) enum Meaning {
    Query(Query),
    Object(Vec<Part>),
    Function { parameters: usize, variadic: bool, body: Vec<Part> },
}

/// A macro that is not a text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Query {
    Line,
    File,
    FileName,
    BaseFile,
    IncludeLevel,
    Counter,
    Date,
    Time,
    Timestamp,
    HasInclude,
    /// What depends on the compiler.
    Has,
    Pragma,
}

impl Query {
    pub(super) const ALL: &[(&str, Self)] = &[
        ("__LINE__", Self::Line),
        ("__FILE__", Self::File),
        ("__FILE_NAME__", Self::FileName),
        ("__BASE_FILE__", Self::BaseFile),
        ("__INCLUDE_LEVEL__", Self::IncludeLevel),
        ("__COUNTER__", Self::Counter),
        ("__DATE__", Self::Date),
        ("__TIME__", Self::Time),
        ("__TIMESTAMP__", Self::Timestamp),
        ("__has_include", Self::HasInclude),
        ("__has_builtin", Self::Has),
        ("__has_feature", Self::Has),
        ("__has_extension", Self::Has),
        ("__has_attribute", Self::Has),
        ("__has_cpp_attribute", Self::Has),
        ("_Pragma", Self::Pragma),
    ];

    pub(super) fn takes_arguments(self) -> bool {
        matches!(self, Self::HasInclude | Self::Has | Self::Pragma)
    }
}

/// A piece of a replacement.
pub(super) enum Part {
    Token(Token),
    /// `##`
    Paste,
    /// The argument of that index, where that token stands.
    Argument(usize, Token),
    /// `#` and the argument.
    Quoted(usize, Token),
    /// `__VA_OPT__(…)`
    Optional(Vec<Part>, Token),
}

impl Definition {
    pub(super) fn takes_arguments(&self) -> bool {
        match &self.meaning {
            Meaning::Query(query) => query.takes_arguments(),
            Meaning::Object(_) => false,
            Meaning::Function { .. } => true,
        }
    }

    /// Reads the tokens after `#define`.
    pub(super) fn read(line: &[Token], names: &Names) -> Result<Self, String> {
        let name = named(line.first(), names)?;
        let Some((parameters, rest)) = Parameters::read(&line[1..], names)? else {
            let parts = line[1..].iter().map(|token| if is_paste(token) { Part::Paste } else { Part::Token(*token) }).collect();
            return Ok(Self { name, meaning: Meaning::Object(checked(parts)?), active: Cell::new(false) });
        };
        let body = checked(parameters.parts(rest, names)?)?;
        let meaning = Meaning::Function { parameters: parameters.names.len(), variadic: parameters.variadic, body };
        Ok(Self { name, meaning, active: Cell::new(false) })
    }
}

/// The macro's name that `#define`, `#undef` or `#ifdef` names.
pub(super) fn named(token: Option<&Token>, names: &Names) -> Result<Name, String> {
    match token {
        Some(token) if token.kind == Kind::Identifier && token.text != DEFINED => Ok(token.text),
        Some(token) => Err(format!("`{}` cannot be a macro's name; name it as a variable is named", names.text(token.text))),
        None => Err("a macro's name is missing".to_owned()),
    }
}

fn is_paste(token: &Token) -> bool {
    token.text == PASTE || token.text == PASTE_DIGRAPH
}

fn checked(mut parts: Vec<Part>) -> Result<Vec<Part>, String> {
    if matches!(parts.first(), Some(Part::Paste)) || matches!(parts.last(), Some(Part::Paste)) {
        return Err("`##` stands at an end of the replacement; it joins what is on both sides of it".to_owned());
    }
    if let Some(Part::Token(token) | Part::Argument(_, token) | Part::Quoted(_, token) | Part::Optional(_, token)) = parts.first_mut() {
        token.space = false;
    }
    Ok(parts)
}

struct Parameters {
    names: Vec<Name>,
    /// The last takes what arguments are left.
    variadic: bool,
}

impl Parameters {
    /// The parameters after a name, and what follows; none if no parenthesis touches the name.
    fn read<'a>(line: &'a [Token], names: &Names) -> Result<Option<(Self, &'a [Token])>, String> {
        let Some(open) = line.first().filter(|token| token.text == OPEN && !token.space) else { return Ok(None) };
        let mut found = Self { names: Vec::new(), variadic: false };
        let mut at = 1;
        let text = |at: usize| line.get(at).map(|token| token.text);
        while text(at) != Some(CLOSE) {
            let token = line.get(at).ok_or_else(|| format!("the parameters of a macro do not end in line {}; a `)` is missing", open.line))?;
            let name = if token.text == ELLIPSIS { VA_ARGS } else { token.text };
            if found.variadic || token.kind != Kind::Identifier && name != VA_ARGS || token.text == VA_ARGS || found.names.contains(&name) {
                return Err(format!("`{}` cannot be a macro's parameter here", names.text(token.text)));
            }
            if found.names.len() == PARAMETERS {
                return Err(format!("a macro has more than {PARAMETERS} parameters"));
            }
            found.names.push(name);
            found.variadic = name == VA_ARGS;
            at += 1;
            if !found.variadic && text(at) == Some(ELLIPSIS) {
                found.variadic = true;
                at += 1;
            }
            match text(at) {
                Some(COMMA) if text(at + 1) != Some(CLOSE) => at += 1,
                Some(CLOSE) => {}
                _ => return Err("the parameters of a macro are names with commas between them".to_owned()),
            }
        }
        Ok(Some((found, &line[at + 1..])))
    }

    fn parts(&self, line: &[Token], names: &Names) -> Result<Vec<Part>, String> {
        let (mut parts, mut at) = (Vec::new(), 0);
        while let Some(token) = line.get(at) {
            at += 1;
            let index = |token: &Token| self.names.iter().position(|name| token.kind == Kind::Identifier && *name == token.text);
            if let Some(argument) = index(token) {
                parts.push(Part::Argument(argument, *token));
            } else if is_paste(token) {
                parts.push(Part::Paste);
            } else if token.text == HASH || token.text == HASH_DIGRAPH {
                let argument = line.get(at).and_then(index).ok_or("`#` is not followed by one of the macro's parameters")?;
                parts.push(Part::Quoted(argument, *token));
                at += 1;
            } else if token.text == VA_OPT && self.variadic {
                let close = closing(line, at).ok_or("`__VA_OPT__` is not followed by what stands in parentheses")?;
                let inner = checked(self.parts(&line[at + 1..close], names)?)?;
                parts.push(Part::Optional(inner, *token));
                at = close + 1;
            } else if token.text == VA_ARGS || token.text == VA_OPT {
                return Err(format!("`{}` stands in a macro whose parameters do not end in `...`", names.text(token.text)));
            } else {
                parts.push(Part::Token(*token));
            }
        }
        Ok(parts)
    }
}

/// The index of the parenthesis that closes the one at `open`.
fn closing(line: &[Token], open: usize) -> Option<usize> {
    line.get(open).filter(|token| token.text == OPEN)?;
    let mut depth = 0_usize;
    for (at, token) in line.iter().enumerate().skip(open) {
        match token.text {
            OPEN => depth += 1,
            CLOSE => depth -= 1,
            VA_OPT => return None,
            _ => continue,
        }
        if depth == 0 {
            return Some(at);
        }
    }
    None
}
