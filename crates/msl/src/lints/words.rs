//! Words that Metal does not know.

use super::findings::Findings;
use crate::tokens::{TokenKind, Tokens};

/// Words, their rule, and what to say.
const FORBIDDEN: &[(&[&str], &str, &str)] = &[
    (&["double", "double2", "double3", "double4"], "double", "Metal has no double: use float"),
    (&["virtual"], "virtual", "Metal has no virtual functions: use a template"),
    (&["goto"], "goto", "Metal has no goto: use a loop or a flag"),
    (&["new"], "new", "Metal has no new: memory comes from buffers and threadgroup variables"),
    (&["throw", "try", "catch"], "exception", "Metal has no exceptions: write an error code to a buffer"),
    (&["dynamic_cast", "typeid"], "run-time-type", "Metal has no run-time type information: use a template"),
    (&["register"], "register", "Metal has no register variables: leave the word out"),
    (&["thread_local"], "thread-local", "Metal has no thread_local: variables of a function belong to the thread"),
    (&["asm", "__asm__"], "assembly", "Metal takes no assembly"),
    (&["atomic_long"], "long-atomic", "Metal has no atomics of long: use atomic_int, or atomic_ulong's minimum and maximum"),
];

pub(super) fn words(findings: &mut Findings<'_>, metal_version: u32) {
    let tokens = &findings.module.tokens;
    let compiled_for = format!("{}.{}", metal_version / 100, metal_version / 10 % 10);
    for at in (0..tokens.len()).filter(|&at| metal_version < 320 && is_lambda(tokens, at)) {
        let advice = format!("lambdas came with Metal 3.2 and this text is compiled for {compiled_for}: raise the version, or write a function");
        findings.add("lambda", at, advice);
    }
    for at in (0..tokens.len()).filter(|&at| tokens.is_identifier(at)) {
        let word = tokens.text(at);
        if matches!(tokens.before(at), "." | "->" | "::") {
            continue;
        }
        if let Some((_, rule, message)) = FORBIDDEN.iter().find(|(words, ..)| words.contains(&word)) {
            findings.add(rule, at, *message);
        }
        match word {
            "delete" if tokens.before(at) != "=" => findings.add("delete", at, "Metal has no delete: memory is not allocated in a kernel"),
            "atomic" if matches!((tokens.text(at + 1), tokens.text(at + 2)), ("<", "long" | "int64_t" | "half" | "bfloat" | "short" | "char")) => {
                findings.add("long-atomic", at, format!("Metal has no atomic<{}>: int, uint, bool, float, and ulong in part", tokens.text(at + 2)));
            }
            "bfloat" | "bfloat2" | "bfloat3" | "bfloat4" if metal_version < 310 => {
                let advice = format!("bfloat needs Metal 3.1 and this text is compiled for {compiled_for}: raise the version, or compute in float");
                findings.add("bfloat", at, advice);
            }
            _ => {}
        }
    }
}

/// Whether a lambda's captures start at the token: a bracket where a value is expected, with parameters or a body behind it.
fn is_lambda(tokens: &Tokens, at: usize) -> bool {
    let follows_value = at.checked_sub(1).is_some_and(|before| match tokens.kind(before) {
        TokenKind::Identifier => tokens.text(before) != "return",
        TokenKind::Number | TokenKind::Literal => true,
        TokenKind::Punctuation => matches!(tokens.text(before), ")" | "]" | "[" | ">" | "}"),
        TokenKind::End => false,
    });
    tokens.text(at) == "[" && !tokens.is_attribute(at) && !follows_value && matches!(tokens.text(tokens.after(at)), "(" | "{" | "->" | "mutable")
}
