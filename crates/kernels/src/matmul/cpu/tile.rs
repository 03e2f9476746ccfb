//! The register tile: `ROWS x COLUMNS` sums by outer products of packed panels, in the order of a [`Plan`].

use std::ops::Range;

use super::{
    level::Level,
    plan::{LEVELS, LOW_LEVELS, Plan, Slab, Step},
    scratch::{LINE, Scratch},
    simd::{Simd, Work},
};
use crate::simd::prefetch;

/// Columns of the widest tile.
pub(crate) const MAX_RIGHT: usize = 32;

/// Elements of the largest tile.
pub(crate) const MAX_ELEMENTS: usize = 14 * MAX_RIGHT;

type Sums = [f32; MAX_ELEMENTS];

/// The lower levels of the stack, which are empty between slabs.
pub(crate) type LowStack = [Sums; LOW_LEVELS];

/// The upper levels of a tile's stack; the last is the result.
pub(crate) type HighStack = [Sums; LEVELS - LOW_LEVELS];

/// For merging with sums of no elements.
static ZERO: Sums = [0.0; MAX_ELEMENTS];

/// Memory for stacks, or some levels of them. A level is written before it is read.
pub(crate) fn room<const COUNT: usize>(stacks: usize) -> Scratch {
    Scratch::new(stacks * COUNT * MAX_ELEMENTS)
}

/// The stacks in such memory.
pub(crate) fn stacks<const COUNT: usize>(room: &mut Scratch) -> &mut [[Sums; COUNT]] {
    room.as_chunks_mut().0.as_chunks_mut().0
}

/// The finished sums, row-major.
pub(crate) fn result(stack: &mut HighStack) -> &mut Sums {
    &mut stack[LEVELS - LOW_LEVELS - 1]
}

/// Elements of k ahead of which a tile fetches its panels: the right one comes from the second-level cache, the left one from beyond.
const RIGHT_AHEAD: usize = 8;
const LEFT_AHEAD: usize = 16;

/// The shape of a register tile.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Rows of the tile.
    pub(crate) rows: usize,
    /// Rows of a packed panel of the left operand: `rows`, rounded up to whole vectors.
    pub(crate) left: usize,
    /// Columns of the tile and rows of a packed panel of the right operand.
    pub(crate) right: usize,
}

impl Shape {
    /// The shape for a product of `m` rows: as many as the registers hold, fewer where that leaves fewer rows of the last tile unused; and of `n` columns:
    /// two vectors, or one if that is enough.
    pub(crate) fn of(level: Level, [m, n]: [usize; 2]) -> Self {
        let (most, vector) = match level {
            #[cfg(target_arch = "x86_64")]
            Level::Avx512(_) => (14, 16),
            #[cfg(target_arch = "x86_64")]
            Level::Avx2(_) => (6, 8),
            Level::Portable(_) => (4, 8),
        };
        let rows = m.div_ceil(m.div_ceil(most).max(1)).next_multiple_of(2).clamp(2, most);
        Self { rows, left: rows.next_multiple_of(vector), right: if n > vector { 2 * vector } else { vector } }
    }
}

/// An operand's part of a tile: element `k` of row `r` is `values[r * row + k * step]`. Rows of a packed panel are neighbours (`row` is one), and so are those
/// of every right operand.
#[derive(Clone, Copy)]
pub(crate) struct Side<'a> {
    pub(crate) values: &'a [f32],
    pub(crate) row: usize,
    pub(crate) step: usize,
}

impl<'a> Side<'a> {
    /// From position `start` on, with a check that `rows` rows of `length` elements are there.
    fn part(self, start: usize, length: usize, rows: usize) -> Self {
        let values: &'a [f32] = if length == 0 { &[] } else { &self.values[start * self.step..] };
        assert!(length == 0 || values.len() > (length - 1) * self.step + (rows - 1) * self.row);
        Self { values, ..self }
    }
}

/// A slab of a left and a right operand, to be summed onto a stack.
pub(crate) struct Tile<'a> {
    rows: usize,
    columns: usize,
    steps: &'a [Step],
    left: Side<'a>,
    right: Side<'a>,
    low: &'a mut LowStack,
    high: &'a mut HighStack,
}

impl Work for Tile<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        if self.left.row == 1 { self.sum_columns::<S, Fma, true>(simd) } else { self.sum_columns::<S, Fma, false>(simd) }
    }
}

/// How a tile multiplies elements of the panels and adds the products to its sums.
pub(crate) trait Multiply<S: Simd> {
    fn add_product(simd: S, a: S::Vector, b: S::Vector, sum: S::Vector) -> S::Vector;
}

