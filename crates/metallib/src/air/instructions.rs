//! Instructions and definitions in LLVM's text: calls, flags, attributes, names.

use super::types::{name_at, operand, operands, take_type};

/// Flags that let arithmetic be changed.
const FAST_FLAGS: &[&str] = &[" fast", " reassoc", " nnan", " ninf", " nsz", " arcp", " contract", " afn"];

/// The parameters without attributes.
pub(super) fn bare(parameters: &str) -> String {
    operands(parameters).into_iter().filter_map(operand).map(|(kind, value)| format!("{kind} {value}")).collect::<Vec<_>>().join(", ")
}

/// `weak_odr fastcc zeroext i1 `, with linkage within the module.
pub(super) fn linkage(before: &str) -> String {
    const LINKAGES: &[&str] = &[
        "define",
        "internal",
        "private",
        "weak_odr",
        "weak",
        "linkonce_odr",
        "linkonce",
        "dso_local",
        "hidden",
        "protected",
        "local_unnamed_addr",
        "unnamed_addr",
    ];
    let kept: Vec<&str> = before.split_whitespace().skip_while(|word| LINKAGES.contains(word)).collect();
    format!("internal {} ", kept.join(" "))
}

/// Where a call begins, and what follows the word: `  %3 = tail call float @f(float %2)`.
pub(super) fn call(line: &str) -> Option<(usize, usize)> {
    let indented = line.len() - line.trim_start().len();
    let value = if line[indented..].starts_with('%') { indented + line[indented..].find(" = ")? + 3 } else { indented };
    let word = ["tail ", "musttail ", "notail "].into_iter().find(|word| line[value..].starts_with(word)).unwrap_or_default();
    line[value + word.len()..].starts_with("call ").then_some((value, value + word.len() + "call ".len()))
}

/// A call's type and where the name of its function begins: `fast float @f(…`, `fastcc noundef zeroext i1 @f(…`.
pub(super) fn callee(text: &str) -> Option<(&str, usize)> {
    let mut at = text.trim_start();
    loop {
        let word = at.split(' ').next()?;
        let is_number = |word: &str| word.strip_prefix('i').is_some_and(|bits| bits.parse::<u32>().is_ok());
        if at.starts_with(['<', '[', '{', '%']) || matches!(word, "float" | "half" | "bfloat" | "void" | "ptr") || is_number(word) {
            let (result, rest) = take_type(at)?;
            return rest.starts_with('@').then(|| (result, text.len() - rest.len()));
        }
        at = at.get(word.len()..)?.trim_start();
        if at.is_empty() {
            return None;
        }
    }
}

/// Without leave to change arithmetic.
pub(super) fn without_flags(operation: &str) -> String {
    FAST_FLAGS.iter().fold(operation.to_owned(), |operation, flag| operation.replace(&format!("{flag} "), " "))
}

/// Without the numbers of attributes that a call ends with.
pub(super) fn without_attributes(operation: &str) -> &str {
    match operation.rsplit_once(" #") {
        Some((operation, number)) if !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) => operation,
        _ => operation,
    }
}

pub(super) fn without_section(definition: &str) -> String {
    let Some((before, rest)) = definition.split_once(", section \"") else { return definition.to_owned() };
    format!("{before}{}", rest.split_once('"').map_or("", |(_, rest)| rest))
}

/// The names of LLVM's own functions say which address spaces they are for: `llvm.memcpy.p1.p0.i64`.
pub(super) fn intrinsic_name(line: &str) -> String {
    let Some(at) = line.find("@llvm.") else { return line.to_owned() };
    let name = name_at(line, at);
    let plain: Vec<&str> = name.split('.').map(|part| if matches!(part, "p1" | "p2" | "p3") { "p0" } else { part }).collect();
    line.replacen(name, &plain.join("."), 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_told_from_what_mentions_them() {
        assert_eq!(call("  tail call void @f()"), Some((2, 12)));
        assert_eq!(call("  %3 = call fast float @f(float %2)"), Some((7, 12)));
        assert_eq!(call("  store ptr @\"call @f\", ptr %1"), None);
        assert_eq!(callee("fast noundef zeroext i1 @f(i1 %2)"), Some(("i1", 24)));
        assert_eq!(callee("fastcc %\"struct.a::array.5\" @f()"), Some(("%\"struct.a::array.5\"", 28)));
        assert_eq!((callee("void %3()"), callee("void asm sideeffect \"@nop\", \"\"()")), (None, None));
        assert_eq!(linkage("define linkonce_odr hidden fastcc zeroext i1 "), "internal fastcc zeroext i1 ");
    }
}
