//! Threadgroup variables of a function: the runtime allocates them once for each threadgroup.

use super::{edits::Edits, qualifiers::after_type};
use crate::{module::Module, structure::Scope};

/// `threadgroup T a[N], b;` becomes a struct of those members, a reference to where the runtime put it, and references to the members.
pub(super) fn threadgroup_variables(module: &Module, edits: &mut Edits<'_>) {
    let (tokens, structure) = (&module.tokens, &module.structure);
    let mut site = 0;
    for at in (0..tokens.len()).filter(|&at| tokens.text(at) == "threadgroup") {
        let start = structure.statement(at);
        let aligned = tokens.text(start) == "alignas";
        let words = if aligned { tokens.after(start + 1) } else { start };
        let leading = (words..at).all(|at| matches!(tokens.text(at), "static" | "const" | "volatile") || edits.is_blank(at));
        if structure.scope(at) != Scope::Function || !structure.is_outer(at) || !leading {
            continue;
        }
        let type_start = at + 1;
        let type_end = after_type(tokens, type_start);
        if !tokens.is_identifier(type_end) {
            continue;
        }
        let end = tokens.find(type_end, tokens.len(), &[";"]);
        let declared: Vec<(usize, usize)> = tokens
            .split(type_end, end)
            .into_iter()
            .map(|(start, end)| (start, (start..end).find(|&at| tokens.text(at) == "=" || tokens.is_attribute(at)).unwrap_or(end)))
            .collect();
        let names: Vec<&str> = declared.iter().map(|&(start, _)| tokens.text(start)).collect();
        let alignment = if aligned { edits.render(start, words) } else { String::new() };
        let type_text = format!("{alignment} {}", edits.render(type_start, type_end));
        let members: String = declared.iter().map(|&(start, end)| format!("{} {}; ", type_text.trim_start(), edits.render(start, end))).collect();
        let references: String = names.iter().map(|name| format!(" auto& {name} = elv_threadgroup_{site}.{name};")).collect();
        edits.blank(start, end + 1);
        edits.replace(start, format!("ELV_THREADGROUP_VARIABLES({site}, \"{}\", {members});{references}", names.join(", ")));
        site += 1;
    }
}
