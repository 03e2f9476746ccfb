//! Programs as data: types, registers, instructions.

use elinvar_core::{Access, DType};

/// A typed virtual register of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Register {
    /// Its name, unique in its function.
    pub name: String,
    /// What it holds.
    pub dtype: DType,
}

/// A value known when the program is written, as the bits of its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Constant {
    /// Its type.
    pub dtype: DType,
    /// Its bits, those of narrower types in the low ones and the others zero.
    pub bits: u64,
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
    /// How many it has.
    pub length: u32,
}

/// Memory that is loaded from and stored to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Memory {
    /// A buffer, by its number among the parameters.
    Buffer(u32),
    /// A shared array, by number.
    Shared(u32),
}

macro_rules! operations {
    ($(#[$doc:meta])* $vis:vis enum $name:ident { $($(#[$variant_doc:meta])* $variant:ident $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        $vis enum $name { $($(#[$variant_doc])* $variant,)* }

        impl $name {
            /// All of them.
            pub const ALL: &[$name] = &[$($name::$variant,)*];

            /// Its name in the text form.
            pub const fn name(self) -> &'static str {
                match self { $($name::$variant => $text,)* }
            }

            /// The one of that name.
            pub fn of_name(name: &str) -> Option<Self> {
                match name { $($text => Some($name::$variant),)* _ => None }
            }
        }
    };
}

operations! {
    /// Functions of one value.
    pub enum Unary {
        /// `-a`; integers wrap.
        Neg "neg",
        /// The magnitude; the least integer is its own.
        Abs "abs",
        /// Every bit inverted; of a bool, its opposite.
        Not "not",
        /// How many bits are one.
        Popcount "popcount",
        /// Towards -∞.
        Floor "floor",
        /// Towards +∞.
        Ceil "ceil",
        /// Towards zero.
        Trunc "trunc",
        /// To the nearest integer, halves to the even one.
        Round "round",
        /// Square root, correctly rounded.
        Sqrt "sqrt",
        /// `1/√a`, both operations rounded.
        Rsqrt "rsqrt",
        /// `e^a`.
        Exp "exp",
        /// `2^a`.
        Exp2 "exp2",
        /// Natural logarithm.
        Log "log",
        /// Logarithm to base 2.
        Log2 "log2",
        /// Logarithm to base 10: `log2(a) · log10(2)`, both rounded.
        Log10 "log10",
        /// Sine.
        Sin "sin",
        /// Cosine.
        Cos "cos",
        /// Tangent.
        Tan "tan",
        /// Hyperbolic tangent.
        Tanh "tanh",
        /// `1 / (1 + e^-a)`.
        Sigmoid "sigmoid",
        /// `a · sigmoid(a)`.
        Silu "silu",
        /// Error function.
        Erf "erf",
    }
}

operations! {
    /// Functions of two values of one type.
    pub enum Binary {
        /// `a + b`; integers wrap.
        Add "add",
        /// `a - b`; integers wrap.
        Sub "sub",
        /// `a · b`; integers wrap.
        Mul "mul",
        /// `a / b`; integers towards zero, by zero zero, the least by -1 itself.
        Div "div",
        /// `a - b · trunc(a / b)`; of integers by zero `a`; of floats `fma(-trunc(a / b), b, a)`.
        Rem "rem",
        /// The smaller; NaN if either is.
        Min "min",
        /// The larger; NaN if either is.
        Max "max",
        /// `a^b`.
        Pow "pow",
        /// Bits that both have.
        And "and",
        /// Bits that either has.
        Or "or",
        /// Bits that differ.
        Xor "xor",
        /// Left by `b` modulo the width.
        Shl "shl",
        /// Right by `b` modulo the width, copying the sign of signed types.
        Shr "shr",
    }
}

operations! {
    /// Functions of three values of one type.
    pub enum Ternary {
        /// `a · b + c`, rounded once (halves: once in f32, once to the half).
        Fma "fma",
        /// `a · b + c`, each operation by itself; integers wrap.
        Mad "mad",
    }
}

