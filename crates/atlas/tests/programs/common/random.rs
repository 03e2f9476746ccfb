//! Well-typed random programs: control flow, memory, threads that work together. Threads store to elements of their own, or between barriers.

use elinvar_atlas::{
    Atomic, Binary, Builder, Compare, Constant, Instruction, LaunchConfig, Memory, Operand, Parameter, Position, Program, Scope, Shuffle, Ternary,
    Unary, is_floating,
};
use elinvar_core::{Access, DType};

use super::{binary, ternary, unary, values};

/// The types that every device has.
pub(crate) const TYPES: &[DType] =
    &[DType::U32, DType::F32, DType::I32, DType::Bool, DType::F16, DType::BF16, DType::U8, DType::I16, DType::I64, DType::U64, DType::I8, DType::U16];
/// Types of which there are buffers that are only read.
const INPUTS: usize = 8;
/// Elements of each buffer that a thread owns.
pub(crate) const OWN: u32 = 8;
/// Elements of the shared arrays, and threads of a block.
pub(crate) const BLOCK: u32 = 64;

struct Generator {
    state: u64,
    types: &'static [DType],
    b: Builder,
    /// Values that every path here has assigned.
    known: Vec<(Operand, DType)>,
    /// Registers that may be assigned again.
    mutable: Vec<(Operand, DType)>,
    buffers: Vec<(Memory, DType)>,
    /// Buffers that nobody writes.
    inputs: Vec<(Memory, DType)>,
    counters: Memory,
    shared: Vec<(Memory, DType)>,
    thread: Operand,
    own: Operand,
    local: Operand,
    statements: u32,
}

/// The program of a seed over some types. Its parameters: a buffer of each type, of some types one that is only read, a buffer of 16 u32 counters, a scalar of u32.
pub(crate) fn program(seed: u64, types: &'static [DType]) -> Program {
    let mut b = Builder::new("random");
    let buffers = types.iter().map(|&dtype| (b.buffer(&format!("y_{dtype}"), dtype, Access::ReadWrite), dtype)).collect();
    let inputs = types.iter().take(INPUTS).map(|&dtype| (b.buffer(&format!("x_{dtype}"), dtype, Access::Read), dtype)).collect();
    let counters = b.buffer("counters", DType::U32, Access::ReadWrite);
    let n = b.scalar("n", DType::U32);
    let together = !seed.is_multiple_of(3);
    let shared = if together {
        // The last one's length is given by the launch.
        [(DType::U32, BLOCK), (DType::F32, BLOCK), (DType::U8, 0)]
            .map(|(dtype, length)| (b.shared(&format!("s_{dtype}"), dtype, length), dtype))
            .to_vec()
    } else {
        Vec::new()
    };
    let i = b.position(Position::GlobalX);
    let local = b.position(Position::LocalIndex);
    let block = b.position(Position::BlockX);
    let thread = b.ternary(Ternary::Mad, block, Constant::u32(BLOCK).into(), local);
    let own = b.binary(Binary::Mul, thread, Constant::u32(OWN).into());
    let lane = b.position(Position::Lane);
    let known = [i, local, block, lane, n].map(|operand| (operand, DType::U32)).to_vec();
    let state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut g = Generator { state, types, b, known, mutable: Vec::new(), buffers, inputs, counters, shared, thread, own, local, statements: 60 };
    for (index, &dtype) in types.iter().enumerate() {
        let register = g.b.register(&format!("m{index}"), dtype);
        let value = g.constant(dtype);
        g.b.assign(register, value);
        g.mutable.push((register, dtype));
        g.known.push((register, dtype));
    }
    while g.statements > 0 {
        if together && g.below(4) == 0 { g.meeting(block) } else { g.statement(0, false) }
    }
    // What threads have computed is stored; some end before.
    if g.below(3) == 0 {
        let condition = g.value(DType::Bool);
        g.b.begin_if(condition);
        g.b.push(Instruction::Exit);
        g.b.end();
    }
    for (register, dtype) in g.mutable.clone() {
        g.store_own(register, dtype);
    }
    g.b.finish()
}

