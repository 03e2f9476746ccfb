//! Barriers and reductions over a block are where all its threads come together, operations of a simdgroup where all its threads do.
//!
//! Every register has a variance: the same for a whole block, for each simdgroup, or for no two threads. A register varies as what it is
//! computed from does, and as the conditions on which it is assigned do. Each register and block can rise twice, so a worklist ends.

use elinvar_core::{Access, Result};

use super::{
    place::at,
    shape::{Shape, shape},
};
use crate::program::{Instruction, Memory, Operand, Position, Program, Scope};

/// Among which threads a value, or whether a block of statements runs, may differ.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Variance {
    /// The same for all threads of a block.
    Block,
    /// The same for the threads of a simdgroup.
    Simdgroup,
    /// Any two threads.
    Thread,
}

/// The variance of a kernel's registers and blocks of statements.
pub(crate) struct Variances {
    values: Vec<Variance>,
    registers: usize,
}

impl Variances {
    /// Of a register.
    pub(crate) fn register(&self, register: u32) -> Variance {
        self.values[register as usize]
    }

    /// Of a block of the kernel's shape.
    pub(crate) fn block(&self, block: u32) -> Variance {
        self.values[self.registers + block as usize]
    }
}

/// The nodes that variance flows between: registers, then blocks.
struct Graph {
    variance: Vec<Variance>,
    edges: Vec<Vec<u32>>,
    work: Vec<u32>,
}

impl Graph {
    fn edge(&mut self, from: u32, to: u32) {
        self.edges[from as usize].push(to);
    }

    fn raise(&mut self, node: u32, variance: Variance) {
        if variance > self.variance[node as usize] {
            self.variance[node as usize] = variance;
            self.work.push(node);
        }
    }

    fn settle(&mut self) {
        while let Some(node) = self.work.pop() {
            let variance = self.variance[node as usize];
            for edge in 0..self.edges[node as usize].len() {
                self.raise(self.edges[node as usize][edge], variance);
            }
        }
    }
}

/// The variances of the kernel of a program whose functions were checked.
pub(crate) fn variances(program: &Program, shape: &Shape) -> Variances {
    let kernel = &program.kernel;
    let registers = kernel.registers.len() as u32;
    let nodes = kernel.registers.len() + shape.parent.len();
    let mut graph = Graph { variance: vec![Variance::Block; nodes], edges: vec![Vec::new(); nodes], work: Vec::new() };
    for block in 1..shape.parent.len() {
        graph.edge(registers + shape.parent[block], registers + block as u32);
    }
    for (index, instruction) in kernel.body.iter().enumerate() {
        connect(program, shape, index, instruction, registers, &mut graph);
    }
    graph.settle();
    Variances { values: graph.variance, registers: kernel.registers.len() }
}

/// Checks the kernel of a program whose functions were checked.
pub(super) fn check(program: &Program) -> Result<()> {
    let kernel = &program.kernel;
    let shape = shape(&kernel.body, &kernel.arguments, kernel.registers.len(), 0, None);
    let variances = variances(program, &shape);
    let mut exited = Variance::Block;
    let mut exits = first_exits(&kernel.body, &shape).into_iter().peekable();
    for (index, instruction) in kernel.body.iter().enumerate() {
        while let Some((_, exit)) = exits.next_if(|(start, _)| *start <= index) {
            exited = exited.max(variances.block(shape.block_of[exit]));
        }
        let around = variances.block(shape.block_of[index]).max(exited);
        let (what, most) = match instruction {
            Instruction::Barrier => ("a barrier", Variance::Block),
            Instruction::Reduce { scope: Scope::Group, .. } => ("a reduction over the block", Variance::Block),
            Instruction::Reduce { .. } | Instruction::Shuffle { .. } => ("an operation of a simdgroup", Variance::Simdgroup),
            Instruction::Unary { .. }
            | Instruction::Binary { .. }
            | Instruction::Ternary { .. }
            | Instruction::Compare { .. }
            | Instruction::Select { .. }
            | Instruction::Convert { .. }
            | Instruction::Move { .. } => continue,
            Instruction::Position { .. }
            | Instruction::Load { .. }
            | Instruction::Store { .. }
            | Instruction::Atomic { .. }
            | Instruction::CompareExchange { .. }
            | Instruction::Call { .. }
            | Instruction::Fence => continue,
            Instruction::If { .. }
            | Instruction::Else
            | Instruction::Loop { .. }
            | Instruction::While { .. }
            | Instruction::Break
            | Instruction::Continue
            | Instruction::End
            | Instruction::Exit => continue,
        };
        if around > most {
            let whom = if most == Variance::Block { "block" } else { "simdgroup" };
            let why = if exited > most { "threads may have ended before" } else { "it depends on conditions that differ between threads" };
            return Err(at(kernel, index, format_args!("{what} that not all threads of a {whom} may reach: {why}")));
        }
    }
    Ok(())
}

