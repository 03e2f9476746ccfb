//! Statements of a function.

use std::fmt::Write;

use elinvar_core::metal_type;

use super::{Context, expressions, names::Names};
use crate::{
    program::{Function, Instruction, Memory, Operand},
    verify::{Shape, shape},
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
    names: Vec<String>,
    shape: Shape,
    declared: Vec<Declared>,
}

impl<'a> Body<'a> {
    pub(super) fn new(context: &'a Context<'a>, function: &'a Function) -> Self {
        let mut names: Names = context.globals.clone();
        let names = function.registers.iter().map(|r| names.give(&r.name)).collect();
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
        Self { context, function, names, shape, declared }
    }

    pub(super) fn register(&self, register: u32) -> &str {
        &self.names[register as usize]
    }

    pub(super) fn operand(&self, operand: Operand) -> String {
        match operand {
            Operand::Register(register) => self.names[register as usize].clone(),
            Operand::Parameter(parameter) => {
                let name = format!("atlas_parameters.{}", self.context.parameters[parameter as usize]);
                let is_bool = self.context.program.parameters[parameter as usize].dtype == elinvar_core::DType::Bool;
                if is_bool { format!("({name} != 0)") } else { name }
            }
            Operand::Constant(constant) => expressions::constant(constant),
        }
    }

    /// Names of memory and of its length.
    pub(super) fn memory(&self, memory: Memory) -> (String, String) {
        match memory {
            Memory::Buffer(index) => {
                let name = &self.context.parameters[index as usize];
                (name.clone(), format!("atlas_parameters.{name}_length"))
            }
            Memory::Shared(index) => {
                (self.context.shared[index as usize].clone(), format!("{}ul", self.context.program.shared[index as usize].length))
            }
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

    fn declare(&self, registers: &[usize], depth: usize, text: &mut String) {
        for &register in registers {
            let _ = writeln!(text, "{:2$}{} {3};", "", metal_type(self.function.registers[register].dtype), 4 * depth, self.names[register]);
        }
    }

    fn statement(&self, index: usize, instruction: &Instruction) -> String {
        match *instruction {
            Instruction::If { condition } => format!("if ({}) {{", self.operand(condition)),
            Instruction::Else => "} else {".to_owned(),
            Instruction::Loop { bound: None } => "for (;;) {".to_owned(),
            Instruction::Loop { bound: Some(bound) } => format!("for (uint atlas_n = 0; atlas_n < {bound}u; ++atlas_n) {{"),
            Instruction::While { condition } => format!("if (!{}) {{\n    break;\n}}", self.operand(condition)),
            Instruction::Break => "break;".to_owned(),
            Instruction::Continue => "continue;".to_owned(),
            Instruction::End => "}".to_owned(),
            Instruction::Exit => "return;".to_owned(),
            Instruction::Barrier => "threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);".to_owned(),
            Instruction::Store { memory, index, value } => self.store(memory, index, value),
            _ => {
                let value = self.value(instruction);
                match instruction.target() {
                    Some(to) if self.declared[to as usize] == Declared::At(index) => {
                        format!("{} {} = {value};", metal_type(self.function.registers[to as usize].dtype), self.names[to as usize])
                    }
                    Some(to) => format!("{} = {value};", self.names[to as usize]),
                    None => format!("{value};"),
                }
            }
        }
    }
}