impl Generator {
    fn below(&mut self, n: usize) -> usize {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state >> 20) as usize % n
    }

    fn one<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }

    fn constant(&mut self, dtype: DType) -> Operand {
        let bits = self.one(&values(dtype));
        Operand::Constant(Constant { dtype, bits })
    }

    fn value(&mut self, dtype: DType) -> Operand {
        let fitting: Vec<_> = self.known.iter().filter(|(_, d)| *d == dtype).map(|(operand, _)| *operand).collect();
        if fitting.is_empty() || self.below(6) == 0 { self.constant(dtype) } else { self.one(&fitting) }
    }

    fn register(&mut self, dtype: DType) -> Operand {
        let fitting: Vec<_> = self.mutable.iter().filter(|(_, d)| *d == dtype).map(|(operand, _)| *operand).collect();
        self.one(&fitting)
    }

    fn compute(&mut self) {
        let dtype = self.one(self.types);
        let (a, b, c) = (self.value(dtype), self.value(dtype), self.value(dtype));
        let result = match self.below(7) {
            0 => {
                let op = self.one(Unary::ALL);
                unary(op, dtype, 0).map(|_| (self.b.unary(op, a), dtype))
            }
            1 | 2 => {
                let op = self.one(Binary::ALL);
                let result = binary(op, dtype, 0, 0);
                if let (Some(_), Operand::Register(to), 0) = (result, self.register(dtype), self.below(3)) {
                    return self.b.push(Instruction::Binary { op, to, a, b });
                }
                result.map(|_| (self.b.binary(op, a, b), dtype))
            }
            3 => {
                let op = self.one(Ternary::ALL);
                ternary(op, dtype, 0, 0, 0).map(|_| (self.b.ternary(op, a, b, c), dtype))
            }
            4 => {
                let op = self.one(if dtype == DType::Bool { &Compare::ALL[..2] } else { Compare::ALL });
                let register = self.register(dtype);
                Some((self.b.compare(op, register, b), DType::Bool))
            }
            5 => {
                let condition = self.value(DType::Bool);
                Some((self.b.select(condition, a, b), dtype))
            }
            _ => {
                let to = self.one(self.types);
                let register = self.register(dtype);
                Some((self.b.convert(to, register), to))
            }
        };
        self.known.extend(result);
    }

    /// Indices of elements that the thread owns: one, or some that are neighbours.
    fn own_indices(&mut self) -> Vec<Operand> {
        let first = self.below(OWN as usize);
        let count = if self.below(2) == 0 { 1 } else { 1 + self.below(OWN as usize - first) };
        (first..first + count).map(|offset| self.b.binary(Binary::Add, self.own, Constant::u32(offset as u32).into())).collect()
    }

    fn store_own(&mut self, value: Operand, dtype: DType) {
        let memory = self.buffers.iter().find(|(_, d)| *d == dtype).map(|(memory, _)| *memory);
        let indices = self.own_indices();
        let values: Vec<_> = indices.iter().enumerate().map(|(i, _)| if i == 0 { value } else { self.value(dtype) }).collect();
        for (index, value) in indices.into_iter().zip(values) {
            self.b.store(memory.unwrap(), index, value);
        }
    }

    /// Into a register of its own, or in place of what another held.
    fn load(&mut self, memory: Memory, dtype: DType, index: Operand) {
        match self.register(dtype) {
            Operand::Register(to) if self.below(2) == 0 => self.b.push(Instruction::Load { to, memory, index }),
            _ => {
                let loaded = self.b.load(memory, index);
                self.known.push((loaded, dtype));
            }
        }
    }

    /// A statement; `looped`: a loop is around it.
    fn statement(&mut self, depth: usize, looped: bool) {
        self.statements = self.statements.saturating_sub(1);
        match self.below(if depth < 3 { 15 } else { 11 }) {
            0..=4 => self.compute(),
            5 | 6 => {
                let dtype = self.one(self.types);
                let (register, value) = (self.register(dtype), self.value(dtype));
                self.b.assign(register, value);
            }
            7 => {
                let dtype = self.one(self.types);
                let value = self.value(dtype);
                self.store_own(value, dtype);
            }
            8 => {
                let (memory, dtype) = self.one(&self.buffers.clone());
                for index in self.own_indices() {
                    self.load(memory, dtype, index);
                }
            }
            9 => {
                let (memory, dtype) = self.one(&self.inputs.clone());
                let index = match self.below(3) {
                    0 => self.thread,
                    1 => self.own,
                    _ => self.value(DType::U32),
                };
                self.load(memory, dtype, index);
            }
            10 => {
                let (value, place) = (self.value(DType::U32), self.below(20) as u32);
                let (memory, index) = (self.counters, Constant::u32(place).into());
                self.b.push(Instruction::Atomic { op: Atomic::Add, to: None, memory, index, value });
            }
            11 | 12 => {
                let condition = self.value(DType::Bool);
                self.b.begin_if(condition);
                self.inner(depth, looped);
                if looped && self.below(5) == 0 {
                    let leaves = self.one(&[Instruction::Break, Instruction::Continue]);
                    self.b.push(leaves);
                    self.b.end();
                    return;
                }
                if self.below(2) == 0 {
                    self.b.begin_else();
                    self.inner(depth, looped);
                }
                self.b.end();
            }
            _ => {
                let bound = 1 + self.below(4) as u32;
                self.b.begin_loop(Some(bound));
                self.inner(depth, true);
                if self.below(2) == 0 {
                    let condition = self.value(DType::Bool);
                    self.b.continue_while(condition);
                }
                self.b.end();
            }
        }
    }

    fn inner(&mut self, depth: usize, looped: bool) {
        let known = self.known.len();
        for _ in 0..1 + self.below(4) {
            self.statement(depth + 1, looped);
        }
        self.known.truncate(known);
    }

    /// Something that all threads of the block do together, perhaps where a condition is theirs in common.
    fn meeting(&mut self, block: Operand) {
        self.statements = self.statements.saturating_sub(1);
        let known = self.known.len();
        let guarded = self.below(3) == 0;
        if guarded {
            let odd = self.b.binary(Binary::And, block, Constant::u32(1).into());
            let condition = self.b.compare(Compare::Eq, odd, Constant::u32(0).into());
            self.b.begin_if(condition);
        }
        match self.below(3) {
            0 => {
                let (memory, dtype) = self.one(&self.shared.clone());
                let value = self.value(dtype);
                self.b.store(memory, self.local, value);
                self.b.barrier();
                let any = self.value(DType::U32);
                let index = self.b.binary(Binary::Rem, any, Constant::u32(BLOCK + 3).into());
                let loaded = self.b.load(memory, index);
                self.b.barrier();
                self.known.push((loaded, dtype));
            }
            1 => {
                let dtype = self.one(self.types);
                let op = self.one(&[Binary::Add, Binary::Mul, Binary::Min, Binary::Max, Binary::And, Binary::Or, Binary::Xor]);
                if binary(op, dtype, 0, 0).is_some() {
                    let (scope, value) = (self.one(Scope::ALL), self.value(dtype));
                    let reduced = self.b.reduce(scope, op, value);
                    self.known.push((reduced, dtype));
                }
            }
            _ => {
                let dtype = self.one(self.types);
                let (kind, value, by) = (self.one(Shuffle::ALL), self.value(dtype), self.value(DType::U32));
                let shuffled = self.b.shuffle(kind, value, by);
                self.known.push((shuffled, dtype));
            }
        }
        if guarded {
            // What came of it leaves through a register that was assigned before.
            if let Some(&(value, dtype)) = self.known.get(known) {
                let register = self.register(dtype);
                self.b.assign(register, value);
            }
            self.b.end();
            self.known.truncate(known);
        }
    }
}

