//! Pointers and references without an address space.

use super::findings::Findings;
use crate::{
    functions::{Function, functions},
    structure::Scope,
    tokens::Tokens,
};

const SPACES: &[&str] = &["device", "constant", "threadgroup", "thread", "threadgroup_imageblock", "object_data", "ray_data"];

pub(super) fn pointers(findings: &mut Findings<'_>) {
    let module = findings.module;
    for function in functions(module) {
        for &range in &function.parameters {
            if let Some(at) = unqualified(&module.tokens, range, &function) {
                report(findings, at);
            }
        }
    }
    let structure = &module.structure;
    for start in structure.starts(Scope::Function).chain(structure.starts(Scope::Class)) {
        if let Some(at) = unqualified_variable(&module.tokens, start) {
            report(findings, at);
        }
    }
    for at in 0..module.tokens.len() {
        if is_unqualified_cast(&module.tokens, at) {
            report(findings, at + 2);
        }
    }
}

fn report(findings: &mut Findings<'_>, at: usize) {
    findings.add("address-space", at, "a pointer or reference needs an address space: device, constant, threadgroup or thread");
}

/// The `*` or `&` of a parameter that names no address space and whose type is no template parameter's.
fn unqualified(tokens: &Tokens, (start, end): (usize, usize), function: &Function<'_>) -> Option<usize> {
    let end = (start..end).find(|&at| tokens.text(at) == "=").unwrap_or(end);
    let dependent = |at: usize| tokens.text(at) == "auto" || function.template.iter().flatten().any(|name| *name == tokens.text(at));
    let mut at = start;
    let mut indirection = None;
    let (mut words, mut last) = (0, start);
    while at < end {
        match tokens.text(at) {
            text if SPACES.contains(&text) || dependent(at) => return None,
            "(" | "[" | "&&" => return None,
            "*" | "&" => indirection = indirection.or(Some(at)),
            "const" | "volatile" | "struct" | "typename" => {}
            _ if tokens.is_identifier(at) && indirection.is_none() => {
                words += 1;
                last = at;
            }
            _ if tokens.is_identifier(at) || matches!(tokens.text(at), "::" | "<") => {}
            _ => return None,
        }
        at = if tokens.text(at) == "<" { tokens.after(at) } else { at + 1 };
    }
    // A type's name comes before: expressions in a variable's parentheses, `x(a * b)`, have none that tokens distinguish.
    indirection.filter(|&at| words > 0 && (at + 1 == end || tokens.is_identifier(at + 1)) && is_type(tokens, last, function))
}

/// Whether the word is certain to be a type: built in, or in a function with a body, whose parentheses hold parameters.
fn is_type(tokens: &Tokens, at: usize, function: &Function<'_>) -> bool {
    is_builtin(tokens.text(at)) || function.body.is_some() || function.start < function.name && function.template.is_some()
}

fn is_builtin(word: &str) -> bool {
    let scalar = word.strip_suffix(['2', '3', '4']).unwrap_or(word);
    let scalar = scalar.strip_prefix("packed_").unwrap_or(scalar);
    let scalars = [
        "void", "bool", "char", "uchar", "short", "ushort", "int", "uint", "long", "ulong", "half", "float", "bfloat", "unsigned", "signed", "size_t",
    ];
    let sized =
        |word: &str| word.strip_suffix("_t").is_some_and(|word| matches!(word.trim_end_matches(|c: char| c.is_ascii_digit()), "int" | "uint"));
    scalars.contains(&scalar) || sized(word)
}

/// `const float * x = …`, `float & x = …` at the start of a statement or member.
fn unqualified_variable(tokens: &Tokens, start: usize) -> Option<usize> {
    let mut at = start;
    while matches!(tokens.text(at), "const" | "volatile" | "constexpr" | "static") {
        at += 1;
    }
    // `Item* p = …` declares; without `=` it may be a product.
    if tokens.is_identifier(at) && !is_builtin(tokens.text(at)) {
        let declares = matches!(tokens.text(at + 1), "*" | "&") && tokens.is_identifier(at + 2) && tokens.text(at + 3) == "=";
        return (declares && !SPACES.contains(&tokens.text(at)) && tokens.text(at) != "auto").then_some(at + 1);
    }
    if !is_builtin(tokens.text(at)) {
        return None;
    }
    while is_builtin(tokens.text(at)) || tokens.text(at) == "const" {
        at += 1;
    }
    let declares = tokens.is_identifier(at + 1) && matches!(tokens.text(at + 2), "=" | ";" | "," | "{");
    (matches!(tokens.text(at), "*" | "&") && declares).then_some(at)
}

/// `(float *)`, `(const float *)`.
fn is_unqualified_cast(tokens: &Tokens, at: usize) -> bool {
    let first = at + 1 + usize::from(tokens.text(at + 1) == "const");
    tokens.text(at) == "(" && is_builtin(tokens.text(first)) && tokens.text(first + 1) == "*" && tokens.text(first + 2) == ")"
        // `float f(float*)` declares.
        && !tokens.is_identifier(at.wrapping_sub(1))
}
