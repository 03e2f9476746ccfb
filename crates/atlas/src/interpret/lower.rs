//! Prepares a program: calls expanded, operands as slots, operations as loops, blocks as jumps.

use std::collections::HashMap;

use elinvar_core::DType;

use super::{
    code::{Apply, Code, Kernel, Rule, Step},
    flatten::flatten,
    fuse::{dead, fuse, fuse_bounds, fuse_products, last_uses, note_stored, straight_lines},
    ops,
};
use crate::{
    program::{Atomic, Binary, Compare, Flow, Instruction, Memory, Operand, Program},
    verify::{Shape, shape},
};

/// Prepares the kernel of a verified program.
pub(super) fn lower(program: &Program) -> Code {
    let flat = flatten(program);
    let shape = shape(&flat.body, &program.kernel.arguments, flat.registers.len(), 0, None);
    let mut lowering =
        Lowering { program, body: &flat.body, shape, slots: flat.registers, known: HashMap::new(), constants: Vec::new(), scalars: Vec::new() };
    let registers = lowering.slots.len();
    let jumps = jumps(&flat.body);
    let mut steps: Vec<_> = (0..flat.body.len()).filter_map(|index| lowering.step(index, &jumps)).collect();
    let last = last_uses(&flat.body, lowering.slots.len());
    fuse(&mut steps, &flat.body, &last, &lowering.slots);
    fuse_products(&mut steps, &flat.body, &last, &lowering.slots);
    fuse_bounds(&mut steps, &flat.body, &last);
    note_stored(&mut steps, &last, &lowering.slots);
    let alone = |i: &Instruction| matches!(i, Instruction::Barrier | Instruction::Reduce { .. } | Instruction::Shuffle { .. });
    let merges = program.shared.is_empty() && !flat.body.iter().any(alone);
    let dead = dead(&steps, &last, &lowering.shape, registers);
    let until = straight_lines(&steps);
    let straight = steps.iter().zip(&until).all(|(step, &until)| until > 0 || matches!(step, Step::Position { .. } | Step::If { .. } | Step::EndIf));
    let width = lowering.slots.iter().map(|dtype| dtype.size()).fold(4, usize::max);
    let Lowering { slots, constants, scalars, .. } = lowering;
    Code { steps, sites: flat.sites, slots, registers, constants, scalars, merges, dead, width, until, straight }
}

/// For an `if` its `else` or `end`, for an `else` its `end`, for an `end` what it closes.
fn jumps(body: &[Instruction]) -> Vec<usize> {
    let mut jumps = vec![0; body.len()];
    let mut open = Vec::new();
    for (index, instruction) in body.iter().enumerate() {
        let flow = instruction.flow();
        if matches!(flow, Flow::Turns | Flow::Closes)
            && let Some(opened) = open.pop()
        {
            jumps[opened] = index;
            jumps[index] = opened;
        }
        if matches!(flow, Flow::Opens | Flow::Turns) {
            open.push(index);
        }
    }
    jumps
}

struct Lowering<'a> {
    program: &'a Program,
    body: &'a [Instruction],
    shape: Shape,
    slots: Vec<DType>,
    known: HashMap<Operand, u32>,
    constants: Vec<(u32, u64)>,
    scalars: Vec<(u32, u32)>,
}

