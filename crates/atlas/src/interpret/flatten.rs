//! Expands calls.

use elinvar_core::DType;

use crate::program::{Function, Instruction, Operand, Program};

/// The kernel with its calls expanded.
pub(super) struct Flat {
    pub(super) body: Vec<Instruction>,
    /// Of each instruction the number of the function that it is written in, the kernel after all others, and its own there.
    pub(super) sites: Vec<(u32, u32)>,
    pub(super) registers: Vec<DType>,
}

/// Expands the calls of a verified program's kernel.
pub(super) fn flatten(program: &Program) -> Flat {
    struct Frame<'a> {
        number: u32,
        function: &'a Function,
        next: usize,
        base: u32,
        result_to: u32,
    }
    let dtypes = |function: &Function| function.registers.iter().map(|r| r.dtype).collect::<Vec<_>>();
    let mut flat = Flat { body: Vec::new(), sites: Vec::new(), registers: dtypes(&program.kernel) };
    let mut frames = vec![Frame { number: program.functions.len() as u32, function: &program.kernel, next: 0, base: 0, result_to: 0 }];
    while let Some(frame) = frames.last_mut() {
        let moved = |operand: Operand, base: u32| if let Operand::Register(r) = operand { Operand::Register(r + base) } else { operand };
        let function = frame.function;
        let site = (frame.number, frame.next as u32);
        let Some(instruction) = function.body.get(frame.next) else {
            if let Some(result) = function.result {
                flat.body.push(Instruction::Move { to: frame.result_to, a: moved(result, frame.base) });
                flat.sites.push(site);
            }
            frames.pop();
            continue;
        };
        frame.next += 1;
        let base = frame.base;
        if let Instruction::Call { function: number, to, .. } = *instruction {
            let callee = &program.functions[number as usize];
            let callee_base = flat.registers.len() as u32;
            flat.registers.extend(dtypes(callee));
            for (parameter, argument) in instruction.operands(&function.arguments).enumerate() {
                flat.body.push(Instruction::Move { to: callee_base + parameter as u32, a: moved(argument, base) });
                flat.sites.push(site);
            }
            frames.push(Frame { number, function: callee, next: 0, base: callee_base, result_to: to + base });
        } else {
            flat.body.push(renumbered(*instruction, base));
            flat.sites.push(site);
        }
    }
    flat
}

/// The instruction with its registers moved up by `base`.
fn renumbered(mut instruction: Instruction, base: u32) -> Instruction {
    use Instruction as I;
    let shift = |operand: &mut Operand| {
        if let Operand::Register(r) = operand {
            *r += base;
        }
    };
    match &mut instruction {
        I::Unary { to, a, .. } | I::Convert { to, a } | I::Move { to, a } | I::Reduce { to, a, .. } => {
            *to += base;
            shift(a);
        }
        I::Binary { to, a, b, .. } | I::Compare { to, a, b, .. } | I::Shuffle { to, a, by: b, .. } => {
            *to += base;
            [a, b].into_iter().for_each(shift);
        }
        I::Ternary { to, a, b, c, .. } | I::Select { to, condition: a, a: b, b: c } => {
            *to += base;
            [a, b, c].into_iter().for_each(shift);
        }
        I::If { condition } | I::While { condition } => shift(condition),
        // Memory and positions are the kernel's, whose registers stay where they are.
        I::Position { .. } | I::Load { .. } | I::Store { .. } | I::Atomic { .. } | I::CompareExchange { .. } | I::Call { .. } => {}
        I::Else | I::Loop { .. } | I::Break | I::Continue | I::End | I::Exit | I::Barrier | I::Fence => {}
    }
    instruction
}
