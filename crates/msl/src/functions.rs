//! The functions and methods that a text declares.

use crate::{
    module::Module,
    structure::Scope,
    tokens::{TokenKind, Tokens},
};

/// A function, method or template of one.
#[derive(Clone, Debug)]
pub(crate) struct Function<'a> {
    /// The template's type parameters; none for a template without, and none without a template.
    pub(crate) template: Option<Vec<&'a str>>,
    /// The index after the template head.
    pub(crate) start: usize,
    /// The index of the name, or of the last token of an operator's.
    pub(crate) name: usize,
    /// The ranges of the parameters.
    pub(crate) parameters: Vec<(usize, usize)>,
    /// The indices inside the body's braces.
    pub(crate) body: Option<(usize, usize)>,
    /// The index after the declaration.
    pub(crate) end: usize,
}

/// Every function declared in a namespace or a class.
pub(crate) fn functions(module: &Module) -> Vec<Function<'_>> {
    let starts = [Scope::Namespace, Scope::Class].into_iter().flat_map(|scope| module.structure.starts(scope));
    starts.filter_map(|start| function(&module.tokens, start)).collect()
}

fn function(tokens: &Tokens, start: usize) -> Option<Function<'_>> {
    let (template, head) = template_head(tokens, start)?;
    let mut at = head;
    loop {
        at = match tokens.text(at) {
            "(" => break,
            ";" | "{" | "}" | "=" | "struct" | "class" | "union" | "enum" | "namespace" | "using" | "typedef" | "static_assert" => return None,
            _ if tokens.kind(at) == TokenKind::End => return None,
            "[" | "<" => tokens.after(at),
            "decltype" | "__attribute__" | "alignas" => tokens.after(at + 1),
            "operator" if tokens.text(at + 1) == "(" => at + 3,
            "operator" => tokens.find(at + 1, tokens.len(), &["("]),
            _ => at + 1,
        };
    }
    let close = tokens.partner(at);
    let stop = tokens.find(close + 1, tokens.len(), &["{", ";", ":"]);
    let stop = if tokens.text(stop) == ":" { after_initialisers(tokens, stop) } else { stop };
    let body = (tokens.text(stop) == "{").then(|| (stop + 1, tokens.partner(stop)));
    Some(Function { template, start: head, name: at.checked_sub(1)?, parameters: tokens.split(at + 1, close), body, end: tokens.after(stop) })
}

/// The index after a constructor's initialisers, `: a(1), b{2}`.
fn after_initialisers(tokens: &Tokens, colon: usize) -> usize {
    let mut at = colon;
    while matches!(tokens.text(at), ":" | ",") {
        at = tokens.after(tokens.find(at + 1, tokens.len(), &["(", "{", ";"]));
        at += if tokens.text(at) == "." { 3 } else { 0 };
    }
    at
}

/// The type parameters of the template heads at `start`, and the index after them; nothing for an explicit instantiation.
fn template_head(tokens: &Tokens, start: usize) -> Option<(Option<Vec<&str>>, usize)> {
    let (mut types, mut at) = (None, start);
    while tokens.text(at) == "template" {
        if tokens.text(at + 1) != "<" {
            return None;
        }
        let end = tokens.after(at + 1);
        let names = tokens.split(at + 2, end - 1).into_iter().filter_map(|(from, to)| {
            let dots = if tokens.text(from + 1) == "." { 3 } else { 0 };
            let name = from + 1 + dots;
            (matches!(tokens.text(from), "typename" | "class") && tokens.is_identifier(name) && name < to).then(|| tokens.text(name))
        });
        types.get_or_insert_with(Vec::new).extend(names);
        at = end;
    }
    Some((types, at))
}
