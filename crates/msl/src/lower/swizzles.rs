//! Swizzles: `v.yx` is a member template of the prelude's vectors.

use std::collections::HashSet;

use super::edits::Edits;
use crate::{
    module::Module,
    tokens::{TokenKind, Tokens},
};

pub(crate) fn swizzles(module: &Module, edits: &mut Edits<'_>) {
    let tokens = &module.tokens;
    let members = declared_members(tokens);
    for at in 1..tokens.len() {
        let access = matches!(tokens.before(at), "." | "->") && tokens.text(at + 1) != "(";
        let Some(lanes) = lanes(tokens.text(at)).filter(|_| access && !members.contains(tokens.text(at))) else { continue };
        let assigned = matches!(tokens.text(at + 1), "=" | "+=" | "-=" | "*=" | "/=" | "%=" | "&=" | "|=" | "^=")
            || matches!(tokens.text(at + 1), "<" | ">") && tokens.text(at + 2) == format!("{}=", tokens.text(at + 1));
        edits.replace(at, format!("template {}<{lanes}>()", if assigned { "swizzled" } else { "swizzle" }));
    }
}

/// The lanes that a swizzle of two to four letters names, as template arguments.
fn lanes(name: &str) -> Option<String> {
    let lane = |set: &str| -> Option<Vec<String>> { name.chars().map(|letter| set.find(letter).map(|lane| lane.to_string())).collect() };
    if !(2..=4).contains(&name.len()) {
        return None;
    }
    lane("xyzw").or_else(|| lane("rgba")).map(|lanes| lanes.join(", "))
}

/// The names that read as swizzles but are declared as members of the user's own types.
fn declared_members(tokens: &Tokens) -> HashSet<&str> {
    let declares = |&at: &usize| {
        let before = tokens.before(at);
        let type_before = tokens.is_identifier(at - 1) && !matches!(before, "return" | "case") || matches!(before, "*" | ">" | "&");
        let nested = at >= 2 && matches!(tokens.text(at - 2), "." | "->");
        tokens.kind(at) == TokenKind::Identifier && type_before && !nested && matches!(tokens.text(at + 1), ";" | "=" | "[" | "," | "{")
    };
    (1..tokens.len()).filter(|&at| lanes(tokens.text(at)).is_some()).filter(declares).map(|at| tokens.text(at)).collect()
}

#[cfg(test)]
mod tests {
    use super::lanes;

    #[test]
    fn letters_of_one_set_make_a_swizzle() {
        assert_eq!(lanes("wx").as_deref(), Some("3, 0"));
        assert_eq!(lanes("bgra").as_deref(), Some("2, 1, 0, 3"));
        assert_eq!(lanes("xg"), None);
        assert_eq!(lanes("x"), None);
        assert_eq!(lanes("xyzwx"), None);
    }
}
