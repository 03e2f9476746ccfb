//! Variables and functions that Metal does not let a text declare.

use super::findings::Findings;
use crate::structure::Scope;

pub(super) fn declarations(findings: &mut Findings<'_>) {
    let (tokens, structure) = (&findings.module.tokens, &findings.module.structure);
    for start in structure.starts(Scope::Namespace) {
        global(findings, start);
    }
    for at in structure.starts(Scope::Function) {
        let end = tokens.find(at, tokens.len(), &["=", ";", "{", "("]);
        let word = |word: &str| (at..end).find(|&at| tokens.text(at) == word);
        if let Some(at) = word("static").filter(|_| word("constant").is_none()) {
            findings.add(
                "static-local",
                at,
                "Metal has no static variables in functions, unless they are `static constant`: pass the value on, or use a buffer",
            );
        }
    }
}

/// The first words of declarations that declare no variable.
const NOT_VARIABLES: &[&str] = &[
    "using",
    "typedef",
    "template",
    "struct",
    "class",
    "union",
    "enum",
    "namespace",
    "static_assert",
    "extern",
    "inline",
    "friend",
    "}",
    ";",
    "asm",
    "__asm__",
];

fn global(findings: &mut Findings<'_>, start: usize) {
    let tokens = &findings.module.tokens;
    if NOT_VARIABLES.contains(&tokens.text(start)) {
        return;
    }
    let mut at = start;
    let mut words = Vec::new();
    while !matches!(tokens.text(at), "=" | ";" | "{" | "(" | "") {
        if tokens.is_identifier(at) {
            words.push(at);
        }
        at = if matches!(tokens.text(at), "[" | "<") { tokens.after(at) } else { at + 1 };
    }
    let has = |word: &str| words.iter().any(|&at| tokens.text(at) == word);
    if tokens.text(at) == "(" {
        let name = at.saturating_sub(1);
        if tokens.text(name) == "main" {
            findings.add("main", name, "Metal reserves the name main: rename the function");
        }
        let close = tokens.partner(at);
        let ellipsis = close > at + 4 && (1..=3).all(|back| tokens.text(close - back) == ".") && tokens.text(close - 4) == ",";
        if ellipsis {
            findings.add("variadic", close - 3, "Metal has no functions with `...`: use a template parameter pack");
        }
    } else if has("threadgroup") {
        findings.add("threadgroup-global", start, "a threadgroup variable belongs in a kernel, or comes as a [[threadgroup(n)]] parameter");
    } else if words.len() >= 2 && !has("constant") && !has("operator") && !has("kernel") {
        findings.add("mutable-global", start, "a variable outside functions must be `constant`: use a buffer for what changes");
    }
}
