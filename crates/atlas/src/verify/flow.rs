//! Blocks match, nothing is unreachable, and every register is assigned before it is used.

use elinvar_core::Result;

use super::{
    limits::{Limits, MAX_DEPTH},
    place::at,
};
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
        use Instruction as I;
        match *instruction {
            I::If { .. } => open.push(Open::If { before: assigned.clone() }),
            I::Else => match open.pop() {
                Some(Open::If { before }) => {
                    open.push(Open::Else { first: std::mem::replace(&mut assigned, before), first_ends: reachable });
                    reachable = true;
                }
                Some(Open::Else { .. } | Open::Loop { .. }) | None => return fail("'else' without its 'if'"),
            },
            I::Loop { bound } => {
                if bound.is_none() && limits.bounded_loops {
                    return fail("a loop without a bound: write 'loop N', N repetitions at most");
                }
                open.push(Open::Loop { left: full.clone(), repeats: full.clone(), bounded: bound.is_some(), leaves: bound.is_some() });
            }
            I::While { .. } | I::Break | I::Continue => {
                let innermost = open
                    .iter_mut()
                    .rev()
                    .find_map(|o| if let Open::Loop { left, repeats, leaves, .. } = o { Some((left, repeats, leaves)) } else { None });
                let Some((left, repeats, leaves)) = innermost else { return fail("there is no loop around this") };
                if matches!(instruction, I::Continue) {
                    repeats.intersect(&assigned);
                } else {
                    left.intersect(&assigned);
                    *leaves = true;
                }
                if !matches!(instruction, I::While { .. }) {
                    (assigned, reachable) = (full.clone(), false);
                }
            }
            I::End => match open.pop() {
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
            I::Exit => (assigned, reachable) = (full.clone(), false),
            I::Unary { .. } | I::Binary { .. } | I::Ternary { .. } | I::Compare { .. } | I::Select { .. } | I::Convert { .. } => {}
            I::Move { .. } | I::Position { .. } | I::Load { .. } | I::Store { .. } | I::Atomic { .. } | I::CompareExchange { .. } => {}
            I::Reduce { .. } | I::Shuffle { .. } | I::Barrier | I::Fence | I::Call { .. } => {}
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
