//! The value of an instruction as an expression.

use elinvar_core::{DType, metal_type};

use super::{
    body::Body,
    names::{element_name, exchanged, held, is_half, loaded, rounded, stored},
    words::Part,
};
use crate::program::{Binary, Flow, Instruction, Memory, Operand, Position, Scope, Shuffle, Ternary, Unary, is_floating, is_signed};

/// Whether the operation on halves gives a half.
const fn is_exact(op: Unary) -> bool {
    matches!(op, Unary::Neg | Unary::Abs | Unary::Sign | Unary::Relu | Unary::Floor | Unary::Ceil | Unary::Trunc | Unary::Round)
}

impl Body<'_> {
    fn dtype(&self, operand: Operand) -> DType {
        self.context.program.dtype(self.function, operand).unwrap_or(DType::F32)
    }

    /// The value of an instruction; empty for those that have none.
    pub(super) fn value(&self, at: usize, instruction: &Instruction) -> String {
        let register = |to: u32| self.function.registers[to as usize].dtype;
        match *instruction {
            Instruction::Unary { op, to, a } if is_exact(op) => unary(op, register(to), &self.operand(a)),
            Instruction::Unary { op, to, a } => rounded(register(to), unary(op, register(to), &self.operand(a))),
            Instruction::Binary { op, to, a, b } => {
                let value = binary(op, register(to), &self.operand(a), &self.operand(b));
                if matches!(op, Binary::Min | Binary::Max) { value } else { rounded(register(to), value) }
            }
            Instruction::Ternary { op, to, a, b, c } => {
                let (a, b, c) = (self.operand(a), self.operand(b), self.operand(c));
                let value = match op {
                    Ternary::Fma => format!("{}({a}, {b}, {c})", op.metal()),
                    Ternary::Mad if register(to).is_float() || matches!(register(to), DType::U32 | DType::U64) => format!("{a} * {b} + {c}"),
                    Ternary::Mad => format!("{}({a}, {b}, {c})", op.metal()),
                };
                rounded(register(to), value)
            }
            Instruction::Compare { op, a, b, .. } => format!("{} {} {}", self.operand(a), op.infix(), self.operand(b)),
            Instruction::Select { condition, a, b, .. } => format!("{} ? {} : {}", self.operand(condition), self.operand(a), self.operand(b)),
            Instruction::Convert { to, a } => self.convert(self.dtype(a), register(to), a),
            Instruction::Move { a, .. } => self.operand(a),
            Instruction::Position { position, .. } => place(position).to_owned(),
            Instruction::Load { to, memory, index } => self.load(at, register(to), memory, index),
            Instruction::Atomic { op, memory, index, value, .. } => self.atomic(at, op.name(), memory, index, &self.operand(value)),
            Instruction::CompareExchange { memory, index, expected, value, .. } => {
                self.atomic(at, "atomic_cas", memory, index, &format!("{}, {}", self.operand(expected), self.operand(value)))
            }
            Instruction::Reduce { scope, op, to, a } => {
                let ([op], exchanged, dtype) = (op.object(), exchanged(register(to)), register(to));
                let value = if dtype == DType::Bool { format!("uint({})", self.operand(a)) } else { self.operand(a) };
                let value = if scope == Scope::Group {
                    let groups = match self.context.program.block {
                        Some(block) => format!("{}u", block.iter().map(|&n| u64::from(n)).product::<u64>() / 32),
                        None => "(atlas_block_size.x * atlas_block_size.y * atlas_block_size.z) / 32u".to_owned(),
                    };
                    let places = format!("atlas_index % 32u, atlas_index / 32u, {groups}, {}", self.reduces_again(at, exchanged));
                    format!("atlas::group_reduce<{op}, {exchanged}>({value}, atlas_partial_{exchanged}, {places})")
                } else {
                    format!("atlas::simd_reduce<{op}, {exchanged}>({value}, atlas_index % 32u)")
                };
                if dtype == DType::Bool { format!("{value} != 0u") } else { rounded(dtype, value) }
            }
            Instruction::Shuffle { kind, to, a, by } => {
                let by = self.operand(by);
                let lane = "atlas_index % 32u";
                let from = match kind {
                    Shuffle::Index => format!("{by} & 31u"),
                    Shuffle::Xor => format!("({lane} ^ {by}) & 31u"),
                    Shuffle::Up => format!("{by} <= {lane} ? {lane} - {by} : {lane}"),
                    Shuffle::Down => format!("{by} <= 31u - {lane} ? {lane} + {by} : {lane}"),
                };
                format!("atlas::shuffle<{}>({}, ushort({from}))", held(register(to)), self.operand(a))
            }
            Instruction::Call { function, .. } => {
                let arguments = instruction.operands(&self.function.arguments).map(|argument| self.operand(argument));
                let block = self.context.has_block.then(|| "atlas_parameters".to_owned());
                let counts = self.context.faults.counts(function as usize);
                let counter = counts.then(|| format!("{}, atlas_fault", self.counter(at)));
                let arguments: Vec<_> = arguments.chain(block).chain(counter).collect();
                format!("program::{}({})", self.context.functions[function as usize], arguments.join(", "))
            }
            Instruction::If { .. } | Instruction::Else | Instruction::Loop { .. } | Instruction::While { .. } | Instruction::End => String::new(),
            Instruction::Break | Instruction::Continue | Instruction::Exit | Instruction::Barrier | Instruction::Fence => String::new(),
            Instruction::Store { .. } => String::new(),
        }
    }

    /// Whether the block may have reduced values of that type before.
    fn reduces_again(&self, at: usize, exchanged: &str) -> bool {
        let before = &self.function.body[..at];
        let reduced = before.iter().any(|instruction| self.context.reduced_type(instruction) == Some(exchanged));
        // How many blocks are open, and how many were when each loop began that still is.
        let (mut open, mut loops) = (0usize, Vec::new());
        for instruction in before {
            match instruction.flow() {
                Flow::Opens => {
                    if matches!(instruction, Instruction::Loop { .. }) {
                        loops.push(open);
                    }
                    open += 1;
                }
                Flow::Closes => {
                    open -= 1;
                    loops.pop_if(|began| *began == open);
                }
                Flow::Straight | Flow::Turns | Flow::Leaves => {}
            }
        }
        reduced || !loops.is_empty()
    }

    fn convert(&self, from: DType, to: DType, a: Operand) -> String {
        let value = self.operand(a);
        match (from, to) {
            _ if from == to => self.operand(a),
            (_, DType::Bool) if from.is_float() => format!("{value} != 0.0f"),
            (_, DType::Bool) => format!("{value} != {}(0)", metal_type(from)),
            (DType::Bool, _) if to.is_float() => rounded(to, format!("float({value})")),
            _ if from.is_float() && to.is_float() => rounded(to, value),
            _ if from.is_float() => format!("atlas::saturate<{}>({value})", metal_type(to)),
            _ if is_half(to) => rounded(to, format!("atlas::to_odd({value})")),
            _ => format!("{}({value})", metal_type(to)),
        }
    }

    fn load(&self, at: usize, dtype: DType, memory: Memory, index: Operand) -> String {
        let (name, length) = self.memory(memory);
        let element = match self.word(at) {
            Some(part) => format!("atlas_word{}.at[{}]", part.first, part.place),
            None if self.context.checked => format!("atlas::load({name}, {length}, {})", self.index(at, index, &length)),
            None => format!("{name}[{}]", self.index(at, index, &length)),
        };
        loaded(dtype, element)
    }

    /// The statement before that of a word's first load, which loads it.
    pub(super) fn load_word(&self, at: usize, instruction: &Instruction) -> Option<String> {
        let (Instruction::Load { memory, index, .. }, Some(part)) = (*instruction, self.word(at)) else { return None };
        (part.place == 0).then(|| {
            let word = format!("{} atlas_word{at}", self.word_type(memory, part));
            format!("const {word} = atlas::load_word<{}>({});\n", part.count, self.word_place(memory, index))
        })
    }

    pub(super) fn store(&self, at: usize, memory: Memory, index: Operand, value: Operand) -> String {
        let (dtype, (name, length)) = (self.dtype(value), self.memory(memory));
        let value = stored(dtype, self.operand(value));
        if let Some(part) = self.word(at) {
            let word = format!("atlas_word{}", part.first);
            let declared = if part.place == 0 { format!("{} {word};\n", self.word_type(memory, part)) } else { String::new() };
            let first = self.function.body[part.first].operands(&[]).next().unwrap_or(index);
            let store =
                if part.place + 1 < part.count { String::new() } else { format!("\natlas::store_word({}, {word});", self.word_place(memory, first)) };
            return format!("{declared}{word}.at[{}] = {value};{store}", part.place);
        }
        let index = self.index(at, index, &length);
        if self.context.checked { format!("atlas::store({name}, {length}, {index}, {value});") } else { format!("{name}[{index}] = {value};") }
    }

    fn word_type(&self, memory: Memory, part: Part) -> String {
        let dtype = self.context.program.memory(memory).map_or(DType::F32, |(_, dtype)| dtype);
        format!("atlas::Word<{}, {}>", element_name(dtype), part.count)
    }

    /// Where a word begins.
    fn word_place(&self, memory: Memory, index: Operand) -> String {
        let ((name, length), index) = (self.memory(memory), self.operand(index));
        if self.context.checked { format!("{name}, {length}, {index}") } else { format!("{name}, {index}") }
    }

    fn atomic(&self, at: usize, name: &str, memory: Memory, index: Operand, values: &str) -> String {
        let (memory, length) = self.memory(memory);
        let length = if self.context.checked { length } else { "~0ul".to_owned() };
        format!("atlas::{name}({memory}, {length}, {}, {values})", self.index(at, index, &length))
    }
}

