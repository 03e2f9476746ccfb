//! Literals: without a suffix they are float in Metal, and `bf` is bfloat's suffix.

use super::edits::Edits;
use crate::{module::Module, tokens::TokenKind};

pub(crate) fn literals(module: &Module, edits: &mut Edits<'_>) {
    let tokens = &module.tokens;
    for at in (0..tokens.len()).filter(|&at| tokens.kind(at) == TokenKind::Number) {
        if let Some(spelled) = respell(tokens.text(at)) {
            edits.replace(at, spelled);
        }
    }
}

pub(crate) fn respell(literal: &str) -> Option<String> {
    let lower = literal.to_ascii_lowercase();
    if lower.starts_with("0x") {
        return (lower.contains('p') && lower.ends_with(|c: char| c.is_ascii_digit())).then(|| format!("{literal}f"));
    }
    if let Some(digits) = lower.strip_suffix("bf") {
        return Some(format!("((bfloat){digits}f)"));
    }
    let floating = lower.contains(['.', 'e']);
    (floating && lower.ends_with(|c: char| c.is_ascii_digit() || c == '.')).then(|| format!("{literal}f"))
}

#[cfg(test)]
mod tests {
    use super::respell;

    #[test]
    fn only_floating_literals_without_a_suffix_change() {
        let cases = [
            ("1.0", "1.0f"),
            ("1.", "1.f"),
            ("2e-3", "2e-3f"),
            ("0x1.8p3", "0x1.8p3f"),
            ("1.5bf", "((bfloat)1.5f)"),
            ("0x1F", ""),
            ("3", ""),
            ("1.0f", ""),
            ("1.0h", ""),
        ];
        for (literal, expected) in cases {
            assert_eq!(respell(literal).unwrap_or_default(), expected, "{literal}");
        }
    }
}
