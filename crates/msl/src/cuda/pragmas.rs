//! Directives: headers are dropped, loops are unrolled where the text says so; whether products are contracted is an option of the compiler.

use crate::{lower::edits::Edits, module::Module};

pub(super) fn pragmas(module: &Module, edits: &mut Edits<'_>) {
    for &(start, end) in module.tokens.directives() {
        let text = module.tokens.source()[start + 1..end].trim().strip_prefix("pragma").unwrap_or_default().trim();
        edits.replace_bytes(start, end, spelled(text));
    }
}

fn spelled(pragma: &str) -> String {
    let words: Vec<&str> = pragma.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty()).collect();
    match words.as_slice() {
        ["unroll"] | ["clang", "loop", "unroll", "full" | "enable"] => "#pragma unroll".to_owned(),
        ["nounroll"] | ["clang", "loop", "unroll", "disable"] => "#pragma unroll 1".to_owned(),
        ["unroll", count] | ["clang", "loop", "unroll_count", count] => format!("#pragma unroll {count}"),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::spelled;

    #[test]
    fn loops_keep_their_unrolling() {
        assert_eq!(spelled("unroll"), "#pragma unroll");
        assert_eq!(spelled("clang loop unroll(full)"), "#pragma unroll");
        assert_eq!(spelled("unroll(4)"), "#pragma unroll 4");
        assert_eq!(spelled("clang loop unroll(disable)"), "#pragma unroll 1");
        assert_eq!(spelled("METAL fp math_mode(safe)"), "");
    }
}
