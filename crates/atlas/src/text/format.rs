//! Writes a program as text, in the one layout.

use std::fmt::Write;

use elinvar_core::Access;

use crate::program::{Function, Instruction, Memory, Operand, Program};

/// The text form of a program; read again it is the same program. Comments are not kept.
pub fn format(program: &Program) -> String {
    let mut text = format!("atlas 1\nprogram {}\nbounds {}\n", program.name, program.bounds.name());
    if let Some([x, y, z]) = program.block {
        let _ = writeln!(text, "block {x} {y} {z}");
    }
    for parameter in &program.parameters {
        let _ = match parameter.access {
            Some(access) => writeln!(text, "buffer {}: {} {}", parameter.name, access_name(access), parameter.dtype),
            None => writeln!(text, "scalar {}: {}", parameter.name, parameter.dtype),
        };
    }
    for shared in &program.shared {
        let length = if shared.length == 0 { String::new() } else { shared.length.to_string() };
        let _ = writeln!(text, "shared {}: {}[{length}]", shared.name, shared.dtype);
    }
    for function in &program.functions {
        let parameters: Vec<_> = function.registers.iter().take(function.parameters as usize).map(|r| format!("{}: {}", r.name, r.dtype)).collect();
        let result = function.result.and_then(|result| program.dtype(function, result));
        let _ = writeln!(text, "\nfunction {}({}) -> {}", function.name, parameters.join(", "), result.map_or("?", |d| d.name()));
        Body { program, function, assigned: assigned(function) }.write(&mut text);
    }
    text.push_str("\nkernel\n");
    Body { program, function: &program.kernel, assigned: assigned(&program.kernel) }.write(&mut text);
    text
}

fn assigned(function: &Function) -> Vec<bool> {
    (0..function.registers.len()).map(|index| index < function.parameters as usize).collect()
}

fn access_name(access: Access) -> &'static str {
    match access {
        Access::Read => "read",
        Access::Write => "write",
        Access::ReadWrite => "update",
    }
}

struct Body<'a> {
    program: &'a Program,
    function: &'a Function,
    assigned: Vec<bool>,
}

impl Body<'_> {
    fn write(mut self, text: &mut String) {
        let mut depth = 1usize;
        for instruction in &self.function.body {
            if matches!(instruction, Instruction::Else | Instruction::End) {
                depth = depth.saturating_sub(1).max(1);
            }
            let line = self.statement(instruction);
            let _ = writeln!(text, "{:1$}{line}", "", 2 * depth);
            if matches!(instruction, Instruction::Else | Instruction::If { .. } | Instruction::Loop { .. }) {
                depth += 1;
            }
        }
        if let Some(result) = self.function.result {
            let _ = writeln!(text, "  return {}", self.operand(result));
        }
        text.push_str("end\n");
    }

    fn operand(&self, operand: Operand) -> String {
        match operand {
            Operand::Register(r) => self.function.registers.get(r as usize).map_or_else(|| format!("?{r}"), |r| r.name.clone()),
            Operand::Parameter(p) => self.program.parameters.get(p as usize).map_or_else(|| format!("?{p}"), |p| p.name.clone()),
            Operand::Constant(constant) => constant.to_string(),
        }
    }

    fn element(&self, memory: Memory, index: Operand) -> String {
        format!("{}[{}]", self.program.memory(memory).map_or("?", |(name, _)| name), self.operand(index))
    }

    fn statement(&mut self, instruction: &Instruction) -> String {
        let value = self.value(instruction);
        let Some(to) = instruction.target() else { return value };
        let Some(register) = self.function.registers.get(to as usize) else { return value };
        let is_known = self.assigned.get_mut(to as usize).is_some_and(|known| std::mem::replace(known, true));
        let shows_type = match instruction {
            Instruction::Convert { .. } => false,
            Instruction::Unary { a, .. } | Instruction::Move { a, .. } | Instruction::Reduce { a, .. } | Instruction::Shuffle { a, .. } => {
                is_typed(&[*a])
            }
            Instruction::Binary { a, b, .. } | Instruction::Select { a, b, .. } => is_typed(&[*a, *b]),
            Instruction::Ternary { a, b, c, .. } => is_typed(&[*a, *b, *c]),
            Instruction::Compare { .. } | Instruction::Position { .. } | Instruction::Load { .. } | Instruction::Call { .. } => true,
            Instruction::Atomic { .. } | Instruction::CompareExchange { .. } => true,
            // These assign nothing.
            Instruction::Store { .. } | Instruction::Barrier | Instruction::Fence | Instruction::Exit => true,
            Instruction::If { .. } | Instruction::Else | Instruction::Loop { .. } | Instruction::While { .. } => true,
            Instruction::Break | Instruction::Continue | Instruction::End => true,
        };
        if is_known || shows_type { format!("{} = {value}", register.name) } else { format!("{}: {} = {value}", register.name, register.dtype) }
    }

    fn value(&self, instruction: &Instruction) -> String {
        let o = |operand| self.operand(operand);
        match *instruction {
            Instruction::Unary { op, a, .. } => format!("{} {}", op.name(), o(a)),
            Instruction::Binary { op, a, b, .. } => format!("{} {} {}", op.name(), o(a), o(b)),
            Instruction::Ternary { op, a, b, c, .. } => format!("{} {} {} {}", op.name(), o(a), o(b), o(c)),
            Instruction::Compare { op, a, b, .. } => format!("{} {} {}", op.name(), o(a), o(b)),
            Instruction::Select { condition, a, b, .. } => format!("select {} {} {}", o(condition), o(a), o(b)),
            Instruction::Convert { a, .. } => format!("convert {}", o(a)),
            Instruction::Move { a, .. } => format!("move {}", o(a)),
            Instruction::Position { position, .. } => position.name().to_owned(),
            Instruction::Load { memory, index, .. } => format!("load {}", self.element(memory, index)),
            Instruction::Store { memory, index, value } => format!("store {} {}", self.element(memory, index), o(value)),
            Instruction::Atomic { op, memory, index, value, .. } => format!("{} {} {}", op.name(), self.element(memory, index), o(value)),
            Instruction::CompareExchange { memory, index, expected, value, .. } => {
                format!("atomic_cas {} {} {}", self.element(memory, index), o(expected), o(value))
            }
            Instruction::Reduce { scope, op, a, .. } => format!("{}_{} {}", scope.name(), op.name(), o(a)),
            Instruction::Shuffle { kind, a, by, .. } => format!("{} {} {}", kind.name(), o(a), o(by)),
            Instruction::Barrier => "barrier".to_owned(),
            Instruction::Fence => "fence".to_owned(),
            Instruction::Call { function, .. } => {
                let name = self.program.functions.get(function as usize).map_or("?", |f| f.name.as_str());
                let arguments: Vec<_> = instruction.operands(&self.function.arguments).map(o).collect();
                format!("call {name} {}", arguments.join(" ")).trim_end().to_owned()
            }
            Instruction::If { condition } => format!("if {}", o(condition)),
            Instruction::Else => "else".to_owned(),
            Instruction::Loop { bound: Some(bound) } => format!("loop {bound}"),
            Instruction::Loop { bound: None } => "loop".to_owned(),
            Instruction::While { condition } => format!("while {}", o(condition)),
            Instruction::Break => "break".to_owned(),
            Instruction::Continue => "continue".to_owned(),
            Instruction::End => "end".to_owned(),
            Instruction::Exit => "exit".to_owned(),
        }
    }
}

/// Whether an operand gives its type in text.
fn is_typed(operands: &[Operand]) -> bool {
    operands.iter().any(|operand| !matches!(operand, Operand::Constant(_)))
}
