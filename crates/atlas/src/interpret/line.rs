//! What a straight line is made of.

use std::{cell::Cell, mem};

use elinvar_core::DType;

use super::{
    code::Kernel,
    pieces::{ALIAS, Extent, Lanes, PIECE, TILE},
    slot::{Line, lines_of},
};

thread_local! {
    /// Pieces of memory of the lines before on this thread: a small program is over in the time that it takes to get new ones.
    static TILES: Cell<Vec<Line>> = const { Cell::new(Vec::new()) };
}

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

/// A line being made and run. Kept for the next one, for its memory.
pub(super) struct Straight<'a> {
    pub(super) operations: Vec<Operation<'a>>,
    pub(super) values: Vec<Value>,
    /// The value that each register has, if it is one of the line.
    pub(super) current: Vec<usize>,
    /// Numbers that are the same in every lane.
    pub(super) same: Vec<Same>,
    /// Memory for pieces of values, [`TILE`] for each, and the free ones among it.
    pub(super) tiles: Vec<Line>,
    pub(super) free: Vec<usize>,
    /// Lanes of a piece.
    pub(super) piece: usize,
    /// 16-bit floats as f32: three operands and a result.
    pub(super) wide: [Vec<Line>; 4],
}

impl Straight<'_> {
    /// For so many registers, with lanes of at most so many bytes.
    pub(super) fn new(slots: usize, width: usize) -> Self {
        let (operations, values, same, free, wide) = Default::default();
        Self { operations, values, current: vec![NONE; slots], same, tiles: TILES.take(), free, piece: PIECE / width, wide }
    }

    /// Whether it is one operation, which takes no tile and may so run on the whole strip at once.
    pub(super) fn is_whole(&self) -> bool {
        let [operation] = &self.operations[..] else { return false };
        let rounds = matches!(operation.work, Work::Apply { widen, narrow, .. } if widen || narrow);
        !rounds && operation.lanes.iter().all(|lanes| !matches!(lanes.extent, Extent::Piece))
    }

    /// How far into their tiles the values of the piece from lane `first` on lie.
    pub(super) fn shift(&self, first: usize) -> usize {
        let result = self.operations.last().map_or(0, |last| last.lanes[3].start.addr() + first * last.lanes[3].size);
        let away = result.wrapping_sub(self.tiles.as_ptr().addr()).wrapping_add(ALIAS / 2) % ALIAS;
        away / size_of::<Line>() * size_of::<Line>()
    }

    pub(super) fn take_tile(&mut self) -> usize {
        self.free.pop().unwrap_or_else(|| {
            let tiles = self.made();
            self.tiles.append(&mut lines_of(TILE));
            tiles
        })
    }

    /// How many tiles there are.
    pub(super) fn made(&self) -> usize {
        size_of_val(&*self.tiles) / TILE
    }
}

impl Drop for Straight<'_> {
    fn drop(&mut self) {
        TILES.set(mem::take(&mut self.tiles));
    }
}
