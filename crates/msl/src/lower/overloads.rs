//! Functions overloaded by address space: where a conversion adds `const` besides, clang finds the wider spaces as good as the argument's own.

use std::collections::HashMap;

use super::edits::Edits;
use crate::{
    functions::{Function, functions},
    module::Module,
    structure::Scope,
    tokens::Tokens,
};

/// Makes templates of the overloads for `thread` and `constant` where others take the same argument in another space: of two that fit equally
/// well, C++ takes the one that is no template.
pub(super) fn overloads(module: &Module, edits: &mut Edits<'_>) {
    let tokens = &module.tokens;
    let mut named: HashMap<&str, Vec<Function<'_>>> = HashMap::new();
    for function in functions(module) {
        let free = function.template.is_none() && module.structure.scope(function.start) == Scope::Namespace;
        if free && tokens.is_identifier(function.name) && !module.declarations.iter().any(|kernel| kernel.at == function.name) {
            named.entry(tokens.text(function.name)).or_default().push(function);
        }
    }
    for overloads in named.into_values().filter(|overloads| overloads.len() > 1) {
        for function in &overloads {
            let wide = |&(position, &range): &(usize, &(usize, usize))| {
                let own = space(tokens, range);
                let others = || overloads.iter().filter_map(|other| other.parameters.get(position)).map(|&range| space(tokens, range));
                matches!(own, Space::Thread | Space::Constant) && others().any(|other| other != own && other != Space::Value)
            };
            if function.parameters.iter().enumerate().any(|parameter| wide(&parameter)) {
                edits.insert_before(function.start, "template <int...> ");
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Space {
    Value,
    Thread,
    Constant,
    Narrow,
}

fn space(tokens: &Tokens, (start, end): (usize, usize)) -> Space {
    let has = |words: &[&str]| (start..end).any(|at| words.contains(&tokens.text(at)));
    if !has(&["*", "&", "["]) {
        Space::Value
    } else if has(&["device", "threadgroup"]) {
        Space::Narrow
    } else if has(&["constant"]) {
        Space::Constant
    } else {
        Space::Thread
    }
}