impl Lowering<'_> {
    fn slot(&mut self, operand: Operand) -> u32 {
        if let Operand::Register(register) = operand {
            return register;
        }
        if let Some(&slot) = self.known.get(&operand) {
            return slot;
        }
        let slot = self.slots.len() as u32;
        match operand {
            Operand::Parameter(parameter) => {
                self.slots.push(self.program.parameters[parameter as usize].dtype);
                self.scalars.push((slot, parameter));
            }
            Operand::Constant(constant) => {
                self.slots.push(constant.dtype);
                self.constants.push((slot, constant.bits));
            }
            Operand::Register(_) => {}
        }
        self.known.insert(operand, slot);
        slot
    }

    fn memory(&self, memory: Memory) -> u32 {
        match memory {
            Memory::Buffer(index) => index,
            Memory::Shared(index) => self.program.parameters.len() as u32 + index,
        }
    }

    /// Whether lanes that do not take part in instruction `index` may still be read.
    fn blends(&self, index: usize, to: u32) -> bool {
        self.shape.block_of[index] != self.shape.scope[to as usize]
    }

    fn dtype(&self, slot: u32) -> DType {
        self.slots[slot as usize]
    }

    fn apply(&mut self, index: usize, to: u32, kernel: Option<Kernel>, operands: &[Operand], rule: Rule) -> Option<Step> {
        let mut from = [0; 3];
        for (slot, operand) in from.iter_mut().zip(operands) {
            *slot = self.slot(*operand);
        }
        let is_half = |slot: u32| matches!(self.dtype(slot), DType::F16 | DType::BF16);
        let moves = rule == Rule::Same && self.dtype(from[0]) == self.dtype(to);
        let (widen, narrow) =
            if moves || operands.len() == 3 && self.dtype(from[0]) == DType::Bool { (false, false) } else { (is_half(from[0]), is_half(to)) };
        let blend = self.blends(index, to);
        Some(Step::Apply(Apply { kernel: kernel?, to, from, count: operands.len(), widen, narrow, rule, blend, stored: None }))
    }

    fn step(&mut self, index: usize, jumps: &[usize]) -> Option<Step> {
        use Instruction as I;
        let jump = jumps[index];
        match self.body[index] {
            I::Unary { op, to, a } => self.apply(index, to, ops::unary(op, self.dtype(to)).map(Kernel::One), &[a], Rule::None),
            I::Binary { op, to, a, b } => {
                let rule = if op == Binary::Add {
                    Rule::Add
                } else if op == Binary::Sub {
                    Rule::Sub
                } else {
                    Rule::None
                };
                self.apply(index, to, ops::binary(op, self.dtype(to)).map(Kernel::Two), &[a, b], rule)
            }
            I::Ternary { op, to, a, b, c } => self.apply(index, to, ops::ternary(op, self.dtype(to)).map(Kernel::Three), &[a, b, c], Rule::None),
            I::Compare { op, to, a, b } => {
                let rule = match op {
                    Compare::Lt => Rule::Lt,
                    Compare::Ge => Rule::Ge,
                    Compare::Eq | Compare::Ne | Compare::Le | Compare::Gt => Rule::None,
                };
                let slot = self.slot(a);
                self.apply(index, to, Some(Kernel::Two(ops::compare(op, self.dtype(slot)))), &[a, b], rule)
            }
            I::Select { to, condition, a, b } => {
                let kernel = Kernel::Three(ops::select(self.dtype(to).size()));
                self.apply(index, to, Some(kernel), &[condition, a, b], Rule::None)
            }
            I::Convert { to, a } | I::Move { to, a } => {
                let slot = self.slot(a);
                let (from, into) = (self.dtype(slot), self.dtype(to));
                let kernel = if from == into { ops::same(from.size()) } else { ops::convert(from, into) };
                self.apply(index, to, Some(Kernel::One(kernel)), &[a], Rule::Same)
            }
            I::Position { to, position } => Some(Step::Position { to, position, blend: self.blends(index, to) }),
            I::Load { to, memory, index: place } => {
                let (memory, place) = (self.memory(memory), self.slot(place));
                Some(Step::Load { to, memory, index: place, blend: self.blends(index, to) })
            }
            I::Store { memory, index, value } => {
                let (memory, index, value) = (self.memory(memory), self.slot(index), self.slot(value));
                Some(Step::Store { memory, index, value })
            }
            I::Atomic { op, to, memory, index: place, value } => self.atomic(index, Some(op), to, memory, place, value, value),
            I::CompareExchange { to, memory, index: place, expected, value } => self.atomic(index, None, to, memory, place, expected, value),
            I::Reduce { scope, op, to, a } => {
                let (kernel, a) = (ops::binary(op, self.dtype(to))?, self.slot(a));
                let half = matches!(self.dtype(to), DType::F16 | DType::BF16);
                Some(Step::Reduce { scope, kernel, half, to, a, blend: self.blends(index, to) })
            }
            I::Shuffle { kind, to, a, by } => {
                let (a, by) = (self.slot(a), self.slot(by));
                Some(Step::Shuffle { kind, to, a, by, blend: self.blends(index, to) })
            }
            I::Barrier => Some(Step::Barrier),
            I::Fence => Some(Step::Fence),
            I::Call { .. } => None,
            I::If { condition } => {
                let has_else = self.shape.other[self.shape.opens[index] as usize] != u32::MAX;
                Some(Step::If { condition: self.slot(condition), otherwise: jump + 1, has_else })
            }
            I::Else => Some(Step::Else { end: jump }),
            I::Loop { bound } => Some(Step::Loop { bound }),
            I::While { condition } => Some(Step::While { condition: self.slot(condition) }),
            I::Break => Some(Step::Break),
            I::Continue => Some(Step::Continue),
            I::End if matches!(self.body[jump], I::Loop { .. }) => Some(Step::EndLoop { start: jump }),
            I::End => Some(Step::EndIf),
            I::Exit => Some(Step::Exit),
        }
    }

    #[allow(clippy::too_many_arguments, reason = "the fields of two instructions")]
    fn atomic(
        &mut self,
        index: usize,
        op: Option<Atomic>,
        to: Option<u32>,
        memory: Memory,
        place: Operand,
        expected: Operand,
        value: Operand,
    ) -> Option<Step> {
        let blend = to.is_some_and(|to| self.blends(index, to));
        let (memory, index) = (self.memory(memory), self.slot(place));
        let (expected, value) = (self.slot(expected), self.slot(value));
        Some(Step::Atomic { op, to, memory, index, expected, value, blend })
    }
}
