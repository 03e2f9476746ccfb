//! Checks that clang's sanitizers leave out in its OpenCL mode, added to the intermediate representation before anything is optimised: the amount
//! of a shift, which OpenCL defines modulo the width; the alignment of what is copied as a whole, such as a vector; and whether an access
//! stays inside the private array that its pointer leads to. The optimiser answers the last as soon as inlining shows it the array, which is before
//! it unrolls loops and drops what lies outside; of a pointer whose array it never sees the check vanishes.

use std::{collections::HashSet, fmt::Write};

/// Small enough to be inlined everywhere and to vanish where the optimiser knows the answer. Without debug information of their own, their calls
/// take the line of the place they are inlined into.
const CHECKS: &str = "
define internal void @elv.shift.i32(i32 %amount, i32 %most) alwaysinline {
  %wide = sext i32 %amount to i64
  %bad = icmp ugt i32 %amount, %most
  br i1 %bad, label %report, label %end
report:
  call void @elv_shift_overflow(i64 %wide)
  br label %end
end:
  ret void
}

define internal void @elv.shift.i64(i64 %amount, i64 %most) alwaysinline {
  %bad = icmp ugt i64 %amount, %most
  br i1 %bad, label %report, label %end
report:
  call void @elv_shift_overflow(i64 %amount)
  br label %end
end:
  ret void
}

define internal void @elv.aligned(ptr %pointer, i64 %mask) alwaysinline {
  %address = ptrtoint ptr %pointer to i64
  %low = and i64 %address, %mask
  %bad = icmp ne i64 %low, 0
  br i1 %bad, label %report, label %end
report:
  call void @elv_misaligned(i64 %address)
  br label %end
end:
  ret void
}

define internal void @elv.within(ptr %pointer, i64 %bytes) alwaysinline {
  %left = call i64 @llvm.objectsize.i64.p0(ptr %pointer, i1 false, i1 true, i1 true)
  %bad = icmp ult i64 %left, %bytes
  br i1 %bad, label %report, label %end
report:
  call void @elv_beyond_array(i64 %bytes)
  br label %end
end:
  ret void
}

define internal void @elv.divisible(i64 %dividend, i64 %divisor, i64 %least, i1 %signed) alwaysinline {
  %zero = icmp eq i64 %divisor, 0
  %minus = icmp eq i64 %divisor, -1
  %lowest = icmp eq i64 %dividend, %least
  %both = and i1 %minus, %lowest
  %large = and i1 %both, %signed
  %bad = or i1 %zero, %large
  br i1 %bad, label %report, label %end
report:
  call void @elv_division(i64 %dividend)
  br label %end
end:
  ret void
}

declare void @elv_division(i64)
declare void @elv_shift_overflow(i64)
declare void @elv_misaligned(i64)
declare void @elv_beyond_array(i64)
declare i64 @llvm.objectsize.i64.p0(ptr, i1, i1, i1)
";

/// The module with the checks added. Values must have kept their names.
pub(crate) fn instrument(module: &str) -> String {
    let mut out = String::with_capacity(module.len() + module.len() / 8 + CHECKS.len());
    let mut sanitized = false;
    let mut variables = HashSet::new();
    let plain = plain_attributes(module);
    for line in module.lines() {
        if line.starts_with("define ") {
            sanitized = !attribute_group(line).is_some_and(|group| plain.contains(&group));
            variables.clear();
        } else if sanitized && line.starts_with("  ") {
            variables.extend(line.split_once(" = alloca ").map(|(name, _)| name.trim_start()));
            shift(line, &mut out);
            copy(line, &mut out);
            if let Some((pointer, bytes)) = access(line).filter(|(pointer, _)| !variables.contains(pointer)) {
                within(line, pointer, bytes, &mut out);
            }
        }
        out.push_str(line);
        out.push('\n');
    }
    out.push_str(CHECKS);
    out
}

/// The numbers of the attribute groups of functions that are not to be checked: those that the thread sanitizer leaves out too.
fn plain_attributes(module: &str) -> Vec<&str> {
    let groups = module.lines().filter_map(|line| line.strip_prefix("attributes #")?.split_once(' '));
    groups.filter(|(_, attributes)| !attributes.contains("sanitize_thread")).map(|(number, _)| number).collect()
}

fn attribute_group(definition: &str) -> Option<&str> {
    definition.rsplit(" #").next()?.split(' ').next()
}

/// `%shl.mask = and i32 %amount, 31, !dbg !7`: clang's own masking of the amount.
fn shift(line: &str, out: &mut String) {
    let Some((name, operation)) = line.trim_start().split_once(" = and ") else { return };
    if !name.starts_with("%shl.mask") && !name.starts_with("%shr.mask") {
        return;
    }
    let mut words = operation.split([' ', ',']).filter(|word| !word.is_empty());
    if let (Some(width @ ("i32" | "i64")), Some(amount), Some(most)) = (words.next(), words.next(), words.next()) {
        let _ = writeln!(out, "  call void @elv.shift.{width}({width} {amount}, {width} {most}){}", place(line));
    }
}

