//! Kernels that flush subnormals, as Apple's GPUs do: each operation on `float` and `bfloat` takes a subnormal operand for a zero of its sign, and gives
//! one in place of a subnormal result. The operations are rewritten in the intermediate representation, before anything is optimised. The processor's
//! own flushing is not used: it would change what the executor computes between a kernel's instructions, knows no conversions from bfloat, and differs
//! between processors in results that round up to the least normal number.

use std::{collections::BTreeMap, fmt::Write};

/// Operations of two operands of one type.
const ARITHMETIC: &[&str] = &["fadd", "fsub", "fmul", "fdiv", "frem"];
/// Functions that see bits, not numbers, and those that flush themselves.
const BITWISE: &[&str] = &["llvm.fabs.", "llvm.copysign.", "llvm.is.fpclass.", "elv_air_"];

/// A type that is flushed: its name, the integer of its size, and that integer's masks of the exponent and of the sign.
const TYPES: [(&str, &str, i32, i32); 2] = [("float", "i32", 0x7f80_0000, i32::MIN), ("bfloat", "i16", 0x7f80, -0x8000)];

/// The module with every operation on the flushed types replaced by a function that flushes around it.
pub(crate) fn flush(module: &str) -> String {
    let declared: BTreeMap<&str, (&str, Vec<&str>)> = module.lines().filter_map(declaration).collect();
    let mut functions = BTreeMap::new();
    let mut out = String::with_capacity(2 * module.len());
    for line in module.lines() {
        match line.strip_prefix("  ").and_then(|line| line.split_once(" = ")).and_then(|(name, operation)| {
            let call = instruction(operation, &mut functions).or_else(|| call(operation, &declared, &mut functions))?;
            Some((name, call))
        }) {
            Some((name, call)) => drop(writeln!(out, "  {name} = {call}")),
            None => drop(writeln!(out, "{line}")),
        }
    }
    for (name, integer, exponent, sign) in TYPES {
        let _ = write!(
            out,
            "
define internal {name} @elv.flush.{name}({name} %x) alwaysinline {{
  %bits = bitcast {name} %x to {integer}
  %exponent = and {integer} %bits, {exponent}
  %tiny = icmp eq {integer} %exponent, 0
  %sign = and {integer} %bits, {sign}
  %kept = select i1 %tiny, {integer} %sign, {integer} %bits
  %flushed = bitcast {integer} %kept to {name}
  ret {name} %flushed
}}
"
        );
    }
    out.extend(functions.into_values());
    out
}

fn is_flushed(kind: &str) -> bool {
    TYPES.iter().any(|(name, ..)| *name == kind)
}

/// `declare float @llvm.fma.f32(float, float, float) #5`: a function that computes with numbers, by name.
fn declaration(line: &str) -> Option<(&str, (&str, Vec<&str>))> {
    let (result, rest) = line.strip_prefix("declare ")?.split_once(" @")?;
    // `{ float, i32 }` is one type.
    let result = result.find('{').map_or_else(|| result.rsplit(' ').next(), |at| result.get(at..))?;
    let (name, parameters) = rest.split_once('(')?;
    let parameters: Vec<&str> = parameters.split_once(')')?.0.split(", ").filter_map(|parameter| parameter.split(' ').next()).collect();
    let computes = is_flushed(result) || parameters.iter().any(|kind| is_flushed(kind));
    (computes && !BITWISE.iter().any(|prefix| name.starts_with(prefix))).then_some((name, (result, parameters)))
}

