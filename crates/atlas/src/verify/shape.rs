//! Which blocks of statements are in which.

use crate::program::{Instruction, Operand};

/// Which block each instruction is in and which blocks are in which. Block 0 is the function; an `if`, its `else` and a `loop` open one each.
pub(crate) struct Shape {
    /// The block that each instruction is in; those that open or close one are in the block around.
    pub(crate) block_of: Vec<u32>,
    /// The block around each block.
    pub(crate) parent: Vec<u32>,
    /// How deep each block is.
    pub(crate) depth: Vec<u32>,
    /// Of each block the instruction that opens it (`usize::MAX` for the function).
    pub(crate) opened_by: Vec<usize>,
    /// The block that an instruction opens (`u32::MAX` for none).
    pub(crate) opens: Vec<u32>,
    /// Of the block of an `if` that of its `else` (`u32::MAX` for none).
    pub(crate) other: Vec<u32>,
    /// The smallest block that holds all that mentions a register; the function for parameters.
    pub(crate) scope: Vec<u32>,
}

/// The shape of a function of matching blocks.
pub(crate) fn shape(body: &[Instruction], arguments: &[Operand], registers: usize, parameters: u32, result: Option<Operand>) -> Shape {
    let mut shape = Shape {
        block_of: Vec::new(),
        parent: vec![0],
        depth: vec![0],
        opened_by: vec![usize::MAX],
        opens: vec![u32::MAX; body.len()],
        other: vec![u32::MAX],
        scope: vec![u32::MAX; registers],
    };
    let (mut current, mut closed) = (0u32, 0u32);
    for (index, instruction) in body.iter().enumerate() {
        if matches!(instruction, Instruction::Else | Instruction::End) {
            closed = current;
            current = shape.parent[current as usize];
        }
        shape.block_of.push(current);
        let used = instruction.operands(arguments).filter_map(|o| if let Operand::Register(r) = o { Some(r) } else { None });
        for register in used.chain(instruction.target()) {
            let scope = shape.scope[register as usize];
            shape.scope[register as usize] = if scope == u32::MAX { current } else { shape.common(scope, current) };
        }
        if matches!(instruction, Instruction::If { .. } | Instruction::Else | Instruction::Loop { .. }) {
            shape.parent.push(current);
            shape.depth.push(shape.depth[current as usize] + 1);
            shape.opened_by.push(index);
            shape.other.push(u32::MAX);
            current = shape.parent.len() as u32 - 1;
            shape.opens[index] = current;
            if matches!(instruction, Instruction::Else) {
                shape.other[closed as usize] = current;
            }
        }
    }
    let outermost = (0..parameters).chain(result.and_then(|o| if let Operand::Register(r) = o { Some(r) } else { None }));
    outermost.for_each(|register| shape.scope[register as usize] = 0);
    shape
}

impl Shape {
    /// The smallest block that holds both.
    fn common(&self, mut a: u32, mut b: u32) -> u32 {
        while a != b {
            if self.depth[a as usize] >= self.depth[b as usize] {
                a = self.parent[a as usize];
            } else {
                b = self.parent[b as usize];
            }
        }
        a
    }
}