/// `call void @llvm.memcpy.p0.p0.i64(ptr align 16 %to, ptr align 16 %from, i64 16, i1 false), !dbg !7`.
fn copy(line: &str, out: &mut String) {
    let Some((_, arguments)) = line.split_once("call void @llvm.memcpy.p0.p0.i64(") else { return };
    for argument in arguments.split(", ").take(2) {
        let Some((alignment, pointer)) = argument.strip_prefix("ptr align ").and_then(|rest| rest.split_once(' ')) else { continue };
        if let Ok(alignment @ 2..) = alignment.parse::<u64>()
            && !pointer.contains(' ')
        {
            let _ = writeln!(out, "  call void @elv.aligned(ptr {pointer}, i64 {}){}", alignment - 1, place(line));
        }
    }
    let mut words = arguments.split(", ");
    let (to, from, bytes) = (words.next(), words.next(), words.next());
    if let Some(Ok(bytes)) = bytes.and_then(|bytes| bytes.strip_prefix("i64 ")).map(str::parse) {
        for pointer in [from, to].into_iter().flatten().filter_map(|argument| argument.rsplit(' ').next()).filter(|name| name.starts_with('%')) {
            within(line, pointer, bytes, out);
        }
    }
}

/// The pointer and the bytes of a load or store of a number or vector: `%8 = load float, ptr %p, align 4`, `store <2 x i32> %v, ptr %p, align 8`.
fn access(line: &str) -> Option<(&str, u64)> {
    let line = line.trim_start();
    let (operands, type_end) = match line.strip_prefix("store ") {
        Some(operands) => (operands, ' '),
        None => (line.split_once(" = load ")?.1, ','),
    };
    let operands = operands.strip_prefix("volatile ").unwrap_or(operands);
    let (kind, rest) = if operands.starts_with('<') { operands.split_once('>')? } else { operands.split_once(type_end)? };
    let pointer = rest.split_once(", align ")?.0.rsplit_once("ptr ")?.1;
    Some((pointer, bytes_of(kind)?)).filter(|_| pointer.starts_with('%'))
}

fn bytes_of(kind: &str) -> Option<u64> {
    if let Some((count, element)) = kind.strip_prefix('<').and_then(|vector| vector.split_once(" x ")) {
        return Some(count.parse::<u64>().ok()? * bytes_of(element)?);
    }
    match kind {
        "half" | "bfloat" => Some(2),
        "float" => Some(4),
        "double" | "ptr" => Some(8),
        integer => integer.strip_prefix('i')?.parse::<u64>().ok().map(|bits| bits.div_ceil(8)),
    }
}

fn within(line: &str, pointer: &str, bytes: u64, out: &mut String) {
    let _ = writeln!(out, "  call void @elv.within(ptr {pointer}, i64 {bytes}){}", place(line));
}

/// The instruction's line, for a call beside it.
fn place(line: &str) -> String {
    line.rsplit_once("!dbg ").map_or(String::new(), |(_, place)| format!(", !dbg {}", place.split(',').next().unwrap_or(place)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODULE: &str = "\
define i32 @f(i32 %a, i32 %b) #0 !dbg !1 {
  %shl.mask = and i32 %b, 31, !dbg !42
  call void @llvm.memcpy.p0.p0.i64(ptr align 16 %v, ptr align 1 %p, i64 16, i1 false), !dbg !30
}
define i32 @g(i32 %b) #1 {
  %shl.mask = and i32 %b, 31
}
attributes #0 = { nounwind sanitize_thread \"a\"=\"b\" }
attributes #1 = { nounwind }
";

    #[test]
    fn accesses_through_pointers_are_checked_and_those_of_variables_are_not() {
        let body = [
            "  %v = alloca [4 x float], align 4",
            "  store float 0.0, ptr %v, align 4",
            "  %1 = load <4 x half>, ptr %p, align 8, !dbg !5, !tbaa !6",
            "  store { i8, i64 } %s, ptr %p, align 8",
            "  store ptr getelementptr inbounds (i8, ptr @g, i64 4), ptr %q, align 8, !dbg !7",
            "  call void @llvm.memcpy.p0.p0.i64(ptr align 1 %v, ptr align 1 @g, i64 12, i1 false), !dbg !8",
        ];
        let out = instrument(&format!("define void @f(ptr %p) #0 {{\n{}\n}}\nattributes #0 = {{ sanitize_thread }}\n", body.join("\n")));
        let added: Vec<_> = out.lines().take_while(|line| *line != "}").filter(|line| line.contains("@elv.")).map(str::trim).collect();
        let expected = ["(ptr %p, i64 8), !dbg !5", "(ptr %q, i64 8), !dbg !7", "(ptr %v, i64 12), !dbg !8"];
        assert_eq!(added, expected.map(|rest| format!("call void @elv.within{rest}")));
    }

    #[test]
    fn shifts_and_copies_are_checked_where_the_sanitizer_checks() {
        let out = instrument(MODULE);
        let body = &out[..out.find("attributes").unwrap()];
        assert_eq!(body.matches("call void @elv.").count(), 4);
        assert!(body.contains("  call void @elv.shift.i32(i32 %b, i32 31), !dbg !42\n  %shl.mask = and"), "{body}");
        assert!(body.contains("  call void @elv.aligned(ptr %v, i64 15), !dbg !30\n"), "{body}");
    }
}
