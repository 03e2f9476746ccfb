//! What a straight line is made of.

use elinvar_core::DType;

use super::{lower::Kernel, pieces::Lanes};

/// No value.
pub(super) const NONE: usize = usize::MAX;

/// Lanes that an operation takes.
#[derive(Clone, Copy)]
pub(super) enum Source<'a> {
    /// What an operation before gave.
    Value(usize),
    /// The same number in every lane: its place among those of the line.
    Same(usize),
    /// The same as one element.
    One(usize),
    /// There is no such operand.
    None,
    /// A buffer that nobody writes.
    View(&'a [u8]),
    /// Elements of memory from this one on.
    Memory(u32, u64),
    /// A register's lanes from before, wherever it has its value meanwhile.
    Slot(*const u8),
}

impl Source<'_> {
    pub(super) fn as_one(self) -> Self {
        if let Source::Same(place) = self { Source::One(place) } else { self }
    }
}

/// What an operation does.
#[derive(Clone, Copy)]
pub(super) enum Work {
    Apply {
        kernel: Kernel,
        widen: bool,
        narrow: bool,
    },
    /// Numbers that count up from this one.
    Count(u64),
    /// Elements of memory that the operand names.
    Gather(u32),
}

/// Where its results go.
#[derive(Clone, Copy)]
pub(super) enum Target {
    Value(usize),
    /// Elements of memory from this one on.
    Memory(u32, u64),
}

pub(super) struct Operation<'a> {
    pub(super) work: Work,
    pub(super) from: [Source<'a>; 3],
    /// The types of the operands and the result.
    pub(super) dtypes: [DType; 3],
    pub(super) dtype: DType,
    pub(super) target: Target,
    /// Where the operands and the result are, once that is decided.
    pub(super) lanes: [Lanes; 4],
}

/// A number that is the same in every lane.
pub(super) struct Same {
    pub(super) size: usize,
    pub(super) bits: u64,
    /// The piece of memory that is full of it, if an operation needs that.
    pub(super) tile: usize,
}

/// A value of the line.
pub(super) struct Value {
    /// The register that has it when the line ends.
    pub(super) slot: Option<u32>,
    /// The last operation that takes it.
    pub(super) last: usize,
    /// The piece of memory it lies in.
    pub(super) tile: usize,
}
