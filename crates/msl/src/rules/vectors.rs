//! Constructions of vectors: `float4(v.xy, 0, 1)` is a call of the prelude's `elv_make<float4>`.

use std::collections::HashSet;

use crate::{lower::edits::Edits, module::Module, tokens::Tokens};

pub(super) fn vectors(module: &Module, edits: &mut Edits<'_>) {
    let tokens = &module.tokens;
    let names = aliases(tokens);
    for at in 0..tokens.len() {
        let text = tokens.text(at);
        let end = match text {
            "vec" | "packed_vec" if tokens.text(at + 1) == "<" => tokens.after(at + 1),
            "static_cast" if tokens.text(at + 1) == "<" => {
                if converts_to_vector(tokens, at + 1, &names) {
                    edits.replace(at, "elv_make");
                }
                continue;
            }
            _ if is_vector(text) || names.contains(text) => at + 1,
            _ => continue,
        };
        let constructs = tokens.text(end) == "("
            && !matches!(tokens.text(end + 1), ")" | "*" | "&" | "thread" | "device" | "{")
            && !matches!(tokens.before(at), "operator" | "." | "->" | "typename")
            && !tokens.is_identifier(at.wrapping_sub(1)) | matches!(tokens.before(at), "return" | "else" | "case");
        if constructs {
            edits.open(at, "elv_make<");
            edits.close(end - 1, ">");
        }
    }
}

fn converts_to_vector(tokens: &Tokens, open: usize, names: &HashSet<&str>) -> bool {
    let end = tokens.after(open).saturating_sub(1);
    let named = |at: usize| is_vector(tokens.text(at)) || names.contains(tokens.text(at)) || tokens.text(at) == "vec";
    !matches!(tokens.before(end), "*" | "&") && (open..end).any(named)
}

/// The name of a vector type, such as `packed_half3`.
fn is_vector(name: &str) -> bool {
    let name = ["packed_", "simd_", "vector_"].iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(name);
    let scalar = name.strip_suffix(['2', '3', '4']);
    scalar.is_some_and(|scalar| {
        matches!(scalar, "bool" | "char" | "uchar" | "short" | "ushort" | "int" | "uint" | "long" | "ulong" | "half" | "float" | "bfloat")
    })
}

/// The names that the text gives to vectors: `using float4x = vec<float, 4>`, `typedef vec<T, 2> pair`.
fn aliases(tokens: &Tokens) -> HashSet<&str> {
    let mut names = HashSet::new();
    for at in 0..tokens.len() {
        let end = match tokens.text(at) {
            "using" if tokens.text(at + 2) == "=" => tokens.find(at, tokens.len(), &[";"]),
            "typedef" => tokens.find(at, tokens.len(), &[";"]),
            _ => continue,
        };
        let (name, first) = if tokens.text(at) == "using" { (at + 1, at + 3) } else { (end.saturating_sub(1), at + 1) };
        let first = (first..end).find(|&at| !matches!(tokens.text(at), "const" | "metal" | "::" | "typename")).unwrap_or(end);
        let whole = if tokens.text(first) == "vec" { tokens.after(first + 1) } else { first + 1 };
        let is_alias = tokens.text(first) == "vec" || is_vector(tokens.text(first)) || names.contains(tokens.text(first));
        if is_alias && (whole == end || whole == name) && tokens.is_identifier(name) {
            names.insert(tokens.text(name));
        }
    }
    names
}
