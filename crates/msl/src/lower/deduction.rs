//! Template parameters deduced through `thread T&` and `thread T*`: clang deduces them with the argument's address space.
//!
//! Where another parameter deduces `T` as well, it alone shall: the reference becomes one to `elv::value_t<T>`, which takes no part. Otherwise `T`
//! keeps its address space, and the rest of the function says `elv::value_t<T>`.

use super::edits::Edits;
use crate::{
    functions::{Function, functions},
    module::Module,
    tokens::Tokens,
};

pub(super) fn deduction(module: &Module, edits: &mut Edits<'_>) {
    for function in functions(module) {
        for name in function.template.iter().flatten() {
            separate(&module.tokens, &function, name, edits);
        }
        if function.template.is_some() {
            array_references(&module.tokens, &function, edits);
        }
    }
}

/// `thread const float (&x)[N]` with a deduced bound: the element's type has to be deduced too, for the sake of its address space.
fn array_references(tokens: &Tokens, function: &Function<'_>, edits: &mut Edits<'_>) {
    for &(start, end) in &function.parameters {
        let Some(open) = (start..end).find(|&at| tokens.text(at) == "(" && tokens.text(at + 1) == "&") else { continue };
        let bound = tokens.partner(open) + 1;
        let deduced = tokens.text(bound) == "[" && (bound..tokens.after(bound)).any(|at| tokens.is_identifier(at));
        let fixed = |at: usize| {
            matches!(tokens.text(at), "device" | "constant" | "threadgroup")
                || function.template.iter().flatten().any(|name| *name == tokens.text(at))
        };
        if deduced && !(start..open).any(fixed) {
            let element = format!("elv_element_{start}");
            edits.insert_before(function.start - 1, &format!(", typename {element}"));
            edits.blank(start, open);
            edits.replace(start, element + " ");
        }
    }
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

fn separate(tokens: &Tokens, function: &Function<'_>, name: &str, edits: &mut Edits<'_>) {
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
