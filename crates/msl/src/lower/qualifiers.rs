//! Address space qualifiers where C++ for OpenCL takes them in another form than Metal.

use std::collections::HashSet;

use super::edits::Edits;
use crate::{functions::functions, module::Module, structure::Scope, tokens::Tokens};

/// The index after the type specifier at `index`: its words, template arguments and nested names.
pub(crate) fn after_type(tokens: &Tokens, index: usize) -> usize {
    let mut at = index;
    loop {
        match tokens.text(at) {
            "const" | "volatile" | "struct" | "typename" | "constexpr" => at += 1,
            "alignas" => at = tokens.after(at + 1),
            _ => break,
        }
    }
    if matches!(tokens.text(at), "unsigned" | "signed") {
        at += 1;
        while matches!(tokens.text(at), "char" | "short" | "int" | "long") {
            at += 1;
        }
    } else if matches!(tokens.text(at), "decltype" | "__typeof__") {
        at = tokens.after(at + 1);
    } else {
        at += usize::from(tokens.text(at) == "::");
        at += usize::from(tokens.is_identifier(at));
    }
    loop {
        match tokens.text(at) {
            "<" => at = tokens.after(at),
            "::" => at += if tokens.text(at + 1) == "template" { 3 } else { 2 },
            "const" | "volatile" => at += 1,
            _ => return at,
        }
    }
}

/// `thread T x;` declares a local variable, which needs no qualifier; on pointers and references `thread` stays.
pub(super) fn locals(module: &Module, edits: &mut Edits<'_>) {
    let (tokens, structure) = (&module.tokens, &module.structure);
    for at in (0..tokens.len()).filter(|&at| tokens.text(at) == "thread" && structure.scope(at) == Scope::Function) {
        let leading = (structure.statement(at)..at).all(|at| matches!(tokens.text(at), "const" | "constexpr" | "static" | "volatile"));
        let end = after_type(tokens, at + 1);
        if structure.is_outer(at) && leading && !matches!(tokens.text(end), "*" | "&") {
            edits.replace(at, "");
        }
    }
}

/// The address space after a method's parameters, `T get() const device`, takes keywords only, not attributes.
pub(super) fn methods(module: &Module, edits: &mut Edits<'_>) {
    let tokens = &module.tokens;
    for at in 1..tokens.len() {
        let qualifier = tokens.text(at);
        if !matches!(qualifier, "device" | "threadgroup" | "constant" | "thread") || module.structure.scope(at) != Scope::Class {
            continue;
        }
        let skip = |text: &str| matches!(text, "const" | "volatile" | "noexcept");
        let before = (0..at).rev().find(|&at| !skip(tokens.text(at))).unwrap_or(0);
        let after = (at + 1..tokens.len()).find(|&at| !skip(tokens.text(at))).unwrap_or(at);
        if tokens.text(before) == ")" && matches!(tokens.text(after), "{" | ";" | ":" | "=" | "->") {
            edits.replace(at, format!("ELV_METHOD_{}", qualifier.to_ascii_uppercase()));
        }
    }
}

/// `thread T x[N]` as a parameter becomes `T* x`, and `T x[N][M]` becomes `T (*x)[M]`: clang puts an array parameter into private memory.
pub(super) fn array_parameters(module: &Module, edits: &mut Edits<'_>) {
    let tokens = &module.tokens;
    for function in functions(module) {
        for (start, end) in function.parameters {
            let elsewhere = (start..end).any(|at| matches!(tokens.text(at), "device" | "constant" | "threadgroup"));
            let bound = (start..end).find(|&at| tokens.text(at) == "[" && !tokens.is_attribute(at) && tokens.is_identifier(at - 1));
            let Some(bound) = bound.filter(|_| !elsewhere) else { continue };
            let after = tokens.after(bound);
            edits.blank(bound, after);
            if tokens.text(after) == "[" {
                edits.open(bound - 1, "(*");
                edits.close(bound - 1, ")");
            } else {
                edits.open(bound - 1, "*");
            }
        }
    }
}

/// A function pointer as a template parameter becomes a reference, or `auto` where its type is an alias: clang's OpenCL mode cannot form the constant.
pub(super) fn function_pointers(module: &Module, edits: &mut Edits<'_>) {
    let tokens = &module.tokens;
    let aliases = function_pointer_aliases(tokens);
    for start in (0..tokens.len()).filter(|&at| tokens.text(at) == "template" && tokens.text(at + 1) == "<") {
        for (from, to) in tokens.split(start + 2, tokens.after(start + 1).saturating_sub(1)) {
            let end = (from..to).find(|&at| tokens.text(at) == "=").unwrap_or(to);
            if let Some(open) = (from..end).find(|&at| is_pointer_declarator(tokens, at)) {
                edits.replace(open + 1, "&");
            } else if (from..end).any(|at| aliases.contains(tokens.text(at))) && end - from > 1 {
                edits.blank(from, end - 1);
                edits.replace(from, "auto ");
            }
        }
    }
}

/// Whether `( * name ) (` or `( * ) (` starts at the index.
fn is_pointer_declarator(tokens: &Tokens, at: usize) -> bool {
    let close = tokens.partner(at);
    tokens.text(at) == "(" && tokens.text(at + 1) == "*" && close > at && close <= at + 3 && tokens.text(close + 1) == "("
}

/// The names that `using F = R (*)(…)` and `typedef R (*F)(…)` declare.
fn function_pointer_aliases(tokens: &Tokens) -> HashSet<&str> {
    let declared = |at: usize| {
        let end = tokens.find(at, tokens.len(), &[";"]);
        let pointer = (at..end).find(|&at| is_pointer_declarator(tokens, at))?;
        match tokens.text(at) {
            "using" if tokens.text(at + 2) == "=" => Some(tokens.text(at + 1)),
            "typedef" if tokens.is_identifier(pointer + 2) => Some(tokens.text(pointer + 2)),
            _ => None,
        }
    };
    (0..tokens.len()).filter_map(|at| if matches!(tokens.text(at), "using" | "typedef") { declared(at) } else { None }).collect()
}
