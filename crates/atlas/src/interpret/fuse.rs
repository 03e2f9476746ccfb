//! Steps that do the work of two.

use elinvar_core::DType;

use super::{
    lower::{Kernel, Rule, Step},
    ops,
};
use crate::program::{Binary, Instruction, Operand};

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

/// Makes one step of two operations on f32 where nothing else uses the first one's result.
pub(super) fn fuse(steps: &mut [Step], body: &[Instruction], last: &[usize], slots: &[DType]) {
    for at in 1..steps.len() {
        let (Instruction::Binary { op: first, to: middle, .. }, Instruction::Binary { op: second, to, a, b }) = (body[at - 1], body[at]) else {
            continue;
        };
        let (before, rest) = steps.split_at_mut(at);
        let (Some(step @ Step::Apply(_)), Some(Step::Apply(later))) = (before.last_mut(), rest.first_mut()) else { continue };
        let Step::Apply(earlier) = &*step else { continue };
        let Some(kernel) = ops::fused(first, second).filter(|_| slots[to as usize] == DType::F32) else { continue };
        let (is_a, is_b) = (a == Operand::Register(middle), b == Operand::Register(middle));
        let other = match (is_a, is_b) {
            (true, false) => later.from[1],
            (false, true) if second == Binary::Add => later.from[0],
            _ => continue,
        };
        // Its result is lost if the second operation takes its register, or if there is no other use.
        if to == middle || last[middle as usize] == at && !earlier.blend {
            let [a, b, _] = earlier.from;
            (later.kernel, later.from, later.count, later.rule) = (Kernel::Three(kernel), [a, b, other], 3, Rule::None);
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