/// Blocks of [`BLOCK`] threads, in one dimension or two, with memory for the shared arrays.
pub(crate) fn launch(program: &Program, seed: u64) -> LaunchConfig {
    let launch = LaunchConfig::new([3, 1, 1], if seed.is_multiple_of(2) { [BLOCK, 1, 1] } else { [BLOCK / 4, 4, 1] });
    launch.with_shared_memory(if program.shared.is_empty() { 0 } else { BLOCK })
}

/// What the parameters are given: words that hold the bytes, and how many bytes.
pub(crate) fn parameters(program: &Program, seed: u64) -> Vec<(Vec<u64>, usize)> {
    let threads = (3 * BLOCK * OWN) as usize;
    let of = |parameter: &Parameter| {
        if parameter.access.is_none() {
            return (vec![seed % 100], 8);
        }
        if parameter.name == "counters" {
            return (vec![0; 8], 64);
        }
        let all = values(parameter.dtype);
        let size = parameter.dtype.size();
        let mut words = vec![0u64; (threads * size).div_ceil(8)];
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut words);
        for (index, element) in bytes.chunks_exact_mut(size).enumerate() {
            element.copy_from_slice(&all[(index * 7 + seed as usize) % all.len()].to_le_bytes()[..size]);
        }
        (words, threads * size)
    };
    program.parameters.iter().map(of).collect()
}

/// What the scalar oracle leaves in each buffer, as values.
pub(crate) fn run_by_oracle(program: &Program, launch: &LaunchConfig, seed: u64) -> Vec<Vec<u64>> {
    let bits = |bytes: &[u8]| bytes.iter().rev().fold(0u64, |bits, byte| bits << 8 | u64::from(*byte));
    let mut values: Vec<Vec<u64>> = parameters(program, seed)
        .iter()
        .zip(&program.parameters)
        .map(|((words, length), parameter)| bytemuck::cast_slice::<u64, u8>(words)[..*length].chunks(parameter.dtype.size()).map(bits).collect())
        .collect();
    super::scalar::run(program, launch, &mut values);
    values
}

/// The first element that differs; NaNs are alike.
pub(crate) fn same(dtype: DType, found: &[u8], expected: &[u64]) -> Option<usize> {
    let bits = |bytes: &[u8]| bytes.iter().rev().fold(0u64, |bits, byte| bits << 8 | u64::from(*byte));
    let is_nan = |bits: u64| is_floating(dtype) && Constant { dtype, bits }.as_f64().is_nan();
    let alike = |(found, expected): (&[u8], &u64)| bits(found) == *expected || is_nan(bits(found)) && is_nan(*expected);
    found.chunks(dtype.size()).zip(expected).position(|pair| !alike(pair))
}
