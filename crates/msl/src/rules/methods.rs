//! Methods of objects in other memory than a thread's: `T get() const device`.

use std::collections::HashSet;

use crate::{functions::functions, lower::edits::Edits, module::Module, structure::Scope};

/// Drops the address space after a method's parameters, which C++ does not have, and with it all but the first of methods that differ in nothing else.
pub(super) fn methods(module: &Module, edits: &mut Edits<'_>) {
    let (tokens, structure) = (&module.tokens, &module.structure);
    let mut seen = HashSet::new();
    for function in functions(module).iter().filter(|function| structure.scope(function.name) == Scope::Class) {
        let open = function.name + 1;
        let close = tokens.partner(open);
        let spaces: Vec<usize> =
            (close + 1..function.end).take_while(|&at| is_suffix(tokens.text(at))).filter(|&at| is_space(tokens.text(at))).collect();
        let head: String = (structure.statement(function.start)..close)
            .map(|at| tokens.text(at))
            .filter(|text| !matches!(*text, "inline" | "constexpr" | "METAL_FUNC"))
            .collect();
        if !seen.insert((structure.brace(function.name), head)) {
            edits.drop(structure.statement(function.start), function.end);
            continue;
        }
        for at in spaces {
            edits.replace(at, "");
        }
    }
}

fn is_space(word: &str) -> bool {
    matches!(word, "device" | "constant" | "threadgroup" | "thread" | "object_data" | "ray_data")
}

/// The words in the heads of the classes that have methods for objects in other memory than a thread's.
pub(super) fn owners(module: &Module) -> HashSet<&str> {
    let (tokens, structure) = (&module.tokens, &module.structure);
    let mut owners = HashSet::new();
    for function in functions(module).iter().filter(|function| structure.scope(function.name) == Scope::Class) {
        let close = tokens.partner(function.name + 1);
        let is_elsewhere = (close + 1..function.end)
            .take_while(|&at| is_suffix(tokens.text(at)))
            .any(|at| matches!(tokens.text(at), "device" | "constant" | "threadgroup"));
        if is_elsewhere {
            let head = structure.head(function.name);
            let end = tokens.find(head, tokens.len(), &["{"]);
            owners.extend(
                (head..end)
                    .filter(|&at| tokens.is_identifier(at) && !matches!(tokens.text(at), "struct" | "class" | "template" | "typename"))
                    .map(|at| tokens.text(at)),
            );
        }
    }
    owners
}

/// A word that may follow a method's parameters.
fn is_suffix(word: &str) -> bool {
    is_space(word) || matches!(word, "const" | "volatile" | "noexcept")
}
