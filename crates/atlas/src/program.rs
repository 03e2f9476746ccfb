//! Programs as data: types, registers, instructions.

use std::fmt;

use elinvar_core::{Access, DType};

pub use elinvar_math::functions::{Binary, Compare, Ternary, Unary};

pub use crate::{
    constant::{Constant, is_floating, is_signed},
    operations::{Atomic, Bounds, Position, Scope, Shuffle},
};

/// A typed virtual register of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Register {
    /// Its name, unique in its function.
    pub name: String,
    /// What it holds.
    pub dtype: DType,
}

/// What an instruction takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operand {
    /// A register of the function, by number.
    Register(u32),
    /// A scalar parameter of the program, by number among all parameters.
    Parameter(u32),
    /// A constant.
    Constant(Constant),
}

/// What a program is given when it is launched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Its name.
    pub name: String,
    /// The type of the scalar, or of the buffer's elements.
    pub dtype: DType,
    /// The right to a buffer; `None` for a scalar.
    pub access: Option<Access>,
}

/// An array that the threads of a block share. It is zero when the block starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shared {
    /// Its name.
    pub name: String,
    /// Type of its elements.
    pub dtype: DType,
    /// How many it has; zero: as many as the memory has room for that a launch gives ([`LaunchConfig::shared_memory`]).
    pub length: u32,
}

impl Shared {
    /// How many elements it has in a launch.
    pub fn elements(&self, launch: &LaunchConfig) -> u32 {
        if self.length == 0 { launch.shared_memory / self.dtype.size() as u32 } else { self.length }
    }
}

/// Memory that is loaded from and stored to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Memory {
    /// A buffer, by its number among the parameters.
    Buffer(u32),
    /// A shared array, by number.
    Shared(u32),
}

/// One instruction. Structure is flat: `If` and `Loop` open a block that an `End` closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "each variant shows its text form, which names its fields")]
pub enum Instruction {
    /// `to = op a`
    Unary { op: Unary, to: u32, a: Operand },
    /// `to = op a b`
    Binary { op: Binary, to: u32, a: Operand, b: Operand },
    /// `to = op a b c`
    Ternary { op: Ternary, to: u32, a: Operand, b: Operand, c: Operand },
    /// `to = op a b`, a bool
    Compare { op: Compare, to: u32, a: Operand, b: Operand },
    /// `to = select condition a b`: `a` where the condition holds.
    Select { to: u32, condition: Operand, a: Operand, b: Operand },
    /// `to: type = convert a`. To integers towards zero, saturating, NaN to zero; between integers low bits; to floats to nearest even.
    Convert { to: u32, a: Operand },
    /// `to = move a`
    Move { to: u32, a: Operand },
    /// `to = position.x`
    Position { to: u32, position: Position },
    /// `to = load memory[index]`
    Load { to: u32, memory: Memory, index: Operand },
    /// `store memory[index] value`
    Store { memory: Memory, index: Operand, value: Operand },
    /// `to = atomic_add memory[index] value`
    Atomic { op: Atomic, to: Option<u32>, memory: Memory, index: Operand, value: Operand },
    /// `to = atomic_cas memory[index] expected value`: the value takes the element's place if that is as expected.
    CompareExchange { to: Option<u32>, memory: Memory, index: Operand, expected: Operand, value: Operand },
    /// `to = group_add a`
    Reduce { scope: Scope, op: Binary, to: u32, a: Operand },
    /// `to = simd_shuffle a by`
    Shuffle { kind: Shuffle, to: u32, a: Operand, by: Operand },
    /// Every thread of the block comes here before any goes on; memory written before is seen after.
    Barrier,
    /// Other threads see what the thread did to memory before it before what it does after.
    Fence,
    /// `to = call function …`; the arguments are a range of [`Function::arguments`].
    Call { function: u32, to: u32, arguments: (u32, u32) },
    /// Threads for which it holds run the block.
    If { condition: Operand },
    /// The other threads run what follows.
    Else,
    /// Repeats its block; with a bound, at most so often.
    Loop { bound: Option<u32> },
    /// Threads for which it does not hold leave the innermost loop.
    While { condition: Operand },
    /// Threads leave the innermost loop.
    Break,
    /// Threads go on with the next repetition of the innermost loop.
    Continue,
    /// Closes the innermost block.
    End,
    /// Threads end.
    Exit,
}

/// Where something is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Location {
    /// From 1; 0 where there is no text.
    pub line: u32,
    /// From 1.
    pub column: u32,
}

/// Where an instruction is, for messages: its line and column, or its number where there is no text.
#[derive(Clone, Debug)]
pub(crate) enum Site {
    Text(Location),
    Number(String, usize),
}

