//! Classes that are made from others.

use super::findings::Findings;
use crate::tokens::Tokens;

/// Finds classes with a base. Apple's own headers have some, between `#pragma METAL internals : enable` and `disable`, and so may a text.
pub(super) fn classes(findings: &mut Findings<'_>) {
    let tokens = &findings.module.tokens;
    for at in (0..tokens.len()).filter(|&at| matches!(tokens.text(at), "struct" | "class") && tokens.before(at) != "enum") {
        if tokens.text(after_name(tokens, at + 1)) == ":" && !is_internal(tokens, at) {
            findings.add("inheritance", at, "Metal has no base classes: make the base a member, or write its members here");
        }
    }
}

/// The index after a class's name, from behind `struct` or `class`.
fn after_name(tokens: &Tokens, mut at: usize) -> usize {
    while tokens.is_attribute(at) || tokens.text(at) == "alignas" {
        at = tokens.after(if tokens.is_attribute(at) { at } else { at + 1 });
    }
    while tokens.is_identifier(at) && tokens.text(at + 1) == "::" {
        at += 2;
    }
    let end = if tokens.text(at + 1) == "<" { tokens.after(at + 1) } else { at + 1 };
    if tokens.text(end) == "final" { end + 1 } else { end }
}

/// Whether the last pragma about it before the token lets a text use what is Apple's own.
fn is_internal(tokens: &Tokens, at: usize) -> bool {
    let before = tokens.directives().iter().take_while(|&&(start, _)| start < tokens.token(at).start);
    let said = before.filter_map(|&(start, end)| {
        let words: Vec<&str> = tokens.source()[start + 1..end].split([' ', '\t', ':']).filter(|word| !word.is_empty()).collect();
        words.strip_prefix(&["pragma", "METAL", "internals"])?.first().map(|state| *state == "enable")
    });
    said.last().unwrap_or(false)
}
