//! Specialisations of the standard library's classes: NVRTC wants them qualified, even where `using namespace metal` makes the name known.

use crate::{lower::edits::Edits, module::Module, structure::Scope, tokens::Tokens};

pub(super) fn specialisations(module: &Module, edits: &mut Edits<'_>) {
    let tokens = &module.tokens;
    for start in module.structure.starts(Scope::Namespace) {
        let mut head = start;
        while tokens.text(head) == "template" && tokens.text(head + 1) == "<" {
            head = tokens.after(head + 1);
        }
        let name = head + 1;
        let class = matches!(tokens.text(head), "struct" | "class");
        if head > start && class && tokens.text(name + 1) == "<" && !is_declared(tokens, tokens.text(name)) {
            edits.open(name, "metal::");
        }
    }
}

/// Whether the text declares the class or template itself.
fn is_declared(tokens: &Tokens, name: &str) -> bool {
    (1..tokens.len()).any(|at| tokens.text(at) == name && matches!(tokens.before(at), "struct" | "class") && tokens.text(at + 1) != "<")
}
