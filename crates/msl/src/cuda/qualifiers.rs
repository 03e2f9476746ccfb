//! Address spaces: CUDA's pointers have none, and what is `constant` is `const`.

use crate::{
    lower::{edits::Edits, qualifiers::after_type},
    module::Module,
    structure::Scope,
};

/// `threadgroup T a[N];` in a function becomes `__shared__ T a[N];`. Metal allows an initialiser, which has no effect.
pub(super) fn threadgroup_variables(module: &Module, edits: &mut Edits<'_>) {
    let (tokens, structure) = (&module.tokens, &module.structure);
    for at in (0..tokens.len()).filter(|&at| tokens.text(at) == "threadgroup") {
        let start = structure.statement(at);
        let words = if tokens.text(start) == "alignas" { tokens.after(start + 1) } else { start };
        let leading = (words..at).all(|at| matches!(tokens.text(at), "static" | "const" | "volatile") || edits.is_blank(at));
        let variable = structure.scope(at) == Scope::Function && structure.is_outer(at) && leading;
        let name = after_type(tokens, at + 1);
        if variable && tokens.is_identifier(name) {
            edits.replace(at, "__shared__");
            let declared = tokens.split(name, tokens.find(name, tokens.len(), &[";"]));
            for (start, end) in declared {
                edits.blank((start..end).find(|&at| tokens.text(at) == "=").unwrap_or(end), end);
            }
        }
    }
}

/// Words that may stand before a name without belonging to it.
const BEFORE_NAMES: &[&str] = &[
    "return",
    "case",
    "else",
    "do",
    "typename",
    "const",
    "inline",
    "static",
    "constexpr",
    "using",
    "namespace",
    "device",
    "constant",
    "thread",
    "threadgroup",
];

/// `::metal::exp` starts from the namespace that holds the text.
pub(super) fn global_names(module: &Module, edits: &mut Edits<'_>) {
    let tokens = &module.tokens;
    for at in (0..tokens.len()).filter(|&at| tokens.text(at) == "::") {
        let before = tokens.before(at);
        let keyword = BEFORE_NAMES.contains(&before);
        let of_type = before == ")" && matches!(tokens.before(tokens.partner(at - 1)), "decltype" | "__typeof__");
        let qualified = of_type || before == ">" || before == "::" || at > 0 && tokens.is_identifier(at - 1) && !keyword;
        if !qualified && !edits.is_replaced(at) {
            edits.replace(at, "::msl::");
        }
    }
}

/// Drops the other words of address spaces.
pub(super) fn address_spaces(module: &Module, edits: &mut Edits<'_>) {
    let tokens = &module.tokens;
    for at in 0..tokens.len() {
        if edits.is_replaced(at) {
            continue;
        }
        match tokens.text(at) {
            "device" | "threadgroup" | "thread" | "ray_data" | "object_data" => edits.replace(at, ""),
            "constant" if tokens.before(at) == "const" || tokens.text(at + 1) == "const" => edits.replace(at, ""),
            "constant" => edits.replace(at, "const"),
            _ => {}
        }
    }
}

/// The same for a text that stands alone, such as a type.
pub(super) fn without_address_spaces<'a>(words: impl Iterator<Item = &'a str>) -> impl Iterator<Item = &'a str> {
    words.filter_map(|word| match word {
        "device" | "threadgroup" | "thread" | "ray_data" | "object_data" => None,
        "constant" => Some("const"),
        word => Some(word),
    })
}
