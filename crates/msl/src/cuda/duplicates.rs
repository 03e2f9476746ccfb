//! Functions and specialisations that only address spaces distinguished: the first one stays.

use std::collections::HashSet;

use super::qualifiers::without_address_spaces;
use crate::{
    functions::{Function, functions},
    lower::edits::Edits,
    module::Module,
    signature,
    structure::Scope,
    tokens::{Tokens, join},
};

pub(super) fn duplicates(module: &Module, edits: &mut Edits<'_>) {
    let mut seen = HashSet::new();
    for function in functions(module) {
        if is_constructor(module, &function) {
            constructor(module, &function, edits);
        }
        if !seen.insert(function_key(module, &function)) {
            edits.drop(module.structure.statement(function.start), function.end);
        }
    }
    for start in module.structure.starts(Scope::Namespace) {
        if let Some((key, end)) = specialisation(module, start)
            && !seen.insert(key)
        {
            edits.drop(start, end);
        }
    }
}

fn is_constructor(module: &Module, function: &Function<'_>) -> bool {
    let words = ["constexpr", "explicit", "inline", "METAL_FUNC"];
    let name = name_start(&module.tokens, function);
    let class = module.structure.scope(function.start) == Scope::Class && module.tokens.text(name) != "operator";
    class && (function.start..name).all(|at| words.contains(&module.tokens.text(at)))
}

/// Constructors for each address space, `S() constant = default;`, are one.
fn constructor(module: &Module, function: &Function<'_>, edits: &mut Edits<'_>) {
    let (start, end) = trailing(&module.tokens, function);
    (start..end).filter(|&at| module.tokens.text(at) == "constant").for_each(|at| edits.replace(at, ""));
}

/// The start of the name, with its template arguments, or of `operator`.
fn name_start(tokens: &Tokens, function: &Function<'_>) -> usize {
    let name = match tokens.text(function.name) {
        ">" => tokens.angle_start(function.name + 1).map_or(function.name, |open| open.saturating_sub(1)),
        _ => function.name,
    };
    (function.start..name).find(|&at| tokens.text(at) == "operator").unwrap_or(name)
}

/// The range of the qualifiers behind the parameters.
fn trailing(tokens: &Tokens, function: &Function<'_>) -> (usize, usize) {
    let close = tokens.partner(function.name + 1);
    (close + 1, tokens.find(close + 1, function.end, &["{", ";", ":", "="]))
}

/// What distinguishes a function from others: its scope, its name, the types of its parameters, whether it is a definition.
fn function_key(module: &Module, function: &Function<'_>) -> String {
    let tokens = &module.tokens;
    let name = name_start(tokens, function);
    // Templates may differ in what they return, or in what they require.
    let from = if function.template.is_some() { module.structure.statement(function.start) } else { name };
    let mut key = format!("{} {} ", module.structure.brace(function.start), if function.body.is_some() { "{" } else { ";" });
    key.push_str(&plain(tokens, from, function.name + 1));
    for &range in &function.parameters {
        let list = Tokens::new(&signature::parameter_type(tokens, range).whole);
        key.push_str(", ");
        key.push_str(&plain(&list, 0, list.len()));
    }
    if is_constructor(module, function) {
        return key;
    }
    let (start, end) = trailing(tokens, function);
    key + ") " + &plain(tokens, start, end)
}

/// A partial or explicit specialisation of a class or variable template: what distinguishes it from others, and its end.
fn specialisation(module: &Module, start: usize) -> Option<(String, usize)> {
    let tokens = &module.tokens;
    let mut head = start;
    while tokens.text(head) == "template" && tokens.text(head + 1) == "<" {
        head = tokens.after(head + 1);
    }
    let stop = tokens.find(head, tokens.len(), &["{", ";", ":", "=", "("]);
    let named = head > start && tokens.before(stop) == ">" && tokens.text(stop) != "(";
    named.then(|| (plain(tokens, start, stop), tokens.find(stop, tokens.len(), &[";"]) + 1))
}

/// The tokens without address spaces and without a repeated `const`.
fn plain(tokens: &Tokens, start: usize, end: usize) -> String {
    let words = without_address_spaces((start..end).map(|at| tokens.text(at)));
    let mut kept: Vec<&str> = Vec::new();
    for word in words {
        if word != "const" || kept.last() != Some(&"const") {
            kept.push(word);
        }
    }
    join(kept.into_iter())
}