fn connect(program: &Program, shape: &Shape, index: usize, instruction: &Instruction, registers: u32, graph: &mut Graph) {
    let block = registers + shape.block_of[index];
    if let Some(to) = instruction.target() {
        graph.edge(block, to);
        graph.raise(to, own_variance(program, instruction));
        let spreads = !matches!(instruction, Instruction::Reduce { .. });
        for operand in instruction.operands(&program.kernel.arguments).filter(|_| spreads) {
            if let Operand::Register(register) = operand {
                graph.edge(register, to);
            }
        }
    }
    if let Instruction::If { condition: Operand::Register(register) } = *instruction {
        // Both branches depend on the condition.
        let then = shape.opens[index];
        graph.edge(register, registers + then);
        if shape.other[then as usize] != u32::MAX {
            graph.edge(registers + then, registers + shape.other[then as usize]);
        }
    } else if matches!(instruction, Instruction::While { .. } | Instruction::Break | Instruction::Continue) {
        // Threads that leave a loop at different times differ in all of it.
        let mut around = shape.block_of[index];
        while around != 0 && !matches!(program.kernel.body[shape.opened_by[around as usize]], Instruction::Loop { .. }) {
            around = shape.parent[around as usize];
        }
        graph.edge(block, registers + around);
        if let Instruction::While { condition: Operand::Register(register) } = *instruction {
            graph.edge(register, registers + around);
        }
    }
}

fn own_variance(program: &Program, instruction: &Instruction) -> Variance {
    match *instruction {
        Instruction::Position { position, .. } => match position {
            Position::GlobalX | Position::GlobalY | Position::GlobalZ | Position::LocalX | Position::LocalY | Position::LocalZ => Variance::Thread,
            Position::LocalIndex | Position::Lane => Variance::Thread,
            Position::Simdgroup => Variance::Simdgroup,
            Position::BlockX | Position::BlockY | Position::BlockZ => Variance::Block,
            Position::BlockSizeX | Position::BlockSizeY | Position::BlockSizeZ => Variance::Block,
            Position::GridSizeX | Position::GridSizeY | Position::GridSizeZ => Variance::Block,
        },
        Instruction::Load { memory: Memory::Buffer(index), .. } => {
            let is_constant = program.parameters[index as usize].access == Some(Access::Read);
            if is_constant { Variance::Block } else { Variance::Thread }
        }
        Instruction::Load { .. } | Instruction::Atomic { .. } | Instruction::CompareExchange { .. } | Instruction::Shuffle { .. } => Variance::Thread,
        Instruction::Reduce { scope: Scope::Simd, .. } => Variance::Simdgroup,
        Instruction::Reduce { .. } => Variance::Block,
        // They are what their operands are.
        Instruction::Unary { .. }
        | Instruction::Binary { .. }
        | Instruction::Ternary { .. }
        | Instruction::Compare { .. }
        | Instruction::Select { .. }
        | Instruction::Convert { .. }
        | Instruction::Move { .. } => Variance::Block,
        Instruction::Call { .. } => Variance::Block,
        // They assign nothing.
        Instruction::Store { .. } | Instruction::Barrier | Instruction::Fence => Variance::Block,
        Instruction::If { .. }
        | Instruction::Else
        | Instruction::Loop { .. }
        | Instruction::While { .. }
        | Instruction::Break
        | Instruction::Continue
        | Instruction::End
        | Instruction::Exit => Variance::Block,
    }
}

/// Each `exit` and the instruction from which on threads may have ended by it: itself, or the start of the outermost loop around it.
fn first_exits(body: &[Instruction], shape: &Shape) -> Vec<(usize, usize)> {
    let mut exits = Vec::new();
    for (index, _) in body.iter().enumerate().filter(|(_, i)| matches!(i, Instruction::Exit)) {
        let (mut start, mut block) = (index, shape.block_of[index]);
        while block != 0 {
            if matches!(body[shape.opened_by[block as usize]], Instruction::Loop { .. }) {
                start = shape.opened_by[block as usize];
            }
            block = shape.parent[block as usize];
        }
        exits.push((start, index));
    }
    exits.sort_unstable();
    exits
}