operations! {
    /// Comparisons. Only `ne` holds when an operand is NaN.
    pub enum Compare {
        /// Equal.
        Eq "eq",
        /// Not equal.
        Ne "ne",
        /// Less.
        Lt "lt",
        /// Less or equal.
        Le "le",
        /// Greater.
        Gt "gt",
        /// Greater or equal.
        Ge "ge",
    }
}

operations! {
    /// Where a thread is, and how much there is of it; all u32.
    pub enum Position {
        /// The thread in the grid, along x.
        GlobalX "position.x",
        /// … along y.
        GlobalY "position.y",
        /// … along z.
        GlobalZ "position.z",
        /// The thread in its block, along x.
        LocalX "local.x",
        /// … along y.
        LocalY "local.y",
        /// … along z.
        LocalZ "local.z",
        /// The block in the grid, along x.
        BlockX "block.x",
        /// … along y.
        BlockY "block.y",
        /// … along z.
        BlockZ "block.z",
        /// Threads of a block along x.
        BlockSizeX "block_size.x",
        /// … along y.
        BlockSizeY "block_size.y",
        /// … along z.
        BlockSizeZ "block_size.z",
        /// Blocks of the grid along x.
        GridSizeX "grid_size.x",
        /// … along y.
        GridSizeY "grid_size.y",
        /// … along z.
        GridSizeZ "grid_size.z",
        /// The thread in its block, x fastest.
        LocalIndex "local_index",
        /// The thread in its simdgroup: 0 to 31.
        Lane "lane",
        /// The simdgroup in its block.
        Simdgroup "simdgroup",
    }
}

operations! {
    /// Who takes part in a reduction.
    pub enum Scope {
        /// The 32 threads of a simdgroup.
        Simd "simd",
        /// The threads of a block.
        Group "group",
    }
}

operations! {
    /// Where a shuffle's value comes from.
    pub enum Shuffle {
        /// The lane of that number, modulo 32.
        Index "simd_shuffle",
        /// The lane whose number is this one's xor the operand, modulo 32.
        Xor "simd_shuffle_xor",
        /// So many lanes below; the lane itself where there is none.
        Up "simd_shuffle_up",
        /// So many lanes above; the lane itself where there is none.
        Down "simd_shuffle_down",
    }
}

operations! {
    /// What an atomic does with an element; it gives the element's old value.
    pub enum Atomic {
        /// Adds.
        Add "atomic_add",
        /// The smaller.
        Min "atomic_min",
        /// The larger.
        Max "atomic_max",
        /// Bits that both have.
        And "atomic_and",
        /// Bits that either has.
        Or "atomic_or",
        /// Bits that differ.
        Xor "atomic_xor",
        /// The value takes the element's place.
        Exchange "atomic_exchange",
    }
}

operations! {
    /// What a load or store outside its buffer does.
    #[derive(Default)]
    pub enum Bounds {
        #[default]
        /// Loads give zero, stores are dropped, atomics give zero and change nothing.
        Checked "checked",
        /// The launch fails and names the instruction; on devices that can tell.
        Trap "trap",
        /// Undefined on GPUs; as `checked` on the CPU.
        Unchecked "unchecked",
    }
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
    /// Where each instruction is written; empty for programs that were not read from text.
    pub locations: Vec<Location>,
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
}

/// How many threads run a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchConfig {
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
}

impl LaunchConfig {
    /// At least `n` threads along x in blocks of `block`.
    pub fn linear(n: u64, block: u32) -> Self {
        let blocks = n.div_ceil(u64::from(block.max(1)));
        Self { grid: [u32::try_from(blocks).unwrap_or(u32::MAX), 1, 1], block: [block, 1, 1] }
    }

    /// Threads of a block.
    pub fn threads(&self) -> u128 {
        self.block.iter().map(|&n| u128::from(n)).product()
    }
}

impl Constant {
    /// A truth value.
    pub const fn bool(value: bool) -> Self {
        Self { dtype: DType::Bool, bits: value as u64 }
    }

    /// A u32.
    pub const fn u32(value: u32) -> Self {
        Self { dtype: DType::U32, bits: value as u64 }
    }

