//! Metal 4's operations on tensors, which compiled code calls by names that say what their operands are and where they lie. Each becomes a call of one of
//! the functions of `runtime/tensors.h`, which take that as numbers.

use super::intrinsics::{Call, Intrinsics};

/// What the names of all of them begin with.
pub(super) const PREFIX: &str = "__tensorops_impl_";
/// Arguments by which a function of cooperative tensors says which operand of which product it is about.
const DESCRIPTION: usize = 8;

/// An operand's place and type, as a name has them.
struct Operand {
    /// Rather than shared out among threads.
    in_memory: bool,
    /// The number of the type in `MPSDataType`, as an argument.
    kind: String,
}

fn operands(names: &str) -> Option<Vec<Operand>> {
    let (mut operands, mut in_memory) = (Vec::new(), false);
    for word in names.split('_') {
        let kind: u32 = match word {
            "dv" | "tg" => {
                in_memory = true;
                continue;
            }
            "f32" => 0x1000_0020,
            "f16" => 0x1000_0010,
            "b16" | "bf" => 0x9000_0010,
            "i8" => 0x2000_0008,
            "ui8" => 8,
            "i16" => 0x2000_0010,
            "i32" => 0x2000_0020,
            _ => return None,
        };
        operands.push(Operand { in_memory, kind: format!("i32 {}", kind as i32) });
        in_memory = false;
    }
    Some(operands)
}

impl Intrinsics<'_> {
    /// The body of a function that calls the runtime's.
    pub(super) fn tensors(&mut self, call: &Call<'_>) -> Option<String> {
        let name = call.name.strip_prefix(PREFIX)?;
        let all: Vec<usize> = (0..call.parameters.len()).collect();
        let last = *all.last()?;
        let of_memory = |operation: &str| name.strip_prefix(operation).and_then(operands).is_some_and(|found| found.len() == 1 && found[0].in_memory);
        if of_memory("matmul2d_op_cooperative_tensor_load_") || of_memory("matmul2d_op_cooperative_tensor_store_") {
            // After the description both tensors, numbers that say what kinds of tensors these are, three types, and the threads.
            let kept: Vec<usize> = (0..DESCRIPTION + 2).chain(last.checked_sub(3)?..=last).collect();
            let operation = if name.contains("_load_") { "load" } else { "store" };
            return self.tensor_call(&format!("elv_air_matmul2d_op_cooperative_tensor_{operation}"), call, &kept, &[], false);
        }
        if let Some(names) = name.strip_prefix("convolution2d_op_run_cooperative_") {
            let [given, weights, made] = <[Operand; 3]>::try_from(operands(names)?).ok()?;
            let is_known = given.in_memory && weights.in_memory && !made.in_memory;
            // Without the numbers that say what kinds of tensors these are.
            let call = || self.tensor_call("elv_air_convolution2d_op_run", call, &[0, 1, 3, 5, 6, 7], &[given.kind, weights.kind, made.kind], true);
            return is_known.then(call).flatten();
        }
        if let Some(names) = name.strip_prefix("matmul2d_op_run_") {
            let [left, right, made] = <[Operand; 3]>::try_from(operands(names.strip_prefix("cooperative_").unwrap_or(names))?).ok()?;
            let (given, threads) = match (left.in_memory, right.in_memory, made.in_memory) {
                (false, false, false) => {
                    return self.tensor_call("elv_air_matmul2d_op_run_shared", call, &[0, 1, 2, 3], &[left.kind, right.kind, made.kind], true);
                }
                (true, true, false) => ("i1 false", 6),
                (true, true, true) => ("i1 true", 7),
                (true, false, _) | (false, true, _) | (false, false, true) => return None,
            };
            let numbers = [left.kind, right.kind, made.kind, given.to_owned()];
            return self.tensor_call("elv_air_matmul2d_op_run", call, &[0, 1, 3, 5, threads], &numbers, true);
        }
        self.tensor_call(&format!("elv_air_{name}"), call, &all, &[], false)
    }

    /// A call with some of the arguments, further ones, and the place of the call.
    fn tensor_call(&mut self, name: &str, call: &Call<'_>, kept: &[usize], further: &[String], sited: bool) -> Option<String> {
        let mut arguments = Vec::new();
        for &at in kept {
            arguments.push(format!("{} %x{at}", call.parameters.get(at)?));
        }
        arguments.extend_from_slice(further);
        if sited {
            arguments.extend(["ptr %file".to_owned(), "i32 %line".to_owned()]);
        }
        let parameters: Vec<&str> = arguments.iter().filter_map(|argument| argument.split(' ').next()).collect();
        let parameters = parameters.join(", ");
        self.call(name, call.result, &parameters, &arguments)
    }
}
