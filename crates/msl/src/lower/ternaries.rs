//! `c ? a : b` with operands in different address spaces: C++ for OpenCL wants both as values.

use super::edits::Edits;
use crate::{
    module::Module,
    tokens::{TokenKind, Tokens},
};

pub(super) fn ternaries(module: &Module, edits: &mut Edits<'_>) {
    let tokens = &module.tokens;
    for question in (0..tokens.len()).filter(|&at| tokens.text(at) == "?") {
        if edits.is_blank(question) {
            continue;
        }
        for (start, end) in operands(tokens, question).into_iter().flatten() {
            edits.open(start, "elv_value(");
            edits.close(end - 1, ")");
        }
    }
}

/// The ranges of the operands behind the question mark and behind its colon.
pub(crate) fn operands(tokens: &Tokens, question: usize) -> Option<[(usize, usize); 2]> {
    let colon = colon(tokens, question)?;
    let ranges = [(question + 1, colon), (colon + 1, end(tokens, colon))];
    let values = ranges.iter().all(|&(start, end)| start < end && !matches!(tokens.text(start), "throw" | "{"));
    values.then_some(ranges)
}

/// The colon that belongs to the question mark.
fn colon(tokens: &Tokens, question: usize) -> Option<usize> {
    let (mut at, mut inner) = (question + 1, 0_usize);
    while at < tokens.len() {
        match tokens.text(at) {
            "?" => inner += 1,
            ":" if inner == 0 => return Some(at),
            ":" => inner -= 1,
            ";" | ")" | "}" | "]" => return None,
            _ => {}
        }
        at = if matches!(tokens.text(at), "(" | "[" | "{") { tokens.after(at) } else { at + 1 };
    }
    None
}

/// The index after the last token of the expression behind the colon.
fn end(tokens: &Tokens, colon: usize) -> usize {
    let (mut at, mut inner) = (colon + 1, 0_usize);
    while at < tokens.len() {
        match tokens.text(at) {
            "(" | "[" | "{" => {
                at = tokens.after(at);
                continue;
            }
            "<" if tokens.is_identifier(at - 1) => {
                if let Some(after) = template_arguments(tokens, at) {
                    at = after;
                    continue;
                }
            }
            "?" => inner += 1,
            ":" if inner == 0 => return at,
            ":" => inner -= 1,
            ";" | ")" | "]" | "}" | "," => return at,
            // The end of a template argument list, unless an operand follows: then it compares, if no template's arguments begin before it.
            ">" if tokens.kind(at + 1) == TokenKind::Punctuation
                && (!matches!(tokens.text(at + 1), "(" | "-" | "+" | "!" | "~" | "*" | "&" | ">" | "::") || ends_arguments(tokens, at)) =>
            {
                return at;
            }
            _ => {}
        }
        at += 1;
    }
    at
}

/// Whether the `>` closes the arguments of a template that the text declares.
fn ends_arguments(tokens: &Tokens, close: usize) -> bool {
    let Some(name) = tokens.angle_start(close + 1).and_then(|open| open.checked_sub(1)) else { return false };
    let declared = |head: usize| {
        let after = tokens.after_angle(head + 1)?;
        (after..tokens.len()).take_while(|&at| !matches!(tokens.text(at), "(" | "{" | ":" | ";" | "=")).filter(|&at| tokens.is_identifier(at)).last()
    };
    let heads = (0..tokens.len()).filter(|&at| tokens.text(at) == "template" && tokens.text(at + 1) == "<");
    heads.filter_map(declared).any(|at| tokens.text(at) == tokens.text(name))
}

/// The index after the template arguments at `open`, if they are arguments and not a comparison.
fn template_arguments(tokens: &Tokens, open: usize) -> Option<usize> {
    let after = tokens.after_angle(open)?;
    let compares = (open..after).any(|at| matches!(tokens.text(at), "&&" | "||" | "?"));
    (!compares && matches!(tokens.text(after), "(" | "::" | "{")).then_some(after)
}
