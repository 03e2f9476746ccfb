//! Kernel declarations: template parameters, attributes, parameters.

use elinvar_core::{Error, Result};

use crate::{
    attributes::{Attribute, attributes},
    integers::Integers,
    kernel::{AddressSpace, Parameter, ParameterKind, Position},
    tokens::{Tokens, join},
};

/// A kernel as declared: a function, or a template of functions.
#[derive(Clone, Debug)]
pub(crate) struct Declaration {
    /// The name with its namespaces.
    pub(crate) qualified: String,
    pub(crate) host_name: Option<String>,
    /// The indices of the argument of `max_total_threads_per_threadgroup`.
    pub(crate) max_total_threads: Option<(usize, usize)>,
    pub(crate) template: Option<Vec<TemplateParameter>>,
    /// Template arguments after the name, as an explicit specialisation has them.
    pub(crate) arguments: Option<(usize, usize)>,
    /// The index of the name.
    pub(crate) at: usize,
    /// The indices between the parentheses.
    pub(crate) parameters: (usize, usize),
    /// The indices inside the braces.
    pub(crate) body: Option<(usize, usize)>,
}

#[derive(Clone, Debug)]
pub(crate) struct TemplateParameter {
    pub(crate) name: String,
    pub(crate) default: Option<String>,
}

/// Template parameters and what stands for them.
pub(crate) type Substitution = [(String, String)];

/// The names and defaults in the template parameter list that the `<` at `open` starts.
pub(crate) fn template_parameters(tokens: &Tokens, open: usize) -> Vec<TemplateParameter> {
    let end = tokens.after(open).saturating_sub(1);
    let read = |(start, end): (usize, usize)| {
        let equals = (start..end).find(|&at| tokens.text(at) == "=").unwrap_or(end);
        let pointer = (start..equals).find(|&at| tokens.text(at) == "(" && matches!(tokens.text(at + 1), "*" | "&"));
        let name = match pointer {
            Some(open) => tokens.text(open + 2),
            None => (start..equals).rev().find(|&at| tokens.is_identifier(at)).map_or("", |at| tokens.text(at)),
        };
        TemplateParameter { name: name.to_owned(), default: (equals < end).then(|| tokens.join(equals + 1, end)) }
    };
    tokens.split(open + 1, end).into_iter().map(read).collect()
}

/// A parameter's tokens: attributes, type and name, separated.
struct Raw<'a> {
    attributes: Vec<Attribute<'a>>,
    /// The indices of the type's tokens.
    type_tokens: Vec<usize>,
    name: Option<usize>,
}

const QUALIFIERS: &[&str] = &["const", "volatile", "device", "constant", "threadgroup", "thread", "struct", "typename", "restrict", "__restrict"];
const TYPE_WORDS: &[&str] = &["unsigned", "signed", "char", "short", "int", "long", "half", "float", "bool"];

fn raw(tokens: &Tokens, (start, end): (usize, usize)) -> Raw<'_> {
    let mut raw = Raw { attributes: Vec::new(), type_tokens: Vec::new(), name: None };
    let mut at = start;
    while at < end && tokens.text(at) != "=" {
        if tokens.is_attribute(at) {
            raw.attributes.extend(attributes(tokens, at));
            at = tokens.after(at);
            continue;
        }
        let next = if matches!(tokens.text(at), "<" | "[") { tokens.after(at).min(end) } else { at + 1 };
        raw.type_tokens.extend(at..next);
        at = next;
    }
    raw.name = take_name(tokens, &mut raw.type_tokens);
    raw
}

/// The parameter's name is its last word, unless that word is (part of) the type of a parameter without a name. Bounds behind it, `name[4]`, stay.
fn take_name(tokens: &Tokens, type_tokens: &mut Vec<usize>) -> Option<usize> {
    let bounds = type_tokens.iter().position(|&at| tokens.text(at) == "[").unwrap_or(type_tokens.len());
    let bounds = type_tokens.split_off(bounds);
    let name = take_last_word(tokens, type_tokens);
    type_tokens.extend(bounds);
    name
}