impl Site {
    /// The place of instruction `index` of a function.
    pub(crate) fn of(function: &Function, index: usize) -> Self {
        match function.locations.get(index) {
            Some(&location) if location != Location::default() => Site::Text(location),
            _ => Site::Number(if function.result.is_some() { function.name.clone() } else { "kernel".to_owned() }, index),
        }
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Site::Text(at) => write!(f, "line {}, column {}", at.line, at.column),
            Site::Number(function, index) => write!(f, "{function}, instruction {index}"),
        }
    }
}

/// Characters of a name.
const LONGEST_NAME: usize = 64;
/// Words that are no names: constants, and what statements start with.
const WORDS: &[&str] =
    &["true", "false", "inf", "nan", "if", "else", "loop", "while", "break", "continue", "end", "exit", "barrier", "fence", "store", "return"];

/// Whether something can have the name, or what is wrong with it.
pub(crate) fn check_name(name: &str) -> Result<(), String> {
    let is_word = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if WORDS.contains(&name) {
        return Err(format!("'{name}' is a word of the language and cannot be a name"));
    }
    if !is_word || name.len() > LONGEST_NAME {
        let shown: String = name.chars().take(LONGEST_NAME).collect();
        return Err(format!("{shown:?} is no name: a letter, then letters, digits and '_', {LONGEST_NAME} at most"));
    }
    Ok(())
}

/// A function: a computation on values alone, or the kernel.
#[derive(Clone, Debug, Default)]
pub struct Function {
    /// Its name; the kernel has its program's.
    pub name: String,
    /// Its registers; those that hold its parameters come first.
    pub registers: Vec<Register>,
    /// How many parameters it has.
    pub parameters: u32,
    /// What it returns; `None` for the kernel.
    pub result: Option<Operand>,
    /// Its instructions.
    pub body: Vec<Instruction>,
    /// The arguments of all its calls, one after the other.
    pub arguments: Vec<Operand>,
    /// Where each instruction is written, and after them the end; empty for programs that were not read from text.
    pub locations: Vec<Location>,
}

/// Where the parts of a program's header are written; empty for programs that were not read from text.
#[derive(Clone, Debug, Default)]
pub struct Header {
    /// The name.
    pub name: Location,
    /// The block.
    pub block: Location,
    /// The policy for bounds.
    pub bounds: Location,
    /// Each parameter.
    pub parameters: Vec<Location>,
    /// Each shared array.
    pub shared: Vec<Location>,
    /// Each function.
    pub functions: Vec<Location>,
}

/// A kernel, its parameters and its functions.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// Its name.
    pub name: String,
    /// What it is given, in the order in which it is bound.
    pub parameters: Vec<Parameter>,
    /// Arrays the threads of a block share.
    pub shared: Vec<Shared>,
    /// Threads of a block, if only that size will do.
    pub block: Option<[u32; 3]>,
    /// What happens outside buffers.
    pub bounds: Bounds,
    /// Functions; each may call those before it.
    pub functions: Vec<Function>,
    /// What every thread runs.
    pub kernel: Function,
    /// Where all but the functions' statements is written.
    pub header: Header,
}

/// How many threads run a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchConfig {
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Bytes of the shared array whose length the program leaves to the launch; zero where there is none.
    pub shared_memory: u32,
}

impl LaunchConfig {
    /// So many blocks of so many threads.
    pub const fn new(grid: [u32; 3], block: [u32; 3]) -> Self {
        Self { grid, block, shared_memory: 0 }
    }

    /// At least `n` threads along x in blocks of `block`.
    pub fn linear(n: u64, block: u32) -> Self {
        let blocks = n.div_ceil(u64::from(block.max(1)));
        Self::new([u32::try_from(blocks).unwrap_or(u32::MAX), 1, 1], [block, 1, 1])
    }

    /// The same with so many bytes for the array whose length the program leaves to the launch.
    pub const fn with_shared_memory(self, bytes: u32) -> Self {
        Self { shared_memory: bytes, ..self }
    }

    /// Threads of a block.
    pub fn threads(&self) -> u128 {
        self.block.iter().map(|&n| u128::from(n)).product()
    }
}

/// What an instruction does to the block that it stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// Nothing.
    Straight,
    /// Opens a block in it.
    Opens,
    /// Closes it and opens another.
    Turns,
    /// Closes it.
    Closes,
    /// Leaves it for some threads, or all.
    Leaves,
}

impl Instruction {
    /// What it does to the block that it stands in.
    pub(crate) fn flow(&self) -> Flow {
        use Instruction as I;
        match self {
            I::Unary { .. } | I::Binary { .. } | I::Ternary { .. } | I::Compare { .. } | I::Select { .. } | I::Convert { .. } => Flow::Straight,
            I::Move { .. } | I::Position { .. } | I::Load { .. } | I::Store { .. } | I::Atomic { .. } | I::CompareExchange { .. } => Flow::Straight,
            I::Reduce { .. } | I::Shuffle { .. } | I::Barrier | I::Fence | I::Call { .. } => Flow::Straight,
            I::If { .. } | I::Loop { .. } => Flow::Opens,
            I::Else => Flow::Turns,
            I::End => Flow::Closes,
            I::While { .. } | I::Break | I::Continue | I::Exit => Flow::Leaves,
        }
    }

