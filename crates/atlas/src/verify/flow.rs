//! Blocks match, nothing is unreachable, and every register is assigned before it is used.

use elinvar_core::Result;

use super::{Limits, MAX_DEPTH, at};
use crate::program::{Function, Instruction, Operand};

/// A set of registers.
#[derive(Clone)]
struct Set(Vec<u64>);

impl Set {
    fn new(registers: usize, full: bool) -> Self {
        Self(vec![if full { u64::MAX } else { 0 }; registers.div_ceil(64)])
    }

    fn insert(&mut self, register: u32) {
        self.0[register as usize / 64] |= 1 << (register % 64);
    }

    fn contains(&self, register: u32) -> bool {
        self.0[register as usize / 64] >> (register % 64) & 1 != 0
    }

    fn intersect(&mut self, other: &Set) {
        self.0.iter_mut().zip(&other.0).for_each(|(a, b)| *a &= b);
    }
}

enum Open {
    /// What was assigned before.
    If { before: Set },
    /// What is assigned when the first branch ends, and whether threads come to its end.
    Else { first: Set, first_ends: bool },
    /// What is assigned wherever the loop is left, and wherever a repetition ends.
    Loop { left: Set, repeats: Set, bounded: bool, leaves: bool },
}

/// Checks a function whose operands exist.
pub(super) fn check(function: &Function, limits: &Limits) -> Result<()> {
    let mut assigned = Set::new(function.registers.len(), false);
    (0..function.parameters).for_each(|parameter| assigned.insert(parameter));
    let full = Set::new(function.registers.len(), true);
    let mut open: Vec<Open> = Vec::new();
    let mut reachable = true;
    for (index, instruction) in function.body.iter().enumerate() {
        let fail = |message: &str| Err(at(function, index, message));
        if !reachable && !matches!(instruction, Instruction::Else | Instruction::End) {
            return fail("no thread comes here: what is before it leaves the block");
        }
        for operand in instruction.operands(&function.arguments) {
            if let Operand::Register(register) = operand
                && !assigned.contains(register)
            {
                let name = &function.registers[register as usize].name;
                return fail(&format!("'{name}' is used here, but not every path to this place assigns it"));
            }
        }
        if let Some(to) = instruction.target() {
            assigned.insert(to);
        }
        match *instruction {
            Instruction::If { .. } => open.push(Open::If { before: assigned.clone() }),
            Instruction::Else => match open.pop() {
                Some(Open::If { before }) => {
                    open.push(Open::Else { first: std::mem::replace(&mut assigned, before), first_ends: reachable });
                    reachable = true;
                }
                _ => return fail("'else' without its 'if'"),
            },
            Instruction::Loop { bound } => {
                if bound.is_none() && limits.bounded_loops {
                    return fail("a loop without a bound: write 'loop N', N repetitions at most");
                }
                open.push(Open::Loop { left: full.clone(), repeats: full.clone(), bounded: bound.is_some(), leaves: bound.is_some() });
            }
            Instruction::While { .. } | Instruction::Break | Instruction::Continue => {
                let innermost = open
                    .iter_mut()
                    .rev()
                    .find_map(|o| if let Open::Loop { left, repeats, leaves, .. } = o { Some((left, repeats, leaves)) } else { None });
                let Some((left, repeats, leaves)) = innermost else { return fail("there is no loop around this") };
                if matches!(instruction, Instruction::Continue) {
                    repeats.intersect(&assigned);
                } else {
                    left.intersect(&assigned);
                    *leaves = true;
                }
                if !matches!(instruction, Instruction::While { .. }) {
                    (assigned, reachable) = (full.clone(), false);
                }
            }
            Instruction::End => match open.pop() {
                Some(Open::If { before }) => {
                    assigned.intersect(&before);
                    reachable = true;
                }
                Some(Open::Else { first, first_ends }) => {
                    assigned.intersect(&first);
                    reachable |= first_ends;
                }
                Some(Open::Loop { mut left, mut repeats, bounded, leaves }) => {
                    if !leaves {
                        return fail("the loop that ends here is never left: give it a bound, a 'while' or a 'break'");
                    }
                    repeats.intersect(&assigned);
                    if bounded {
                        left.intersect(&repeats);
                    }
                    (assigned, reachable) = (left, true);
                }
                None => return fail("'end' without its 'if' or 'loop'"),
            },
            Instruction::Exit => (assigned, reachable) = (full.clone(), false),
            _ => {}
        }
        if open.len() > MAX_DEPTH {
            return fail(&format!("blocks in one another are {MAX_DEPTH} deep at most"));
        }
    }
    if !open.is_empty() {
        return Err(at(function, function.body.len(), format_args!("{} blocks lack their 'end'", open.len())));
    }
    if let Some(Operand::Register(result)) = function.result
        && !assigned.contains(result)
    {
        let name = &function.registers[result as usize].name;
        return Err(at(function, function.body.len(), format_args!("'{name}' is returned, but not every path assigns it")));
    }
    Ok(())
}

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