fn take_last_word(tokens: &Tokens, type_tokens: &mut Vec<usize>) -> Option<usize> {
    let (&last, type_before) = type_tokens.split_last()?;
    let is_type = |&&at: &&usize| matches!(tokens.text(at), "*" | "&" | ">") || tokens.is_identifier(at) && !QUALIFIERS.contains(&tokens.text(at));
    let word = tokens.is_identifier(last) && !QUALIFIERS.contains(&tokens.text(last)) && !TYPE_WORDS.contains(&tokens.text(last));
    if word && tokens.before(last) != "::" && type_before.iter().any(|at| is_type(&at)) { type_tokens.pop() } else { None }
}

/// Reads the parameters of `declaration`, with its template parameters replaced as `substitution` says.
pub(crate) fn parameters(tokens: &Tokens, integers: &Integers, declaration: &Declaration, substitution: &Substitution) -> Result<Vec<Parameter>> {
    let ranges = parameter_ranges(tokens, declaration.parameters);
    let mut read = Vec::with_capacity(ranges.len());
    for range in ranges {
        let raw = raw(tokens, range);
        let name = raw.name.map_or("", |at| tokens.text(at)).to_owned();
        let binding = binding(tokens, integers, &raw)
            .map_err(|error| error.context(format!("{}: kernel {:?}, parameter {name:?}", tokens.location(range.0), tokens.text(declaration.at))))?;
        let condition = raw
            .attributes
            .iter()
            .find(|attribute| attribute.name == "function_constant")
            .map(|attribute| tokens.text(attribute.arguments.0).to_owned());
        read.push(Unnumbered { name, types: types(tokens, &raw, substitution), binding, condition });
    }
    Ok(assign_indices(read))
}

/// The ranges of the parameters between the parentheses; `(void)` has none.
pub(crate) fn parameter_ranges(tokens: &Tokens, (start, end): (usize, usize)) -> Vec<(usize, usize)> {
    let mut ranges = tokens.split(start, end);
    ranges.retain(|&(start, end)| !(end == start + 1 && tokens.text(start) == "void"));
    ranges
}

/// The type of the parameter in `range`, as [`types`] reads it.
pub(crate) fn parameter_type(tokens: &Tokens, range: (usize, usize)) -> Types {
    types(tokens, &raw(tokens, range), &[])
}

/// A parameter's type and, for a pointer or reference, that of its element.
#[derive(Clone)]
pub(crate) struct Types {
    pub(crate) whole: String,
    pub(crate) element: String,
}

/// The token, or what stands for it.
fn replaced<'a>(tokens: &'a Tokens, at: usize, substitution: &'a Substitution) -> &'a str {
    match substitution.iter().find(|(name, _)| name == tokens.text(at)) {
        Some((_, argument)) if tokens.before(at) != "::" => argument.as_str(),
        _ => tokens.text(at),
    }
}

/// The argument of `max_total_threads_per_threadgroup`, if it is a number once template parameters are replaced.
pub(crate) fn max_total_threads(tokens: &Tokens, integers: &Integers, declaration: &Declaration, substitution: &Substitution) -> Option<u32> {
    let (start, end) = declaration.max_total_threads?;
    let argument = Tokens::new(&join((start..end).map(|at| replaced(tokens, at, substitution))));
    integers.evaluate(&argument, (0, argument.len())).and_then(|value| u32::try_from(value).ok())
}

fn types(tokens: &Tokens, raw: &Raw<'_>, substitution: &Substitution) -> Types {
    let replaced = |&at: &usize| replaced(tokens, at, substitution);
    let indirection = raw.type_tokens.iter().rposition(|&at| matches!(tokens.text(at), "*" | "&" | "[")).unwrap_or(raw.type_tokens.len());
    let mut element: Vec<usize> = Vec::new();
    let mut skip_to = 0;
    for &at in &raw.type_tokens[..indirection] {
        if tokens.text(at) == "coherent" {
            skip_to = tokens.after(at + 1);
        }
        if at >= skip_to && !QUALIFIERS.contains(&tokens.text(at)) {
            element.push(at);
        }
    }
    Types { whole: join(raw.type_tokens.iter().map(replaced)), element: join(element.iter().map(replaced)) }
}

/// What a parameter is bound to, its index not yet known where the declaration gives none.
enum Binding {
    Buffer { index: Option<u32>, space: AddressSpace, written: bool, reference: bool },
    Threadgroup { index: Option<u32> },
    Position(Position),
}

