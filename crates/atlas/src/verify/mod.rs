//! Decides whether a program may run: names, limits, types, control flow, uniformity.

mod flow;
mod types;
mod uniform;

use std::collections::HashSet;

use elinvar_core::{Error, Result};

pub(crate) use flow::{Shape, shape};

use crate::{
    program::{Function, Instruction, LaunchConfig, Location, Program},
    text::error_at,
};

/// What a program may ask for. Every device of the library grants the defaults.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Threads of a block.
    pub threads: u32,
    /// Bytes of shared arrays.
    pub shared_bytes: u64,
    /// Whether every loop must have a bound.
    pub bounded_loops: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self { threads: 1024, shared_bytes: (32 << 10) - REDUCTION_BYTES, bounded_loops: false }
    }
}

/// Threadgroup memory that reductions over a block take on devices.
pub(crate) const REDUCTION_BYTES: u64 = 2 << 10;
/// Instructions of a program, calls expanded.
const MOST_INSTRUCTIONS: u64 = 1 << 16;
/// Registers of a program, calls expanded.
const MOST_REGISTERS: u64 = 1 << 12;
/// Parameters and shared arrays, each.
const MOST_PARAMETERS: usize = 24;
/// Blocks in one another.
const MOST_DEPTH: usize = 64;
/// Characters of a name.
const LONGEST_NAME: usize = 64;

/// A program that was verified.
#[derive(Clone, Debug)]
pub struct Verified {
    program: Program,
    limits: Limits,
    collective: bool,
}

impl Verified {
    /// The program.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Whether threads of a block work together: blocks are then whole simdgroups of 32 threads.
    pub fn is_collective(&self) -> bool {
        self.collective
    }

    /// Whether the program can be launched so.
    ///
    /// # Errors
    /// A grid or block with an extent of zero, more threads than the limit or than 2^32 along an axis, another block than the program
    /// demands, or part of a simdgroup where threads work together.
    pub fn check_launch(&self, launch: &LaunchConfig) -> Result<()> {
        let refuse = |message: String| Err(Error::invalid_launch(format!("program {}: {message}", self.program.name)));
        if launch.grid.contains(&0) || launch.block.contains(&0) {
            return refuse(format!("a grid of {:?} blocks of {:?} threads: no extent may be zero", launch.grid, launch.block));
        }
        if launch.threads() > u128::from(self.limits.threads) {
            return refuse(format!("a block of {} threads: {} at most", launch.threads(), self.limits.threads));
        }
        let too_long = |axis: &usize| u64::from(launch.grid[*axis]) * u64::from(launch.block[*axis]) > 1 << 32;
        if let Some(axis) = (0..3).find(too_long) {
            return refuse(format!("{} blocks of {} threads along an axis: 2^32 threads at most", launch.grid[axis], launch.block[axis]));
        }
        let blocks: u128 = launch.grid.iter().map(|&n| u128::from(n)).product();
        if blocks * launch.threads() > 1 << 48 {
            return refuse(format!("{} threads in all: 2^48 at most", blocks * launch.threads()));
        }
        if let Some(block) = self.program.block.filter(|b| *b != launch.block) {
            return refuse(format!("it is written for blocks of {block:?} threads, not {:?}", launch.block));
        }
        if self.collective && !launch.threads().is_multiple_of(32) {
            return refuse(format!("its threads work together in simdgroups: a block of {} threads is no multiple of 32", launch.threads()));
        }
        Ok(())
    }
}

/// Verifies a program.
///
/// # Errors
/// The first thing that is wrong, with its line and column if the program was read from text.
pub fn verify(program: Program, limits: &Limits) -> Result<Verified> {
    header(&program, limits)?;
    let mut sizes: Vec<(u64, u64)> = Vec::new();
    for function in program.functions.iter().chain([&program.kernel]) {
        sizes.push(size(&program, function, &sizes)?);
        types::check(&program, function, sizes.len() - 1)?;
        flow::check(function, limits)?;
    }
    uniform::check(&program)?;
    let collective = program.kernel.body.iter().any(is_collective);
    Ok(Verified { program, limits: *limits, collective })
}

fn is_collective(instruction: &Instruction) -> bool {
    matches!(instruction, Instruction::Reduce { .. } | Instruction::Shuffle { .. })
}

fn wrong(message: impl Into<String>) -> Error {
    Error::invalid_data(message)
}

