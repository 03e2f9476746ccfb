//! The scalar oracle: one thread after the other, one instruction at a time, up to the next place where threads of a block meet.

use elinvar_atlas::{Atomic, Binary, Function, Instruction, LaunchConfig, Memory, Operand, Position, Program, Scope, Shuffle};
use elinvar_core::DType;

use super::{binary, compare, convert, float, ternary, unary};

struct Thread {
    next: usize,
    registers: Vec<u64>,
    /// Repetitions done of the loops around.
    loops: Vec<u32>,
    local: [u32; 3],
    index: u32,
}

/// Runs a program without calls over buffers and scalars, each a list of values as bits, in the order of the parameters.
pub(crate) fn run(program: &Program, launch: &LaunchConfig, parameters: &mut [Vec<u64>]) {
    let ends = matching(&program.kernel);
    for z in 0..launch.grid[2] {
        for y in 0..launch.grid[1] {
            for x in 0..launch.grid[0] {
                Block { program, launch, ends: &ends, block: [x, y, z], parameters, shared: Vec::new() }.run();
            }
        }
    }
}

/// For an `if` or `loop` its `else` or `end`; for an `else` its `end`; for the `end` of a loop the loop.
fn matching(function: &Function) -> Vec<usize> {
    let mut ends = vec![usize::MAX; function.body.len()];
    let mut open = Vec::new();
    for (index, instruction) in function.body.iter().enumerate() {
        match instruction {
            Instruction::If { .. } | Instruction::Loop { .. } => open.push(index),
            Instruction::Else => {
                ends[open.pop().unwrap()] = index;
                open.push(index);
            }
            Instruction::End => {
                let opened: usize = open.pop().unwrap();
                ends[opened] = index;
                ends[index] = opened;
            }
            _ => {}
        }
    }
    ends
}

struct Block<'a> {
    program: &'a Program,
    launch: &'a LaunchConfig,
    ends: &'a [usize],
    block: [u32; 3],
    parameters: &'a mut [Vec<u64>],
    shared: Vec<Vec<u64>>,
}