fn binding(tokens: &Tokens, integers: &Integers, raw: &Raw<'_>) -> Result<Binding> {
    let has = |word: &str| raw.type_tokens.iter().any(|&at| tokens.text(at) == word);
    let index = |attribute: &Attribute<'_>| {
        integers.evaluate(tokens, attribute.arguments).and_then(|value| u32::try_from(value).ok()).ok_or_else(|| {
            Error::compile_failed(format!(
                "the index in [[{}({})]] is no number known here",
                attribute.name,
                tokens.join(attribute.arguments.0, attribute.arguments.1)
            ))
        })
    };
    let pointer = has("*") || has("&") || has("[");
    let buffer = |index| Binding::Buffer {
        index,
        space: if has("constant") { AddressSpace::Constant } else { AddressSpace::Device },
        written: !has("constant") && !points_to_const(tokens, raw),
        reference: has("&"),
    };
    for attribute in &raw.attributes {
        match attribute.name {
            "buffer" => return Ok(buffer(Some(index(attribute)?))),
            "threadgroup" => return Ok(Binding::Threadgroup { index: Some(index(attribute)?) }),
            name if !attribute.is_modelled() => {
                return Err(Error::unsupported(format!("[[{name}]] is not modelled: only buffers, threadgroup memory and positions are")));
            }
            name => {
                if let Some(position) = Position::from_attribute(name) {
                    return Ok(Binding::Position(position));
                }
            }
        }
    }
    if pointer && has("threadgroup") {
        Ok(Binding::Threadgroup { index: None })
    } else if pointer && (has("device") || has("constant")) {
        Ok(buffer(None))
    } else {
        Err(Error::compile_failed(
            "has neither an attribute, such as [[thread_position_in_grid]], nor a device, constant or threadgroup pointer type",
        ))
    }
}

/// Whether `const` qualifies what the last `*` or `&` points to.
fn points_to_const(tokens: &Tokens, raw: &Raw<'_>) -> bool {
    let indirection = raw.type_tokens.iter().rposition(|&at| matches!(tokens.text(at), "*" | "&" | "[")).unwrap_or(0);
    let from = raw.type_tokens[..indirection].iter().rposition(|&at| matches!(tokens.text(at), "*" | "&")).unwrap_or(0);
    let mut depth = 0_i32;
    raw.type_tokens[from..indirection].iter().any(|&at| {
        match tokens.text(at) {
            "<" => depth += 1,
            ">" => depth -= 1,
            _ => {}
        }
        depth == 0 && tokens.text(at) == "const"
    })
}

/// A parameter whose index may not be known yet.
struct Unnumbered {
    name: String,
    types: Types,
    binding: Binding,
    condition: Option<String>,
}

/// Gives each buffer and each threadgroup parameter without an index the lowest one free.
fn assign_indices(read: Vec<Unnumbered>) -> Vec<Parameter> {
    let taken = |pick: fn(&Binding) -> Option<u32>| read.iter().filter_map(|parameter| pick(&parameter.binding)).collect::<Vec<u32>>();
    let mut buffers = taken(|binding| if let Binding::Buffer { index, .. } = binding { *index } else { None });
    let mut threadgroup = taken(|binding| if let Binding::Threadgroup { index } = binding { *index } else { None });
    let free = |taken: &mut Vec<u32>| {
        let index = (0..).find(|index| !taken.contains(index)).unwrap_or(u32::MAX);
        taken.push(index);
        index
    };
    let assign = |parameter: Unnumbered| {
        let Types { whole, element } = parameter.types;
        let kind = match parameter.binding {
            Binding::Buffer { index, space, written, reference } => {
                ParameterKind::Buffer { index: index.unwrap_or_else(|| free(&mut buffers)), space, written, element, reference }
            }
            Binding::Threadgroup { index } => ParameterKind::Threadgroup { index: index.unwrap_or_else(|| free(&mut threadgroup)), element },
            Binding::Position(position) => ParameterKind::Position(position),
        };
        Parameter { name: parameter.name, type_name: whole, kind, condition: parameter.condition }
    };
    read.into_iter().map(assign).collect()
}
