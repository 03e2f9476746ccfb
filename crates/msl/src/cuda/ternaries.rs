//! `c ? x : 0` where `x` may be a `half` or `bfloat`: those are classes here, and C++ does not know which operand to convert.

use crate::{
    lower::{edits::Edits, ternaries::operands},
    module::Module,
    tokens::{TokenKind, Tokens},
};

/// Beside a `float`, the other operand becomes one if it is narrower; beside an integer literal, the literal takes its type.
pub(super) fn ternaries(module: &Module, edits: &mut Edits<'_>) {
    let tokens = &module.tokens;
    for question in (0..tokens.len()).filter(|&at| tokens.text(at) == "?") {
        if edits.is_blank(question) {
            continue;
        }
        let Some([first, second]) = operands(tokens, question) else { continue };
        for (literal, other) in [(first, second), (second, first)] {
            match kind(tokens, literal) {
                Kind::Float => {
                    edits.open(other.0, "elv::at_least_float(");
                    edits.close(other.1 - 1, ")");
                }
                Kind::Integer => {
                    if let Some((start, end)) = leaf(tokens, other) {
                        let like = edits.render(start, end);
                        edits.open(literal.0, &format!("elv::like<decltype({like})>("));
                        edits.close(literal.1 - 1, ")");
                    }
                }
                Kind::Unknown => {}
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Float,
    Integer,
    Unknown,
}

fn kind(tokens: &Tokens, (start, end): (usize, usize)) -> Kind {
    let from = start + usize::from(tokens.text(start) == "-");
    if tokens.text(from) == "float" && tokens.after(from + 1) == end || tokens.text(from) == "(" && tokens.text(from + 1) == "float" {
        return Kind::Float;
    }
    if from + 1 != end {
        return Kind::Unknown;
    }
    let text = tokens.text(from);
    let hexadecimal = text.starts_with("0x") || text.starts_with("0X");
    match tokens.kind(from) {
        TokenKind::Number if text.ends_with(['h', 'H']) || text.ends_with("bf") => Kind::Unknown,
        TokenKind::Number if !hexadecimal && text.contains(['.', 'e', 'E']) || hexadecimal && text.contains(['p', 'P']) => Kind::Float,
        TokenKind::Number => Kind::Integer,
        _ if matches!(text, "INFINITY" | "NAN" | "FLT_MAX" | "FLT_MIN" | "MAXFLOAT" | "HUGE_VALF") => Kind::Float,
        _ => Kind::Unknown,
    }
}

/// The operand itself, or, where it is a condition again, one of its operands that is no literal.
fn leaf(tokens: &Tokens, (start, end): (usize, usize)) -> Option<(usize, usize)> {
    let question = tokens.find(start, end, &["?"]);
    if question < end {
        return operands(tokens, question)?.into_iter().find_map(|operand| leaf(tokens, operand));
    }
    let lambda = (start..end).any(|at| tokens.text(at) == "[" && matches!(tokens.before(at), "(" | "," | "?" | ":"));
    (kind(tokens, (start, end)) != Kind::Integer && !lambda).then_some((start, end))
}
