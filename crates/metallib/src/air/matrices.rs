//! Matrices of 8 × 8 elements, which compiled code keeps as vectors of 64, of which each lane has the first two.

use super::types::{balanced, operands, take_type, vector};

/// Whether matrices can be kept as the two elements that a lane has: none of them lies in memory, whose layout they are part of.
pub(super) fn shrinks(module: &str) -> bool {
    let mut matrices: Vec<&str> = vec!["<64 x "];
    for (name, definition) in module.lines().filter(|line| line.starts_with('%')).filter_map(|line| line.split_once(" = type ")) {
        if matrices.iter().any(|matrix| definition.contains(matrix)) {
            matrices.push(name);
        }
    }
    let in_memory = |line: &str| ["alloca ", " global ", "getelementptr ", " load ", " store "].iter().any(|word| line.contains(word));
    module.contains("<64 x ") && !module.lines().filter(|line| in_memory(line)).any(|line| matrices.iter().any(|matrix| line.contains(matrix)))
}

/// A line about matrices of 64 elements, about the two that a lane has.
pub(super) fn shrunk(line: &str) -> String {
    if let Some((before, rest)) = line.split_once("shufflevector ") {
        let parts = operands(rest);
        if let [first, _, mask] = parts.as_slice()
            && let Some((source, _)) = take_type(first).and_then(|(kind, _)| vector(kind))
            && let Some((mask_kind, indices)) = take_type(mask)
            && let Some((lanes, _)) = vector(mask_kind)
            && let Some(list) = indices.strip_prefix('<').and_then(|list| list.strip_suffix('>'))
        {
            let kept = if lanes == 64 { 2 } else { lanes as usize };
            let index = |index: &str| match index.trim_start_matches("i32 ").parse::<u32>() {
                Ok(at) if source == 64 && at >= 64 => format!("i32 {}", at - 62),
                Ok(at) => format!("i32 {at}"),
                Err(_) => index.to_owned(),
            };
            let mask: Vec<String> = operands(list).into_iter().take(kept).map(index).collect();
            let sources = shorter(&parts[..2].join(", "));
            return format!("{before}shufflevector {sources}, <{kept} x i32> <{}>", mask.join(", "));
        }
    }
    shorter(line)
}

/// Types of 64 elements, and lists of as many, with two.
fn shorter(text: &str) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some(at) = rest.find('<') {
        let Some(end) = balanced(&rest[at..]).map(|end| at + end) else { break };
        out.push_str(&rest[..at]);
        let group = &rest[at..end];
        let elements = operands(&group[1..group.len() - 1]);
        match group.strip_prefix("<64 x ") {
            Some(element) => out.extend(["<2 x ", element]),
            None if elements.len() == 64 => out.extend(["<", &elements[..2].join(", "), ">"]),
            None => out.push_str(group),
        }
        rest = &rest[end..];
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matrices_keep_the_elements_of_a_lane() {
        let list = |element: &dyn Fn(usize) -> String| (0..64).map(element).collect::<Vec<_>>().join(", ");
        let zeros = list(&|_| "float 0.000000e+00".to_owned());
        let phi = format!("  %9 = phi <64 x float> [ <{zeros}>, %3 ], [ %8, %7 ]");
        assert_eq!(shrunk(&phi), "  %9 = phi <2 x float> [ <float 0.000000e+00, float 0.000000e+00>, %3 ], [ %8, %7 ]");
        let mask = list(&|at| format!("i32 {}", if at < 2 { at } else { at + 64 }));
        let joined = format!("  %3 = shufflevector <64 x float> %1, <64 x float> %2, <64 x i32> <{mask}>");
        assert_eq!(shrunk(&joined), "  %3 = shufflevector <2 x float> %1, <2 x float> %2, <2 x i32> <i32 0, i32 1>");
        let constant = format!("  %3 = shufflevector <64 x float> %1, <64 x float> <{zeros}>, <64 x i32> <{mask}>");
        let pair = "<float 0.000000e+00, float 0.000000e+00>";
        assert_eq!(shrunk(&constant), format!("  %3 = shufflevector <2 x float> %1, <2 x float> {pair}, <2 x i32> <i32 0, i32 1>"));
        let narrow = "  %4 = shufflevector <64 x half> %3, <64 x half> poison, <2 x i32> <i32 0, i32 65>";
        assert_eq!(shrunk(narrow), "  %4 = shufflevector <2 x half> %3, <2 x half> poison, <2 x i32> <i32 0, i32 3>");
        assert_eq!(shrunk("  %5 = icmp slt i32 %4, 64"), "  %5 = icmp slt i32 %4, 64");
    }
}