fn unary(op: Unary, dtype: DType, a: &str) -> String {
    let calls = |name: &str| format!("{name}({a})");
    match op {
        Unary::Neg if dtype.is_float() => format!("-{a}"),
        Unary::Abs if !is_floating(dtype) && !is_signed(dtype) => a.to_owned(),
        Unary::Sigmoid | Unary::Silu if dtype == DType::BF16 => calls(&format!("{}_bfloat", op.metal())),
        op => calls(op.metal()),
    }
}

fn binary(op: Binary, dtype: DType, a: &str, b: &str) -> String {
    // Signed integers and those that are promoted would overflow as `int`, where nothing says that they wrap; division is by a function that says.
    let is_plain = dtype.is_float() || matches!(dtype, DType::U32 | DType::U64) && op != Binary::Div;
    match (op.infix(), dtype) {
        (Some(symbol), _) if is_plain => format!("{a} {symbol} {b}"),
        (Some(symbol), _) if op.takes(DType::Bool) => format!("{}({a} {symbol} {b})", metal_type(dtype)),
        (Some(_) | None, _) => format!("{}({a}, {b})", op.metal()),
    }
}

const fn place(position: Position) -> &'static str {
    match position {
        Position::GlobalX => "atlas_position.x",
        Position::GlobalY => "atlas_position.y",
        Position::GlobalZ => "atlas_position.z",
        Position::LocalX => "atlas_local.x",
        Position::LocalY => "atlas_local.y",
        Position::LocalZ => "atlas_local.z",
        Position::BlockX => "atlas_block.x",
        Position::BlockY => "atlas_block.y",
        Position::BlockZ => "atlas_block.z",
        Position::BlockSizeX => "atlas_block_size.x",
        Position::BlockSizeY => "atlas_block_size.y",
        Position::BlockSizeZ => "atlas_block_size.z",
        Position::GridSizeX => "atlas_grid_size.x",
        Position::GridSizeY => "atlas_grid_size.y",
        Position::GridSizeZ => "atlas_grid_size.z",
        Position::LocalIndex => "atlas_index",
        Position::Lane => "atlas_index % 32u",
        Position::Simdgroup => "atlas_index / 32u",
    }
}