    /// The memory that it accesses.
    pub(crate) fn memory(&self) -> Option<Memory> {
        use Instruction as I;
        match *self {
            I::Load { memory, .. } | I::Store { memory, .. } | I::Atomic { memory, .. } | I::CompareExchange { memory, .. } => Some(memory),
            I::Unary { .. } | I::Binary { .. } | I::Ternary { .. } | I::Compare { .. } | I::Select { .. } | I::Convert { .. } => None,
            I::Move { .. } | I::Position { .. } | I::Reduce { .. } | I::Shuffle { .. } | I::Barrier | I::Fence | I::Call { .. } => None,
            I::If { .. } | I::Else | I::Loop { .. } | I::While { .. } | I::Break | I::Continue | I::End | I::Exit => None,
        }
    }

    /// The register it assigns.
    pub fn target(&self) -> Option<u32> {
        use Instruction as I;
        match *self {
            I::Unary { to, .. } | I::Binary { to, .. } | I::Ternary { to, .. } | I::Compare { to, .. } | I::Select { to, .. } => Some(to),
            I::Convert { to, .. } | I::Move { to, .. } | I::Position { to, .. } | I::Load { to, .. } | I::Reduce { to, .. } => Some(to),
            I::Shuffle { to, .. } | I::Call { to, .. } => Some(to),
            I::Atomic { to, .. } | I::CompareExchange { to, .. } => to,
            I::Store { .. } | I::Barrier | I::Fence | I::If { .. } | I::Else | I::Loop { .. } | I::While { .. } => None,
            I::Break | I::Continue | I::End | I::Exit => None,
        }
    }

    /// What it takes, given its function's arguments.
    pub fn operands<'a>(&'a self, arguments: &'a [Operand]) -> impl Iterator<Item = Operand> + 'a {
        use Instruction as I;
        let three = match *self {
            I::Unary { a, .. } | I::Convert { a, .. } | I::Move { a, .. } | I::Reduce { a, .. } => [Some(a), None, None],
            I::Binary { a, b, .. } | I::Compare { a, b, .. } => [Some(a), Some(b), None],
            I::Ternary { a, b, c, .. } => [Some(a), Some(b), Some(c)],
            I::Select { condition, a, b, .. } => [Some(condition), Some(a), Some(b)],
            I::Load { index, .. } => [Some(index), None, None],
            I::Store { index, value, .. } | I::Atomic { index, value, .. } => [Some(index), Some(value), None],
            I::CompareExchange { index, expected, value, .. } => [Some(index), Some(expected), Some(value)],
            I::Shuffle { a, by, .. } => [Some(a), Some(by), None],
            I::If { condition } | I::While { condition } => [Some(condition), None, None],
            I::Position { .. } | I::Barrier | I::Fence | I::Call { .. } | I::Else | I::Loop { .. } => [None; 3],
            I::Break | I::Continue | I::End | I::Exit => [None; 3],
        };
        let called = if let I::Call { arguments: (first, count), .. } = *self { (first as usize, count as usize) } else { (0, 0) };
        let called = arguments.get(called.0..).and_then(|rest| rest.get(..called.1)).unwrap_or(&[]);
        three.into_iter().flatten().chain(called.iter().copied())
    }
}

impl Program {
    /// Whether anything in it is of the type.
    pub fn uses(&self, dtype: DType) -> bool {
        let registers = self.functions.iter().chain([&self.kernel]).flat_map(|f| &f.registers).map(|r| r.dtype);
        self.parameters.iter().map(|p| p.dtype).chain(self.shared.iter().map(|s| s.dtype)).chain(registers).any(|used| used == dtype)
    }

    /// The type and the name of memory, if there is such.
    pub fn memory(&self, memory: Memory) -> Option<(&str, DType)> {
        match memory {
            Memory::Buffer(index) => self.parameters.get(index as usize).filter(|p| p.access.is_some()).map(|p| (p.name.as_str(), p.dtype)),
            Memory::Shared(index) => self.shared.get(index as usize).map(|s| (s.name.as_str(), s.dtype)),
        }
    }

    /// The type of an operand of `function`, if it exists.
    pub fn dtype(&self, function: &Function, operand: Operand) -> Option<DType> {
        match operand {
            Operand::Register(r) => function.registers.get(r as usize).map(|r| r.dtype),
            Operand::Parameter(p) => self.parameters.get(p as usize).filter(|p| p.access.is_none()).map(|p| p.dtype),
            Operand::Constant(c) => Some(c.dtype),
        }
    }
}
