//! Statements of a function.

use std::fmt::Write;

use super::{Context, expressions, faults::counter, length_of, names::own, words::Part};
use crate::{
    program::{Function, Instruction, Memory, Operand},
    verify::{Shape, Variance, Variances, shape, variances},
};

/// How a register is declared.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Declared {
    /// Where it is first assigned.
    At(usize),
    /// At the start of a block.
    In(u32),
    /// As a parameter, or never used.
    Not,
}

/// A function being written.
pub(super) struct Body<'a> {
    pub(super) context: &'a Context<'a>,
    pub(super) function: &'a Function,
    /// Its number, the kernel's after all others.
    number: usize,
    names: Vec<String>,
    shape: Shape,
    /// Of the kernel, if it counts steps.
    variances: Option<Variances>,
    declared: Vec<Declared>,
}

impl<'a> Body<'a> {
    pub(super) fn new(context: &'a Context<'a>, number: usize) -> Self {
        let (program, is_kernel) = (context.program, number == context.program.functions.len());
        let function = program.functions.get(number).unwrap_or(&program.kernel);
        let names = function.registers.iter().map(|r| own(&r.name)).collect();
        let shape = shape(&function.body, &function.arguments, function.registers.len(), function.parameters, function.result);
        let mut declared = vec![Declared::Not; function.registers.len()];
        for (index, instruction) in function.body.iter().enumerate() {
            if let Some(to) = instruction.target()
                && to >= function.parameters
                && declared[to as usize] == Declared::Not
            {
                let scope = shape.scope[to as usize];
                let first = shape.block_of[index] == scope;
                declared[to as usize] = if first { Declared::At(index) } else { Declared::In(scope) };
            }
        }
        let variances = (is_kernel && context.faults.counts(number)).then(|| variances(program, &shape));
        Self { context, function, number, names, shape, variances, declared }
    }

    pub(super) fn register(&self, register: u32) -> &str {
        &self.names[register as usize]
    }

    pub(super) fn operand(&self, operand: Operand) -> String {
        match operand {
            Operand::Register(register) => self.names[register as usize].clone(),
            Operand::Parameter(parameter) => {
                let name = format!("atlas_parameters.{}", self.context.parameters[parameter as usize]);
                expressions::loaded(self.context.program.parameters[parameter as usize].dtype, name)
            }
            Operand::Constant(constant) => expressions::constant(constant),
        }
    }

    /// Names of memory and of its length.
    pub(super) fn memory(&self, memory: Memory) -> (String, String) {
        match memory {
            Memory::Buffer(index) => {
                let index = index as usize;
                (self.context.parameters[index].clone(), format!("atlas_parameters.length_{}", self.context.program.parameters[index].name))
            }
            Memory::Shared(index) => (self.context.shared[index as usize].clone(), length_of(&self.context.program.shared[index as usize])),
        }
    }

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

    /// The counter that instruction `index`, a loop or a call that assigns `to`, takes its steps from.
    pub(super) fn counter(&self, index: usize) -> &'static str {
        let variance = self.variances.as_ref().map_or(Variance::Thread, |variances| match self.function.body[index].target() {
            Some(to) => variances.register(to),
            None => variances.block(self.shape.opens[index]),
        });
        counter(variance)
    }

    /// The counters of the kernel.
    fn counters(&self) -> Vec<&'static str> {
        let counts = |(index, instruction): (usize, &Instruction)| match *instruction {
            Instruction::Loop { .. } => self.context.faults.of(self.number, index).map(|_| self.counter(index)),
            Instruction::Call { function, .. } => self.context.faults.counts(function as usize).then(|| self.counter(index)),
            _ => None,
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

    /// The part of a word that an instruction loads or stores.
    pub(super) fn word(&self, at: usize) -> Option<Part> {
        let is_kernel = self.number == self.context.program.functions.len();
        self.context.words.get(at).copied().flatten().filter(|_| is_kernel)
    }

    /// The index of an element, which is reported where it is out of bounds and the program traps.
    pub(super) fn index(&self, at: usize, index: Operand, length: &str) -> String {
        let place = self.operand(index);
        let fault = self.context.faults.of(self.number, at);
        fault.map_or(place.clone(), |fault| format!("atlas::inside({place}, {length}, atlas_fault, {}u)", fault.number))
    }

    fn declare(&self, registers: &[usize], depth: usize, text: &mut String) {
        for &register in registers {
            let (dtype, name) = (self.function.registers[register].dtype, &self.names[register]);
            // A loop that ran out of steps may leave it unassigned.
            let value = if self.context.faults.counts(self.number) { format!(" = {}(0)", expressions::held(dtype)) } else { String::new() };
            let _ = writeln!(text, "{:2$}{} {name}{value};", "", expressions::held(dtype), 4 * depth);
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
            _ => {
                let value = self.value(at, instruction);
                let word = self.load_word(at, instruction).unwrap_or_default();
                word + &match instruction.target() {
                    Some(to) if self.declared[to as usize] == Declared::At(at) => {
                        format!("{} {} = {value};", expressions::held(self.function.registers[to as usize].dtype), self.names[to as usize])
                    }
                    Some(to) => format!("{} = {value};", self.names[to as usize]),
                    None => format!("{value};"),
                }
            }
        }
    }
}
