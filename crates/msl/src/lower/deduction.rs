//! Template parameters deduced through `thread T&` and `thread T*`: clang deduces them with the argument's address space.
//!
//! Where another parameter deduces `T` as well, it alone shall: the reference becomes one to `elv::value_t<T>`, which takes no part. Otherwise `T`
//! keeps its address space, and the rest of the function says `elv::value_t<T>`.

use super::edits::Edits;
use crate::{
    module::Module,
    structure::Scope,
    tokens::{TokenKind, Tokens},
};

pub(super) fn deduction(module: &Module, edits: &mut Edits<'_>) {
    let tokens = &module.tokens;
    for scope in [Scope::Namespace, Scope::Class] {
        for start in module.structure.starts(scope) {
            let Some(function) = function_template(tokens, start) else { continue };
            for name in &function.types {
                separate(tokens, &function, name, edits);
            }
        }
    }
}

struct FunctionTemplate<'a> {
    /// The template's type parameters.
    types: Vec<&'a str>,
    /// The index after the template head.
    start: usize,
    /// The ranges of the function's parameters.
    parameters: Vec<(usize, usize)>,
    end: usize,
}

fn function_template(tokens: &Tokens, start: usize) -> Option<FunctionTemplate<'_>> {
    if tokens.text(start) != "template" || tokens.text(start + 1) != "<" {
        return None;
    }
    let mut types = Vec::new();
    let mut at = start;
    while tokens.text(at) == "template" {
        let end = tokens.after(at + 1);
        for (from, to) in tokens.split(at + 2, end - 1) {
            if matches!(tokens.text(from), "typename" | "class") && tokens.is_identifier(from + 1) && from + 1 < to {
                types.push(tokens.text(from + 1));
            }
        }
        at = end;
    }
    let head = at;
    while !matches!(tokens.text(at), "(" | ";" | "{" | "=" | "struct" | "class" | "union" | "using") && tokens.kind(at) != TokenKind::End {
        at = match tokens.text(at) {
            "[" | "<" => tokens.after(at),
            "decltype" | "__attribute__" | "alignas" => tokens.after(at + 1),
            "operator" if tokens.text(at + 1) == "(" => at + 3,
            "operator" => tokens.find(at + 1, tokens.len(), &["("]),
            _ => at + 1,
        };
    }
    if tokens.text(at) != "(" || types.is_empty() {
        return None;
    }
    let close = tokens.partner(at);
    let body = tokens.find(close + 1, tokens.len(), &["{", ";"]);
    Some(FunctionTemplate { types, start: head, parameters: tokens.split(at + 1, close), end: tokens.after(body) })
}

/// How a parameter takes part in deducing a template parameter.
enum Role {
    /// `T& x`, `const T* x`, `T (&x)[N]` in the thread's own memory; the index of `T`.
    Indirect(usize),
    /// By value, in another address space, or within another template's arguments.
    Deduces,
    Nothing,
}

fn role(tokens: &Tokens, (start, end): (usize, usize), name: &str) -> Role {
    let words: Vec<usize> = (start..end).filter(|&at| !matches!(tokens.text(at), "const" | "volatile" | "thread")).collect();
    let Some(position) = words.iter().position(|&at| tokens.text(at) == name) else { return Role::Nothing };
    let at = words[position];
    let follows = words.get(position + 1).map_or("", |&next| tokens.text(next));
    let elsewhere = (start..at).any(|at| matches!(tokens.text(at), "device" | "constant" | "threadgroup"));
    if follows == "::" || (at..end).any(|at| tokens.text(at) == ">" && tokens.text(at + 1) == "::") {
        Role::Nothing
    } else if position == 0 && !elsewhere && (matches!(follows, "&" | "*") || follows == "(" && tokens.text(words[position + 1] + 1) == "&") {
        Role::Indirect(at)
    } else {
        Role::Deduces
    }
}

fn separate(tokens: &Tokens, function: &FunctionTemplate<'_>, name: &str, edits: &mut Edits<'_>) {
    let roles: Vec<Role> = function.parameters.iter().map(|&range| role(tokens, range, name)).collect();
    let indirect: Vec<usize> = roles.iter().filter_map(|role| if let Role::Indirect(at) = role { Some(*at) } else { None }).collect();
    if indirect.is_empty() {
        return;
    }
    let value = format!("elv::value_t<{name}>");
    if roles.iter().any(|role| matches!(role, Role::Deduces)) {
        indirect.iter().for_each(|&at| edits.replace(at, value.clone()));
        return;
    }
    for at in function.start..function.end {
        let qualified = matches!(tokens.before(at), "::" | "." | "->");
        if tokens.text(at) == name && !qualified && !indirect.contains(&at) && !edits.is_blank(at) {
            edits.replace(at, value.clone());
        }
    }
}
