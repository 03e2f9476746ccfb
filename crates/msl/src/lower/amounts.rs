//! `p += n` where `n` may be a constant of class type: clang finds no built-in operator for a pointer then.

use super::edits::Edits;
use crate::module::Module;

pub(super) fn amounts(module: &Module, edits: &mut Edits<'_>) {
    let tokens = &module.tokens;
    for at in (0..tokens.len()).filter(|&at| matches!(tokens.text(at), "+=" | "-=")) {
        if tokens.is_identifier(at + 1) && matches!(tokens.text(at + 2), ";" | ")" | ",") {
            edits.open(at + 1, "ELV_AMOUNT(");
            edits.close(at + 1, ")");
        }
    }
}