    /// An i32.
    pub const fn i32(value: i32) -> Self {
        Self { dtype: DType::I32, bits: value as u32 as u64 }
    }

    /// An f32.
    pub const fn f32(value: f32) -> Self {
        Self { dtype: DType::F32, bits: value.to_bits() as u64 }
    }

    /// An integer of any integer type, if it is one of its values.
    pub fn integer(dtype: DType, value: i128) -> Option<Self> {
        let width = 8 * dtype.size() as u32;
        let (low, high) = if is_signed(dtype) { (-(1i128 << (width - 1)), (1i128 << (width - 1)) - 1) } else { (0, (1i128 << width) - 1) };
        let mask = if width == 64 { u64::MAX } else { (1 << width) - 1 };
        (dtype.is_integer() && (low..=high).contains(&value)).then_some(Self { dtype, bits: value as u64 & mask })
    }

    /// The nearest value of a floating-point type.
    pub fn float(dtype: DType, value: f32) -> Self {
        let bits = match dtype {
            DType::F16 => u64::from(half::f16::from_f32(value).to_bits()),
            DType::BF16 => u64::from(half::bf16::from_f32(value).to_bits()),
            _ => u64::from(value.to_bits()),
        };
        if value.is_nan() { Self { dtype, bits: nan_bits(dtype) } } else { Self { dtype, bits } }
    }

    /// The value of a constant of floating-point type.
    pub fn as_f32(self) -> f32 {
        match self.dtype {
            DType::F16 => half::f16::from_bits(self.bits as u16).to_f32(),
            DType::BF16 => half::bf16::from_bits(self.bits as u16).to_f32(),
            _ => f32::from_bits(self.bits as u32),
        }
    }

    /// The value of a constant of integer type.
    pub fn as_integer(self) -> i128 {
        let shift = 64 - 8 * self.dtype.size() as u32;
        if is_signed(self.dtype) { i128::from(((self.bits << shift) as i64) >> shift) } else { i128::from(self.bits) }
    }

    /// Whether the bits are a value of the type; there is one NaN.
    pub fn is_valid(self) -> bool {
        let width = 8 * self.dtype.size() as u32;
        match self.dtype {
            DType::Bool => self.bits <= 1,
            _ if width < 64 && self.bits >> width != 0 => false,
            d if d.is_float() => !self.as_f32().is_nan() || self.bits == nan_bits(d),
            _ => true,
        }
    }
}

/// The bits of the NaN that constants have.
fn nan_bits(dtype: DType) -> u64 {
    match dtype {
        DType::F16 => 0x7e00,
        DType::BF16 => 0x7fc0,
        _ => 0x7fc0_0000,
    }
}

/// Whether it is a signed integer type.
pub const fn is_signed(dtype: DType) -> bool {
    matches!(dtype, DType::I8 | DType::I16 | DType::I32 | DType::I64)
}

impl Instruction {
    /// The register it assigns.
    pub fn target(&self) -> Option<u32> {
        use Instruction as I;
        match *self {
            I::Unary { to, .. } | I::Binary { to, .. } | I::Ternary { to, .. } | I::Compare { to, .. } | I::Select { to, .. } => Some(to),
            I::Convert { to, .. } | I::Move { to, .. } | I::Position { to, .. } | I::Load { to, .. } | I::Reduce { to, .. } => Some(to),
            I::Shuffle { to, .. } | I::Call { to, .. } => Some(to),
            I::Atomic { to, .. } | I::CompareExchange { to, .. } => to,
            I::Store { .. } | I::Barrier | I::If { .. } | I::Else | I::Loop { .. } | I::While { .. } => None,
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
            I::Position { .. } | I::Barrier | I::Call { .. } | I::Else | I::Loop { .. } => [None; 3],
            I::Break | I::Continue | I::End | I::Exit => [None; 3],
        };
        let called = match *self {
            I::Call { arguments: (first, count), .. } => arguments.get(first as usize..).and_then(|rest| rest.get(..count as usize)).unwrap_or(&[]),
            _ => &[],
        };
        three.into_iter().flatten().chain(called.iter().copied())
    }
}

impl Program {
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
