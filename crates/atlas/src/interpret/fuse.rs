//! Steps that do the work of two.

use elinvar_core::DType;

use super::{
    code::{Apply, Kernel, Rule, Step},
    ops,
};
use crate::{
    program::{Binary, Instruction, Operand},
    verify::Shape,
};

/// The last instruction that uses each register. A register that is assigned in the block of its scope keeps no value for another repetition.
pub(super) fn last_uses(body: &[Instruction], slots: usize) -> Vec<usize> {
    let mut last = vec![0; slots];
    for (index, instruction) in body.iter().enumerate() {
        for operand in instruction.operands(&[]) {
            if let Operand::Register(register) = operand {
                last[register as usize] = index;
            }
        }
    }
    last
}

/// Makes one step of two operations on floats where nothing else uses the first one's result.
pub(super) fn fuse(steps: &mut [Step], body: &[Instruction], last: &[usize], slots: &[DType]) {
    for at in 1..steps.len() {
        let (Instruction::Binary { op: first, to: middle, .. }, Instruction::Binary { op: second, to, a, b }) = (body[at - 1], body[at]) else {
            continue;
        };
        let (before, rest) = steps.split_at_mut(at);
        let (Some(step @ Step::Apply(_)), Some(Step::Apply(later))) = (before.last_mut(), rest.first_mut()) else { continue };
        let Step::Apply(earlier) = &*step else { continue };
        let Some(kernel) = ops::pair(first, second, slots[to as usize]) else { continue };
        let (is_a, is_b) = (a == Operand::Register(middle), b == Operand::Register(middle));
        let other = match (is_a, is_b) {
            (true, false) => later.from[1],
            (false, true) if second == Binary::Add => later.from[0],
            _ => continue,
        };
        if earlier.count != 2 {
            continue;
        }
        // Its result is lost if the second operation takes its register, or if there is no other use.
        if to == middle || last[middle as usize] == at && !earlier.blend {
            let [a, b, _] = earlier.from;
            (later.kernel, later.from, later.count, later.rule) = (Kernel::Three(kernel), [a, b, other], 3, Rule::None);
            (later.widen, later.narrow) = (false, false);
            *step = Step::Nothing;
        }
    }
}

/// Notes which results are stored at once and used by nothing else.
pub(super) fn note_stored(steps: &mut [Step], last: &[usize], slots: &[DType]) {
    for at in 1..steps.len() {
        let (before, rest) = steps.split_at_mut(at);
        if let (Some(Step::Apply(apply)), Some(Step::Store { memory, index, value })) = (before.last_mut(), rest.first())
            && apply.to == *value
            && index != value
            && last[*value as usize] == at
            && slots[*value as usize] != DType::Bool
            && !apply.blend
        {
            apply.stored = Some((*memory, *index));
        }
    }
}

/// Makes one step of a function on floats and the product, perhaps with a sum, that alone uses its value.
pub(super) fn fuse_products(steps: &mut [Step], body: &[Instruction], last: &[usize], slots: &[DType]) {
    for at in 1..steps.len() {
        let product = if matches!(steps[at - 1], Step::Nothing) { at - 1 } else { at };
        let Some(earlier) = product.checked_sub(1) else { continue };
        let (Instruction::Unary { op, to: middle, .. }, Instruction::Binary { op: Binary::Mul, to, a, b }) = (body[earlier], body[product]) else {
            continue;
        };
        let (before, rest) = steps.split_at_mut(at);
        let (Step::Apply(first), Step::Apply(later)) = (&before[earlier], &mut rest[0]) else { continue };
        let Some((two, gate)) = ops::times(op, slots[to as usize]).filter(|_| !first.blend) else { continue };
        let is_last = to == middle || last[middle as usize] == product;
        let other = match (a == Operand::Register(middle), b == Operand::Register(middle)) {
            (true, false) => later.from[1],
            (false, true) => later.from[0],
            _ => continue,
        };
        let sum = product != at;
        if is_last && later.count == if sum { 3 } else { 2 } {
            later.from = [first.from[0], other, later.from[2]];
            (later.kernel, later.rule) = (if sum { Kernel::Gate(gate, [f32::NEG_INFINITY, f32::INFINITY]) } else { Kernel::Two(two) }, Rule::None);
            (later.widen, later.narrow) = (false, false);
            before[earlier] = Step::Nothing;
        }
    }
}

/// Makes one step of a gate with a sum and of clamping its value, which nothing else uses, between constants. Zeros are left out: a zero of which sign
/// it is depends on the order, and asking costs.
pub(super) fn fuse_bounds(steps: &mut [Step], body: &[Instruction], last: &[usize]) {
    let number =
        |operand| if let Operand::Constant(constant) = operand { Some(constant.as_f32()).filter(|x| !x.is_nan() && *x != 0.0) } else { None };
    for at in 2..steps.len() {
        let (Instruction::Binary { op: Binary::Max, to: larger, a, b: low }, Instruction::Binary { op: Binary::Min, to, b: high, .. }) =
            (body[at - 1], body[at])
        else {
            continue;
        };
        let ([.., step @ Step::Apply(_), Step::Nothing], [Step::Apply(later), ..]) = steps.split_at_mut(at) else { continue };
        let Step::Apply(gate) = &*step else { continue };
        let Kernel::Gate(kernel, _) = gate.kernel else { continue };
        let is_last = a == Operand::Register(gate.to) && (last[gate.to as usize] == at - 1 || [larger, to].contains(&gate.to));
        if let (Some(low), Some(high), true) = (number(low), number(high), is_last && !gate.blend) {
            (later.kernel, later.from) = (Kernel::Gate(kernel, [low, high]), gate.from);
            *step = Step::Nothing;
        }
    }
}

/// Registers whose values nothing uses after each step, where that does not depend on the way taken.
pub(super) fn dead(steps: &[Step], last: &[usize], shape: &Shape, registers: usize) -> Vec<Vec<u32>> {
    let mut dead = vec![Vec::new(); steps.len()];
    for (register, &at) in last.iter().enumerate().take(registers) {
        if at > 0 && shape.block_of[at] == shape.scope[register] {
            // What was fused is done by a step after.
            let fused = steps[at..].iter().take_while(|step| matches!(step, Step::Nothing)).count();
            dead[at + fused].push(register as u32);
        }
    }
    dead
}

/// For each step of a straight line of operations, loads and stores outside loops, in which no lane keeps a former value, where the line ends;
/// zero for other steps.
pub(super) fn straight_lines(steps: &[Step]) -> Vec<usize> {
    let mut loops = 0;
    let mut is_straight = |step: &Step| {
        match step {
            Step::Loop { .. } => loops += 1,
            Step::EndLoop { .. } => loops -= 1,
            Step::Apply(Apply { blend, .. }) | Step::Load { blend, .. } => return loops == 0 && !blend,
            Step::Store { .. } | Step::Nothing => return loops == 0,
            Step::Position { .. } | Step::Atomic { .. } | Step::Reduce { .. } | Step::Shuffle { .. } | Step::Fence | Step::Barrier => {}
            Step::If { .. } | Step::Else { .. } | Step::EndIf | Step::While { .. } | Step::Break | Step::Continue | Step::Exit => {}
        }
        false
    };
    let mut until: Vec<_> = steps.iter().enumerate().map(|(at, step)| if is_straight(step) { at + 1 } else { 0 }).collect();
    for at in (1..until.len()).rev() {
        if until[at - 1] != 0 && until[at] != 0 {
            until[at - 1] = until[at];
        }
    }
    until
}
