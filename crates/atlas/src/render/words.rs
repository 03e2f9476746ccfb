//! Neighbouring elements that instructions next to each other load, or store, become one access of up to 16 bytes.

use std::collections::HashMap;

use elinvar_core::DType;

use super::faults::Faults;
use crate::program::{Binary, Flow, Instruction, Memory, Operand, Program};

/// Bytes of the largest word, and what buffers must be aligned to.
const WIDEST: usize = 16;

/// The part of a word that an instruction loads or stores.
#[derive(Clone, Copy)]
pub(super) struct Part {
    /// The word's first instruction.
    pub(super) first: usize,
    /// Which element of the word it is.
    pub(super) place: usize,
    /// The word's elements.
    pub(super) count: usize,
}

/// An index: a value that is not looked into, and a distance from it.
type Index = (usize, u64);

/// What is known of registers since the block of statements began.
#[derive(Default)]
struct Indices {
    known: HashMap<u32, Index>,
    values: usize,
}

impl Indices {
    fn new_value(&mut self, register: u32) -> Index {
        self.values += 1;
        self.known.insert(register, (self.values, 0));
        (self.values, 0)
    }

    fn of(&mut self, operand: Operand) -> Option<Index> {
        let Operand::Register(register) = operand else { return None };
        Some(self.known.get(&register).copied().unwrap_or_else(|| self.new_value(register)))
    }

    /// Takes an instruction's result into account.
    fn assign(&mut self, to: u32, instruction: &Instruction) {
        let index = match *instruction {
            Instruction::Binary { op: Binary::Add, a, b: Operand::Constant(distance), .. }
            | Instruction::Binary { op: Binary::Add, a: Operand::Constant(distance), b: a, .. }
                if distance.dtype.is_integer() =>
            {
                self.of(a).map(|(value, offset)| (value, offset.wrapping_add(distance.as_integer() as u64)))
            }
            Instruction::Move { a, .. } => self.of(a),
            _ => None,
        };
        match index {
            Some(index) => drop(self.known.insert(to, index)),
            None => drop(self.new_value(to)),
        }
    }
}

/// Of each instruction of the kernel, the part of a word that it is.
pub(super) fn words(program: &Program, faults: &Faults) -> Vec<Option<Part>> {
    let body = &program.kernel.body;
    let mut parts = vec![None; body.len()];
    let mut indices = Indices::default();
    let mut next = 0;
    while next < body.len() {
        let count = width(program, faults, next, &mut indices);
        for place in 0..count {
            parts[next + place] = Some(Part { first: next, place, count }).filter(|_| count > 1);
            let instruction = &body[next + place];
            match instruction.flow() {
                // What other paths assign is not followed.
                Flow::Opens | Flow::Turns | Flow::Closes => indices.known.clear(),
                Flow::Straight | Flow::Leaves => instruction.target().into_iter().for_each(|to| indices.assign(to, instruction)),
            }
        }
        next += count;
    }
    parts
}

/// How many instructions from the `first` on are one access.
fn width(program: &Program, faults: &Faults, first: usize, indices: &mut Indices) -> usize {
    let body = &program.kernel.body;
    let Some((stores, memory, dtype, index)) = access(program, &body[first]) else { return 1 };
    let Some((value, offset)) = indices.of(index) else { return 1 };
    let most = WIDEST / dtype.size();
    let mut count = 0usize;
    // Targets of loads among them may be registers of indices: those are known again only after all.
    let mut assigned = Vec::new();
    for (place, instruction) in body[first..].iter().enumerate().take(most) {
        let follows = access(program, instruction).is_some_and(|(other_stores, other_memory, _, index)| {
            let is_stale = matches!(index, Operand::Register(register) if assigned.contains(&register));
            !is_stale && (other_stores, other_memory) == (stores, memory) && indices.of(index) == Some((value, offset.wrapping_add(place as u64)))
        });
        if !follows || faults.of(program.functions.len(), first + place).is_some() {
            break;
        }
        assigned.extend(instruction.target());
        count += 1;
    }
    if count < 2 { 1 } else { 1 << count.ilog2() }
}

/// Whether an instruction stores to a buffer or loads from it, and where.
fn access(program: &Program, instruction: &Instruction) -> Option<(bool, Memory, DType, Operand)> {
    let (stores, memory, index) = match *instruction {
        Instruction::Load { memory: memory @ Memory::Buffer(_), index, .. } => (false, memory, index),
        Instruction::Store { memory: memory @ Memory::Buffer(_), index, .. } => (true, memory, index),
        _ => return None,
    };
    program.memory(memory).map(|(_, dtype)| (stores, memory, dtype, index))
}