/// `fadd float %a, %b, !dbg !7` as a call of a function that is added to `functions`.
fn instruction(operation: &str, functions: &mut BTreeMap<String, String>) -> Option<String> {
    let (operation, metadata) = operation.find(", !").map_or((operation, ""), |at| operation.split_at(at));
    let mut words = operation.split(' ');
    let code = words.next()?;
    let conversion = matches!(code, "fpext" | "fptrunc");
    let (code, result) = match code {
        "fcmp" => (format!("fcmp {}", words.find(|word| word.len() == 3 || matches!(*word, "true" | "false"))?), Some("i1")),
        _ if conversion => (code.to_owned(), operation.rsplit(' ').next()),
        _ if ARITHMETIC.contains(&code) => (code.to_owned(), None),
        _ => return None,
    };
    let kind = words.find(|word| is_flushed(word))?;
    let result = result.unwrap_or(kind);
    let operands = words.collect::<Vec<_>>().join(" ");
    let operands: Vec<&str> = match conversion {
        true => vec![operands.rsplit_once(" to ")?.0],
        false => operands.split(", ").collect(),
    };
    let name = format!("elv.{}.{kind}.{result}", code.replace(' ', "."));
    let names: Vec<String> = (0..operands.len()).map(|index| format!("%flushed.{index}")).collect();
    let to = if conversion { format!(" to {result}") } else { String::new() };
    let body = format!("{code} {kind} {}{to}", names.join(", "));
    functions.entry(name.clone()).or_insert_with(|| function(&name, result, &vec![kind; operands.len()], &body));
    let operands: Vec<String> = operands.iter().map(|operand| format!("{kind} {operand}")).collect();
    Some(format!("call {result} @{name}({}){metadata}", operands.join(", ")))
}

/// `call float @llvm.fma.f32(…)` as a call of a function that is added to `functions`.
fn call(operation: &str, declared: &BTreeMap<&str, (&str, Vec<&str>)>, functions: &mut BTreeMap<String, String>) -> Option<String> {
    let (before, rest) = operation.split_once('@').filter(|(before, _)| before.contains("call "))?;
    let (callee, arguments) = rest.split_once('(')?;
    let (result, parameters) = declared.get(callee)?;
    let name = format!("elv.{callee}");
    let arguments_of_body: Vec<String> =
        parameters.iter().enumerate().map(|(index, kind)| format!("{kind} %{}.{index}", if is_flushed(kind) { "flushed" } else { "x" })).collect();
    let body = format!("call {result} @{callee}({})", arguments_of_body.join(", "));
    functions.entry(name.clone()).or_insert_with(|| function(&name, result, parameters, &body));
    Some(format!("{before}@{name}({arguments}"))
}

/// A function that does `body` to its flushed parameters, and flushes the result. Without debug information of its own, it takes the line of the
/// place that it is inlined into.
fn function(name: &str, result: &str, parameters: &[&str], body: &str) -> String {
    let list: Vec<String> = parameters.iter().enumerate().map(|(index, kind)| format!("{kind} %x.{index}")).collect();
    let mut text = format!("\ndefine internal {result} @{name}({}) alwaysinline {{\n", list.join(", "));
    for (index, kind) in parameters.iter().enumerate().filter(|(_, kind)| is_flushed(kind)) {
        let _ = writeln!(text, "  %flushed.{index} = call {kind} @elv.flush.{kind}({kind} %x.{index})");
    }
    let _ = writeln!(text, "  %y = {body}");
    let flushed = if is_flushed(result) {
        format!("  %flushed.y = call {result} @elv.flush.{result}({result} %y)\n  ret {result} %flushed.y")
    } else {
        format!("  ret {result} %y")
    };
    text + &flushed + "\n}\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_of_several_results_takes_flushed_arguments() {
        let module = "declare { float, i32 } @llvm.frexp.f32.i32(float) #1\n  %y = call { float, i32 } @llvm.frexp.f32.i32(float %x), !dbg !3\n";
        let flushed = flush(module);
        assert!(flushed.contains("  %y = call { float, i32 } @elv.llvm.frexp.f32.i32(float %x), !dbg !3\n"), "{flushed}");
        assert!(flushed.contains("define internal { float, i32 } @elv.llvm.frexp.f32.i32(float %x.0) alwaysinline {"), "{flushed}");
        assert!(flushed.contains("  %y = call { float, i32 } @llvm.frexp.f32.i32(float %flushed.0)\n  ret { float, i32 } %y\n"), "{flushed}");
    }
}
