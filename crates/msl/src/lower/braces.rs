//! `uint4 v = {x, y, z}`: vectors of Metal are aggregates and fill up with zeros, those of the prelude are classes and need it written out.

use super::edits::Edits;
use crate::{module::Module, tokens::Tokens};

pub(crate) fn braces(module: &Module, edits: &mut Edits<'_>) {
    let tokens = &module.tokens;
    for at in (0..tokens.len()).filter(|&at| tokens.is_identifier(at)) {
        let Some(after) = vector_type(tokens, at).filter(|&after| tokens.is_identifier(after)) else { continue };
        let open = after + 1 + usize::from(tokens.text(after + 1) == "=");
        if tokens.text(open) == "{" && tokens.text(open + 1) != "}" {
            edits.open(open + 1, "elv::in_braces{}, ");
        }
    }
}

/// The index after a vector's type name that stands at `at`.
fn vector_type(tokens: &Tokens, at: usize) -> Option<usize> {
    let name = tokens.text(at);
    if name == "vec" {
        return tokens.after_angle(at + 1);
    }
    let scalar = name.strip_suffix(['2', '3', '4'])?;
    let scalars = ["bool", "char", "uchar", "short", "ushort", "int", "uint", "long", "ulong", "half", "float", "bfloat"];
    scalars.contains(&scalar).then_some(at + 1)
}
