//! `T a[N] = {[0 ... N - 1] = x};`: a range of designators, which NVRTC does not know.

use crate::{lower::edits::Edits, module::Module};

/// Turns the initialiser into a statement that fills the array.
pub(super) fn fills(module: &Module, edits: &mut Edits<'_>) {
    let tokens = &module.tokens;
    for open in 2..tokens.len() {
        let range = tokens.text(open) == "[" && tokens.text(open + 1) == "0" && tokens.text(open + 2) == "." && tokens.text(open + 3) == ".";
        if !range || tokens.before(open) != "{" || tokens.text(open - 2) != "=" || tokens.text(tokens.after(open)) != "=" {
            continue;
        }
        let mut name = open - 2;
        while tokens.before(name) == "]" {
            name = tokens.partner(name - 1);
        }
        let name = name.saturating_sub(1);
        let value = tokens.after(open) + 1;
        edits.blank(open - 2, value);
        edits.replace(open - 2, format!("; elv::fill({}, ", tokens.text(name)));
        edits.replace(tokens.partner(open - 1), ")");
    }
}
