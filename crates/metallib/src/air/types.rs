//! Pieces of LLVM's text: types, operands, names.

/// The first type of `text` and what follows it: `[32 x float] undef`, `<2 x i32> %3`, `ptr %4`.
pub(super) fn take_type(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_start();
    let end = match text.as_bytes().first()? {
        b'[' | b'{' | b'<' => balanced(text)?,
        b'%' => name_end(text),
        _ => text.find([' ', ',', ')']).unwrap_or(text.len()),
    };
    (end > 0).then(|| (&text[..end], text[end..].trim_start()))
}

/// Where the bracket that `text` begins with is closed.
pub(super) fn balanced(text: &str) -> Option<usize> {
    let (mut depth, mut quoted) = (0usize, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'"' => quoted = !quoted,
            _ if quoted => {}
            b'(' | b'[' | b'{' | b'<' => depth += 1,
            b')' | b']' | b'}' | b'>' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
    }
    None
}

/// Where the name ends that `text` begins with: `@f`, `%"struct.metal::array.8"`.
pub(super) fn name_end(text: &str) -> usize {
    let rest = text.get(1..).unwrap_or_default();
    if let Some(quoted) = rest.strip_prefix('"') {
        return quoted.find('"').map_or(text.len(), |end| end + 3);
    }
    rest.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '$' | '.' | '_'))).map_or(text.len(), |end| end + 1)
}

/// The name at `at`, with its sign.
pub(super) fn name_at(text: &str, at: usize) -> &str {
    &text[at..at + name_end(&text[at..])]
}

/// What lies between commas that no bracket encloses.
pub(super) fn operands(text: &str) -> Vec<&str> {
    let (mut parts, mut start, mut depth, mut quoted) = (Vec::new(), 0, 0i32, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'"' => quoted = !quoted,
            _ if quoted => {}
            b'(' | b'[' | b'{' | b'<' => depth += 1,
            b')' | b']' | b'}' | b'>' => depth -= 1,
            b',' if depth == 0 => {
                parts.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    if !text[start..].trim().is_empty() {
        parts.push(text[start..].trim());
    }
    parts
}

/// An operand's type and value, without attributes: `ptr nocapture readonly %268`.
pub(super) fn operand(text: &str) -> Option<(&str, &str)> {
    let (kind, mut value) = take_type(text)?;
    while value.starts_with(|c: char| c.is_ascii_lowercase() || c == '"') && !is_value(value) {
        let end = match value.strip_prefix('"') {
            Some(quoted) => quoted.find('"')? + 2,
            None => value.find([' ', '(']).unwrap_or(value.len()),
        };
        let rest = value[end..].trim_start();
        let takes_a_number = &value[..end] == "align";
        value = match rest.strip_prefix('(') {
            Some(_) => rest[balanced(rest)?..].trim_start(),
            None if takes_a_number => rest.split_once(' ').map_or("", |(_, rest)| rest),
            None => rest,
        };
        if value.is_empty() {
            break;
        }
    }
    Some((kind, value))
}

/// Whether a constant without a sign of its own begins here.
fn is_value(text: &str) -> bool {
    const WORDS: &[&str] =
        &["true", "false", "undef", "poison", "null", "zeroinitializer", "getelementptr", "bitcast", "ptrtoint", "inttoptr", "addrspacecast"];
    WORDS.iter().any(|word| text.strip_prefix(word).is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '(', ','])))
}

/// A vector's lanes and their type.
pub(super) fn vector(kind: &str) -> Option<(u32, &str)> {
    let (count, element) = kind.strip_prefix('<')?.strip_suffix('>')?.split_once(" x ")?;
    Some((count.parse().ok()?, element))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_and_operands_are_taken_apart() {
        assert_eq!(take_type("[2 x { i8, <2 x float> }] undef, align 4"), Some(("[2 x { i8, <2 x float> }]", "undef, align 4")));
        assert_eq!(take_type("%\"struct.a::b<c, d>\" zeroinitializer"), Some(("%\"struct.a::b<c, d>\"", "zeroinitializer")));
        assert_eq!(operands("i32 %1, <2 x i64> <i64 1, i64 2>, i1 true"), ["i32 %1", "<2 x i64> <i64 1, i64 2>", "i1 true"]);
        assert_eq!(operand("ptr nocapture readonly align 4 dereferenceable(4) \"air-buffer-no-alias\" %268"), Some(("ptr", "%268")));
        assert_eq!(operand("i1 noundef true"), Some(("i1", "true")));
        assert_eq!(operand("float 1.000000e+00"), Some(("float", "1.000000e+00")));
        assert_eq!(operand("ptr noundef"), Some(("ptr", "")));
        assert_eq!(vector("<64 x bfloat>"), Some((64, "bfloat")));
    }
}