/// f32 by f32.
struct Fma;

impl<S: Simd> Multiply<S> for Fma {
    #[inline(always)]
    fn add_product(simd: S, a: S::Vector, b: S::Vector, sum: S::Vector) -> S::Vector {
        simd.fma(a, b, sum)
    }
}

impl<'a> Tile<'a> {
    pub(crate) fn new(
        shape: Shape,
        plan: &'a Plan,
        slab: &Slab,
        [left, right]: [Side<'a>; 2],
        low: &'a mut LowStack,
        high: &'a mut HighStack,
    ) -> Self {
        let Range { start, end } = slab.positions;
        let (left, right) = (left.part(start, end - start, shape.rows), right.part(start, end - start, shape.right));
        Self { rows: shape.rows, columns: shape.right, steps: plan.steps(slab), left, right, low, high }
    }
}

impl Tile<'_> {
    /// The shapes of `Shape::of`, as constants.
    #[inline(always)]
    pub(crate) fn sum_columns<S: Simd, M: Multiply<S>, const PACKED: bool>(self, simd: S) {
        if self.columns == S::LANES { self.sum_rows::<S, M, PACKED, 1>(simd) } else { self.sum_rows::<S, M, PACKED, 2>(simd) }
    }

    #[inline(always)]
    fn sum_rows<S: Simd, M: Multiply<S>, const PACKED: bool, const VECTORS: usize>(self, simd: S) {
        match (self.rows, S::LANES) {
            (2, _) => self.sum::<S, M, 2, PACKED, VECTORS>(simd),
            (4, _) => self.sum::<S, M, 4, PACKED, VECTORS>(simd),
            (6, _) if !S::PORTABLE => self.sum::<S, M, 6, PACKED, VECTORS>(simd),
            (8, 16) => self.sum::<S, M, 8, PACKED, VECTORS>(simd),
            (10, 16) => self.sum::<S, M, 10, PACKED, VECTORS>(simd),
            (12, 16) => self.sum::<S, M, 12, PACKED, VECTORS>(simd),
            (14, 16) => self.sum::<S, M, 14, PACKED, VECTORS>(simd),
            _ => {}
        }
    }

    #[inline(always)]
    fn level(&mut self, level: u8) -> &mut Sums {
        let level = usize::from(level);
        if level < LOW_LEVELS { &mut self.low[level] } else { &mut self.high[level - LOW_LEVELS] }
    }

    #[inline(always)]
    fn sum<S: Simd, M: Multiply<S>, const ROWS: usize, const PACKED: bool, const VECTORS: usize>(mut self, simd: S) {
        let (mut left, mut right) = (self.left.values.as_ptr(), self.right.values.as_ptr());
        let (left_step, right_step, apart) = (self.left.step, self.right.step, if PACKED { 1 } else { self.left.row });
        for step in self.steps {
            let mut sums = [[simd.splat(0.0); VECTORS]; ROWS];
            for _ in 0..step.run {
                prefetch(left.wrapping_add(LEFT_AHEAD * left_step));
                for line in (0..VECTORS * S::LANES).step_by(LINE) {
                    prefetch(right.wrapping_add(RIGHT_AHEAD * right_step + line));
                }
                // SAFETY: `new` saw `ROWS` rows of the left and `VECTORS * LANES` of the right operand with as many elements as the runs of the slab have together.
                unsafe {
                    let columns: [_; VECTORS] = std::array::from_fn(|i| simd.load(right.add(i * S::LANES)));
                    for row in 0..ROWS {
                        let value = simd.splat(*left.add(row * apart));
                        for (sum, column) in sums[row].iter_mut().zip(columns) {
                            *sum = M::add_product(simd, value, column, *sum);
                        }
                    }
                }
                left = left.wrapping_add(left_step);
                right = right.wrapping_add(right_step);
            }
            for level in step.from..step.from + step.merges {
                let empty = u16::from(step.empty) >> level & 1 == 1;
                let earlier = if empty { &ZERO } else { &*self.level(level) }.as_ptr();
                for row in 0..ROWS {
                    for half in 0..VECTORS {
                        // SAFETY: a tile has at most `MAX_ELEMENTS` elements.
                        let earlier = unsafe { simd.load(earlier.add((VECTORS * row + half) * S::LANES)) };
                        sums[row][half] = simd.add(earlier, sums[row][half]);
                    }
                }
            }
            let target = self.level(step.level).as_mut_ptr();
            for row in 0..ROWS {
                for half in 0..VECTORS {
                    // SAFETY: as above.
                    unsafe { simd.store(target.add((VECTORS * row + half) * S::LANES), sums[row][half]) };
                }
            }
        }
    }
}
