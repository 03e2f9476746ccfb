//! Decides whether a program may run: names, limits, types, control flow, uniformity.

mod flow;
mod limits;
mod place;
mod shape;
mod types;
mod uniform;

use std::collections::HashSet;

use elinvar_core::{Error, Result};

pub use limits::Limits;
pub(crate) use limits::TOO_MANY_STEPS;
pub(crate) use shape::{Shape, shape};
pub(crate) use uniform::{Variance, Variances, variances};

use limits::{MAX_INSTRUCTIONS, MAX_PARAMETERS, MAX_REGISTERS};
use place::{at, wrong};

use crate::program::{Bounds, Function, Instruction, LaunchConfig, Location, Program, Site, check_name};

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

    /// What the program was granted.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Whether threads of a block work together: blocks are then whole simdgroups of 32 threads.
    pub fn is_collective(&self) -> bool {
        self.collective
    }

    /// Whether the program can be launched so.
    ///
    /// # Errors
    /// A grid or block with an extent of zero, more threads than the limit or than 2^32 along an axis, another block than the program
    /// demands, part of a simdgroup where threads work together, or shared memory that the program has no use for, lacks, or that is too much.
    pub fn check_launch(&self, launch: &LaunchConfig) -> Result<()> {
        let reject = |message: String| Err(Error::invalid_launch(format!("program {}: {message}", self.program.name)));
        if launch.grid.contains(&0) || launch.block.contains(&0) {
            return reject(format!("a grid of {:?} blocks of {:?} threads: no extent may be zero", launch.grid, launch.block));
        }
        if launch.threads() > u128::from(self.limits.threads) {
            return reject(format!("a block of {} threads: {} at most", launch.threads(), self.limits.threads));
        }
        let too_long = |axis: &usize| u64::from(launch.grid[*axis]) * u64::from(launch.block[*axis]) > 1 << 32;
        if let Some(axis) = (0..3).find(too_long) {
            return reject(format!("{} blocks of {} threads along an axis: 2^32 threads at most", launch.grid[axis], launch.block[axis]));
        }
        let blocks: u128 = launch.grid.iter().map(|&n| u128::from(n)).product();
        if blocks * launch.threads() > 1 << 48 {
            return reject(format!("{} threads in all: 2^48 at most", blocks * launch.threads()));
        }
        if let Some(block) = self.program.block.filter(|b| *b != launch.block) {
            return reject(format!("it is written for blocks of {block:?} threads, not {:?}", launch.block));
        }
        let bytes: u64 = self.program.shared.iter().map(|s| u64::from(s.length) * s.dtype.size() as u64).sum();
        let (given, most) = (u64::from(launch.shared_memory), self.limits.shared_bytes);
        match self.program.shared.iter().find(|s| s.length == 0) {
            None if given > 0 => return reject(format!("{given} bytes of shared memory: it has no shared array whose length a launch gives")),
            Some(s) if given == 0 || !given.is_multiple_of(s.dtype.size() as u64) => {
                let needed = format!("'{}' needs whole elements of {}, one at least", s.name, s.dtype);
                return reject(format!("{given} bytes of shared memory: {needed} (LaunchConfig::shared_memory, or --shared-memory)"));
            }
            _ if bytes + given > most => return reject(format!("{} bytes of shared arrays: {most} are possible", bytes + given)),
            _ => {}
        }
        if self.collective && !launch.threads().is_multiple_of(32) {
            return reject(format!("its threads work together in simdgroups: a block of {} threads is no multiple of 32", launch.threads()));
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

/// An error about a part of the header.
fn about(at: Option<&Location>, message: impl std::fmt::Display) -> Error {
    match at {
        Some(&at) if at != Location::default() => wrong(format!("{}: {message}", Site::Text(at))),
        _ => wrong(message.to_string()),
    }
}

fn header(program: &Program, limits: &Limits) -> Result<()> {
    let places = &program.header;
    let mut names = HashSet::new();
    let parameters = program.parameters.iter().enumerate().map(|(index, p)| (&p.name, places.parameters.get(index)));
    let shared = program.shared.iter().enumerate().map(|(index, s)| (&s.name, places.shared.get(index)));
    let functions = program.functions.iter().enumerate().map(|(index, f)| (&f.name, places.functions.get(index)));
    for (name, place) in parameters.chain(shared).chain(functions) {
        check_name(name).map_err(|message| about(place, message))?;
        if !names.insert(name.as_str()) {
            return Err(about(place, format_args!("'{name}' is declared twice")));
        }
    }
    check_name(&program.name).map_err(|message| about(Some(&places.name), format_args!("the program's name ('program NAME'): {message}")))?;
    for (index, function) in program.functions.iter().chain([&program.kernel]).enumerate() {
        let place = places.functions.get(index).or(function.locations.first());
        let mut own = HashSet::new();
        for register in &function.registers {
            check_name(&register.name).map_err(|message| about(place, message))?;
            if names.contains(register.name.as_str()) || !own.insert(register.name.as_str()) {
                return Err(about(place, format_args!("'{}' names two things", register.name)));
            }
        }
        if function.parameters as usize > function.registers.len() {
            return Err(wrong(format!("{} has {} parameters and {} registers", function.name, function.parameters, function.registers.len())));
        }
    }
    for (count, what, places) in
        [(program.parameters.len(), "parameters", &places.parameters), (program.shared.len(), "shared arrays", &places.shared)]
    {
        if count > MAX_PARAMETERS {
            return Err(about(places.get(MAX_PARAMETERS), format_args!("{count} {what}: {MAX_PARAMETERS} at most")));
        }
    }
    let mut bytes = 0u64;
    for (index, shared) in program.shared.iter().enumerate() {
        bytes += u64::from(shared.length) * shared.dtype.size() as u64;
        if bytes > limits.shared_bytes {
            let message = format!("{bytes} bytes of shared arrays with this: {} are possible", limits.shared_bytes);
            return Err(about(places.shared.get(index), message));
        }
        if shared.length == 0 && program.shared[..index].iter().any(|other| other.length == 0) {
            return Err(about(places.shared.get(index), "a second shared array whose length a launch gives: there may be one"));
        }
    }
    if program.bounds == Bounds::Unchecked && !limits.unchecked {
        let message = "'bounds unchecked' is for those who trust the program: it must be granted (Limits::unchecked, or --unchecked)";
        return Err(about(Some(&places.bounds), message));
    }
    if program.kernel.parameters != 0 || program.kernel.result.is_some() {
        return Err(wrong("the kernel takes and returns nothing itself"));
    }
    if let Some(block) = program.block.filter(|b| LaunchConfig::new([1; 3], *b).threads() > u128::from(limits.threads) || b.contains(&0)) {
        return Err(about(Some(&places.block), format_args!("blocks of {block:?} threads: 1 to {} are possible", limits.threads)));
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
        if instructions > MAX_INSTRUCTIONS || registers > MAX_REGISTERS {
            return Err(at(
                function,
                index,
                format_args!("too large with its calls: {MAX_INSTRUCTIONS} instructions and {MAX_REGISTERS} registers at most"),
            ));
        }
    }
    if instructions > MAX_INSTRUCTIONS || registers > MAX_REGISTERS {
        return Err(wrong(format!(
            "{}: {instructions} instructions, {registers} registers: {MAX_INSTRUCTIONS}, {MAX_REGISTERS} at most",
            function.name
        )));
    }
    Ok((instructions, registers))
}