impl Block<'_> {
    fn run(&mut self) {
        self.shared = self.program.shared.iter().map(|s| vec![0; s.elements(self.launch) as usize]).collect();
        let [bx, by, bz] = self.launch.block;
        let places = (0..bz).flat_map(|z| (0..by).flat_map(move |y| (0..bx).map(move |x| [x, y, z])));
        let registers = self.program.kernel.registers.len();
        let thread = |(index, local)| Thread { next: 0, registers: vec![0; registers], loops: Vec::new(), local, index };
        let mut threads: Vec<_> = (0u32..).zip(places).map(thread).collect();
        loop {
            threads.iter_mut().for_each(|thread| self.advance(thread));
            let Some(instruction) = threads.iter().find_map(|t| self.program.kernel.body.get(t.next)).copied() else { return };
            self.meet(&mut threads, instruction);
            threads.iter_mut().for_each(|thread| thread.next += 1);
        }
    }

    fn value(&self, thread: &Thread, operand: Operand) -> u64 {
        match operand {
            Operand::Register(r) => thread.registers[r as usize],
            Operand::Parameter(p) => self.parameters[p as usize][0],
            Operand::Constant(c) => c.bits,
        }
    }

    fn dtype(&self, operand: Operand) -> DType {
        self.program.dtype(&self.program.kernel, operand).unwrap()
    }

    /// Runs a thread to where it meets others, or to its end.
    fn advance(&mut self, thread: &mut Thread) {
        let program = self.program;
        while let Some(instruction) = program.kernel.body.get(thread.next) {
            if matches!(instruction, Instruction::Barrier | Instruction::Reduce { .. } | Instruction::Shuffle { .. }) {
                return;
            }
            self.step(thread, *instruction);
        }
    }

    fn step(&mut self, thread: &mut Thread, instruction: Instruction) {
        let dtype = instruction.target().map(|to| self.program.kernel.registers[to as usize].dtype);
        let at = thread.next;
        thread.next += 1;
        let of = |operand| self.value(thread, operand);
        let result = match instruction {
            Instruction::Unary { op, a, .. } => unary(op, dtype.unwrap(), of(a)),
            Instruction::Binary { op, a, b, .. } => binary(op, dtype.unwrap(), of(a), of(b)),
            Instruction::Ternary { op, a, b, c, .. } => ternary(op, dtype.unwrap(), of(a), of(b), of(c)),
            Instruction::Compare { op, a, b, .. } => compare(op, self.dtype(a), of(a), of(b)).map(u64::from),
            Instruction::Select { condition, a, b, .. } => Some(if of(condition) != 0 { of(a) } else { of(b) }),
            Instruction::Convert { a, .. } => Some(convert(self.dtype(a), dtype.unwrap(), of(a))),
            Instruction::Move { a, .. } => Some(of(a)),
            Instruction::Position { position, .. } => Some(u64::from(self.position(thread, position))),
            Instruction::Load { memory, index, .. } => {
                let index = self.value(thread, index) as usize;
                Some(self.memory(memory).get(index).copied().unwrap_or(0))
            }
            Instruction::Store { memory, index, value } => {
                let (index, value) = (of(index) as usize, of(value));
                if let Some(element) = self.memory(memory).get_mut(index) {
                    *element = value;
                }
                None
            }
            Instruction::Atomic { op, memory, index, value, .. } => {
                let (index, value, element_type) = (of(index) as usize, of(value), self.dtype(value));
                let op = match op {
                    Atomic::Add => Some(Binary::Add),
                    Atomic::Min => Some(Binary::Min),
                    Atomic::Max => Some(Binary::Max),
                    Atomic::And => Some(Binary::And),
                    Atomic::Or => Some(Binary::Or),
                    Atomic::Xor => Some(Binary::Xor),
                    Atomic::Exchange => None,
                };
                let new = |old| op.map_or(value, |op| binary(op, element_type, old, value).unwrap());
                let element = self.memory(memory).get_mut(index);
                Some(element.map_or(0, |element| std::mem::replace(element, new(*element))))
            }
            Instruction::CompareExchange { memory, index, expected, value, .. } => {
                let (index, expected, value) = (of(index) as usize, of(expected), of(value));
                let element = self.memory(memory).get_mut(index);
                Some(element.map_or(0, |element| {
                    let new = if *element == expected { value } else { *element };
                    std::mem::replace(element, new)
                }))
            }
            Instruction::Fence => None,
            Instruction::If { condition } => {
                if of(condition) == 0 {
                    thread.next = self.ends[at] + 1;
                }
                None
            }
            Instruction::Else => {
                thread.next = self.ends[at];
                None
            }
            Instruction::Loop { .. } => {
                thread.loops.push(0);
                None
            }
            Instruction::While { condition } => {
                if of(condition) == 0 {
                    self.leave(thread, at);
                }
                None
            }
            Instruction::Break => {
                self.leave(thread, at);
                None
            }
            Instruction::Continue => {
                thread.next = self.ends[self.innermost(at)];
                None
            }
            Instruction::End => {
                if let Instruction::Loop { bound } = self.program.kernel.body[self.ends[at]] {
                    let done = thread.loops.last_mut().unwrap();
                    *done += 1;
                    if bound == Some(*done) {
                        thread.loops.pop();
                    } else {
                        thread.next = self.ends[at] + 1;
                    }
                }
                None
            }
            Instruction::Exit => {
                thread.next = usize::MAX;
                None
            }
            other => panic!("the oracle has no {other:?}"),
        };
        if let (Some(to), Some(result)) = (instruction.target(), result) {
            thread.registers[to as usize] = result;
        }
    }

    /// The innermost loop around an instruction.
    fn innermost(&self, at: usize) -> usize {
        let is_around = |index: &usize| matches!(self.program.kernel.body[*index], Instruction::Loop { .. }) && self.ends[*index] > at;
        (0..at).rev().find(is_around).unwrap()
    }

    fn leave(&self, thread: &mut Thread, at: usize) {
        thread.loops.pop();
        thread.next = self.ends[self.innermost(at)] + 1;
    }

    fn memory(&mut self, memory: Memory) -> &mut Vec<u64> {
        match memory {
            Memory::Buffer(index) => &mut self.parameters[index as usize],
            Memory::Shared(index) => &mut self.shared[index as usize],
        }
    }

    fn position(&self, thread: &Thread, position: Position) -> u32 {
        use Position as P;
        let (block, size, grid, local) = (self.block, self.launch.block, self.launch.grid, thread.local);
        match position {
            P::GlobalX => block[0] * size[0] + local[0],
            P::GlobalY => block[1] * size[1] + local[1],
            P::GlobalZ => block[2] * size[2] + local[2],
            P::LocalX => local[0],
            P::LocalY => local[1],
            P::LocalZ => local[2],
            P::BlockX => block[0],
            P::BlockY => block[1],
            P::BlockZ => block[2],
            P::BlockSizeX => size[0],
            P::BlockSizeY => size[1],
            P::BlockSizeZ => size[2],
            P::GridSizeX => grid[0],
            P::GridSizeY => grid[1],
            P::GridSizeZ => grid[2],
            P::LocalIndex => thread.index,
            P::Lane => thread.index % 32,
            P::Simdgroup => thread.index / 32,
        }
    }

    /// All threads of the block have come to an instruction that they run together.
    fn meet(&self, threads: &mut [Thread], instruction: Instruction) {
        match instruction {
            Instruction::Reduce { scope, op, to, a } => {
                let dtype = self.dtype(a);
                let values: Vec<u64> = threads.iter().map(|t| self.value(t, a)).collect();
                let simdgroups: Vec<u64> = values.chunks(32).map(|lanes| tree(op, dtype, lanes)).collect();
                let whole = simdgroups.iter().copied().reduce(|a, b| combine(op, dtype, a, b)).unwrap();
                for (index, thread) in threads.iter_mut().enumerate() {
                    let total = if scope == Scope::Group { whole } else { simdgroups[index / 32] };
                    thread.registers[to as usize] = if is_half(dtype) { convert(DType::F32, dtype, total) } else { total };
                }
            }
            Instruction::Shuffle { kind, to, a, by } => {
                let values: Vec<u64> = threads.iter().map(|t| self.value(t, a)).collect();
                let from: Vec<usize> = threads
                    .iter()
                    .enumerate()
                    .map(|(index, thread)| {
                        let (lane, by) = ((index % 32) as i64, self.value(thread, by) as i64);
                        let from = match kind {
                            Shuffle::Index => by % 32,
                            Shuffle::Xor => (lane ^ by) % 32,
                            Shuffle::Up => {
                                if by <= lane {
                                    lane - by
                                } else {
                                    lane
                                }
                            }
                            Shuffle::Down => {
                                if lane + by < 32 {
                                    lane + by
                                } else {
                                    lane
                                }
                            }
                        };
                        index / 32 * 32 + from as usize
                    })
                    .collect();
                threads.iter_mut().zip(from).for_each(|(thread, from)| thread.registers[to as usize] = values[from]);
            }
            _ => {}
        }
    }
}

fn is_half(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::BF16)
}

/// Halves are combined in f32.
fn combine(op: Binary, dtype: DType, a: u64, b: u64) -> u64 {
    binary(op, if is_half(dtype) { DType::F32 } else { dtype }, a, b).unwrap()
}

/// Lanes 16, 8, 4, 2, 1 apart.
fn tree(op: Binary, dtype: DType, lanes: &[u64]) -> u64 {
    let mut values: Vec<u64> = lanes.iter().map(|&v| if is_half(dtype) { u64::from(float(dtype, v).to_bits()) } else { v }).collect();
    for apart in [16, 8, 4, 2, 1] {
        for lane in 0..apart {
            values[lane] = combine(op, dtype, values[lane], values[lane + apart]);
        }
    }
    values[0]
}
