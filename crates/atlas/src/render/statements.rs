//! Statements of a function.

use std::fmt::Write;

use super::{
    body::{Body, Declared},
    names::held,
};
use crate::program::Instruction;

impl Body<'_> {
    /// Writes the statements.
    pub(super) fn write(&mut self, text: &mut String) {
        let mut hoisted = vec![Vec::new(); self.shape.parent.len()];
        for (register, declared) in self.declared.iter().enumerate() {
            if let Declared::In(block) = declared {
                hoisted[*block as usize].push(register);
            }
        }
        let mut depth = 1usize;
        for name in self.counters() {
            let _ = writeln!(text, "    uint {name} = {}u;", self.context.steps);
        }
        self.declare(&hoisted[0], depth, text);
        for (index, instruction) in self.function.body.iter().enumerate() {
            if matches!(instruction, Instruction::Else | Instruction::End) {
                depth -= 1;
            }
            let indent = 4 * depth;
            for line in self.statement(index, instruction).lines() {
                let _ = writeln!(text, "{:indent$}{line}", "");
            }
            let opened = self.shape.opens[index];
            if opened != u32::MAX {
                depth += 1;
                self.declare(&hoisted[opened as usize], depth, text);
            }
        }
    }

    /// The counters of the kernel.
    fn counters(&self) -> Vec<&'static str> {
        let counts = |(index, instruction): (usize, &Instruction)| {
            let is_counted = match instruction {
                Instruction::Call { function, .. } => self.context.faults.counts(*function as usize),
                loops => matches!(loops, Instruction::Loop { .. }) && self.context.faults.of(self.number, index).is_some(),
            };
            is_counted.then(|| self.counter(index))
        };
        let body = self.function.body.iter().enumerate().filter(|_| self.variances.is_some());
        let mut counters: Vec<_> = body.filter_map(counts).collect();
        counters.sort_unstable();
        counters.dedup();
        counters
    }

    /// Whether a loop that is counted may go on.
    fn goes_on(&self, index: usize) -> Option<String> {
        let fault = self.context.faults.of(self.number, index)?;
        Some(format!("atlas::goes_on({}, {}u, atlas_fault, {}u)", self.counter(index), fault.cost, fault.number))
    }

    fn declare(&self, registers: &[usize], depth: usize, text: &mut String) {
        for &register in registers {
            let (dtype, name) = (self.function.registers[register].dtype, &self.names[register]);
            // A loop that ran out of steps may leave it unassigned.
            let value = if self.context.faults.counts(self.number) { format!(" = {}(0)", held(dtype)) } else { String::new() };
            let _ = writeln!(text, "{:2$}{} {name}{value};", "", held(dtype), 4 * depth);
        }
    }

    fn statement(&self, at: usize, instruction: &Instruction) -> String {
        match *instruction {
            Instruction::If { condition } => format!("if ({}) {{", self.operand(condition)),
            Instruction::Else => "} else {".to_owned(),
            Instruction::Loop { bound } => match (bound, self.goes_on(at)) {
                (None, None) => "for (;;) {".to_owned(),
                (None, Some(goes_on)) => format!("while ({goes_on}) {{"),
                (Some(bound), None) => format!("for (uint atlas_n = 0; atlas_n < {bound}u; ++atlas_n) {{"),
                (Some(bound), Some(goes_on)) => format!("for (uint atlas_n = 0; atlas_n < {bound}u && {goes_on}; ++atlas_n) {{"),
            },
            Instruction::While { condition } => format!("if (!{}) {{\n    break;\n}}", self.operand(condition)),
            Instruction::Break => "break;".to_owned(),
            Instruction::Continue => "continue;".to_owned(),
            Instruction::End => "}".to_owned(),
            Instruction::Exit => "return;".to_owned(),
            Instruction::Barrier => "threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);".to_owned(),
            Instruction::Fence => "atomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst, thread_scope_device);".to_owned(),
            Instruction::Store { memory, index, value } => self.store(at, memory, index, value),
            Instruction::Unary { .. }
            | Instruction::Binary { .. }
            | Instruction::Ternary { .. }
            | Instruction::Compare { .. }
            | Instruction::Select { .. }
            | Instruction::Convert { .. }
            | Instruction::Move { .. }
            | Instruction::Position { .. }
            | Instruction::Load { .. }
            | Instruction::Atomic { .. }
            | Instruction::CompareExchange { .. }
            | Instruction::Reduce { .. }
            | Instruction::Shuffle { .. }
            | Instruction::Call { .. } => {
                let value = self.value(at, instruction);
                let word = self.load_word(at, instruction).unwrap_or_default();
                word + &match instruction.target() {
                    Some(to) if self.declared[to as usize] == Declared::At(at) => {
                        format!("{} {} = {value};", held(self.function.registers[to as usize].dtype), self.names[to as usize])
                    }
                    Some(to) => format!("{} = {value};", self.names[to as usize]),
                    None => format!("{value};"),
                }
            }
        }
    }
}
