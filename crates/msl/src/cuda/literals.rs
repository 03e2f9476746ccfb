//! Literals: as for the simulator, and those of `half`, which is a class here.

use crate::{
    lower::{edits::Edits, literals::respell},
    module::Module,
    tokens::TokenKind,
};

pub(super) fn literals(module: &Module, edits: &mut Edits<'_>) {
    let tokens = &module.tokens;
    for at in (0..tokens.len()).filter(|&at| tokens.kind(at) == TokenKind::Number) {
        let literal = tokens.text(at);
        let half = literal.strip_suffix(['h', 'H']).filter(|_| !literal.starts_with("0x") || literal.contains('p'));
        if let Some(spelled) = half.map(|digits| format!("((half){digits}f)")).or_else(|| respell(literal)) {
            edits.replace(at, spelled);
        }
    }
}