/// An error about an instruction.
pub(crate) fn at(function: &Function, index: usize, message: impl std::fmt::Display) -> Error {
    match function.locations.get(index) {
        Some(&location) if location != Location::default() => error_at(location, message),
        _ => wrong(format!("{}, instruction {index}: {message}", if function.result.is_some() { &function.name } else { "kernel" })),
    }
}

fn header(program: &Program, limits: &Limits) -> Result<()> {
    let mut names = HashSet::new();
    let functions = program.functions.iter().map(|f| &f.name);
    let globals = program.parameters.iter().map(|p| &p.name).chain(program.shared.iter().map(|s| &s.name)).chain(functions);
    for name in globals {
        check_name(name)?;
        if !names.insert(name.as_str()) {
            return Err(wrong(format!("'{name}' is declared twice")));
        }
    }
    check_name(&program.name).map_err(|e| e.context("the program's name ('program NAME')"))?;
    for function in program.functions.iter().chain([&program.kernel]) {
        let mut own = HashSet::new();
        for register in &function.registers {
            check_name(&register.name)?;
            if names.contains(register.name.as_str()) || !own.insert(register.name.as_str()) {
                return Err(wrong(format!("'{}' names two things", register.name)));
            }
        }
        if function.parameters as usize > function.registers.len() {
            return Err(wrong(format!("{} has {} parameters and {} registers", function.name, function.parameters, function.registers.len())));
        }
    }
    if program.parameters.len() > MOST_PARAMETERS || program.shared.len() > MOST_PARAMETERS {
        let (parameters, shared) = (program.parameters.len(), program.shared.len());
        return Err(wrong(format!("{parameters} parameters and {shared} shared arrays: {MOST_PARAMETERS} of each at most")));
    }
    let bytes: u64 = program.shared.iter().map(|s| u64::from(s.length) * s.dtype.size() as u64).sum();
    if bytes > limits.shared_bytes || program.shared.iter().any(|s| s.length == 0) {
        return Err(wrong(format!("{bytes} bytes of shared arrays: 1 to {} are possible, and no array is empty", limits.shared_bytes)));
    }
    if program.kernel.parameters != 0 || program.kernel.result.is_some() {
        return Err(wrong("the kernel takes and returns nothing itself"));
    }
    if let Some(block) = program.block.filter(|b| LaunchConfig { grid: [1; 3], block: *b }.threads() > u128::from(limits.threads) || b.contains(&0)) {
        return Err(wrong(format!("blocks of {block:?} threads: 1 to {} are possible", limits.threads)));
    }
    Ok(())
}

fn check_name(name: &str) -> Result<()> {
    let is_word = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let is_literal = matches!(name, "true" | "false" | "inf" | "nan");
    if !is_word || is_literal || name.len() > LONGEST_NAME {
        let shown: String = name.chars().take(LONGEST_NAME).collect();
        return Err(wrong(format!("{shown:?} is no name: a letter, then letters, digits and '_', {LONGEST_NAME} at most")));
    }
    Ok(())
}

/// Instructions and registers of a function with the functions it calls in their place, given those of the functions before it.
fn size(program: &Program, function: &Function, before: &[(u64, u64)]) -> Result<(u64, u64)> {
    let (mut instructions, mut registers) = (function.body.len() as u64, function.registers.len() as u64);
    for (index, instruction) in function.body.iter().enumerate() {
        if let Instruction::Call { function: callee, .. } = instruction {
            let Some((more_instructions, more_registers)) = before.get(*callee as usize).filter(|_| (*callee as usize) < program.functions.len())
            else {
                return Err(at(function, index, "functions call only those written before them"));
            };
            instructions += more_instructions + 2 + u64::from(program.functions[*callee as usize].parameters);
            registers += more_registers;
        }
        if instructions > MOST_INSTRUCTIONS || registers > MOST_REGISTERS {
            return Err(at(
                function,
                index,
                format_args!("too large with its calls: {MOST_INSTRUCTIONS} instructions and {MOST_REGISTERS} registers at most"),
            ));
        }
    }
    if instructions > MOST_INSTRUCTIONS || registers > MOST_REGISTERS {
        return Err(wrong(format!(
            "{}: {instructions} instructions, {registers} registers: {MOST_INSTRUCTIONS}, {MOST_REGISTERS} at most",
            function.name
        )));
    }
    Ok((instructions, registers))
}
