//! Few rows: a linear layer while it decodes. Reads the weights once, from memory; everything else stays in the caches.

use super::integers::{Block, Exact, MAX_LANES, Rounding, Row, Sum, TOGETHER, Units, blocks, filled, fold_lanes, room};
use crate::{
    dot::{BLOCK, Side},
    matmul::cpu::{
        level::Level,
        operand::{Matrix, Target, with_values},
        scratch::Scratch,
        simd::{Simd, Work},
    },
    parallel::spread_weights,
};

/// Rows of `x` at most: their sums fit the registers, and of more, panels are worth their packing.
pub(super) const MAX_ROWS: usize = 4;

/// Columns that are stored together.
const STORED: usize = 16;

/// Computes `target = x * weights^T` for `x` `[m, k]`, with `m` up to [`MAX_ROWS`], and `weights` `[n, k]` with contiguous rows.
pub(super) fn product(level: Level, (side, x): (Side, Matrix<'_>), (other, weights): (Side, Matrix<'_>), target: &Target<'_>) {
    let (m, k, n) = (x.rows(), x.columns(), weights.rows());
    let count = k.div_ceil(BLOCK);
    // Units are read by vectors.
    let stride = count + MAX_LANES;
    let (mut integers, mut units) = (room(m * count), Scratch::new(m * stride));
    units.fill(0.0);
    for (row, (integers, units)) in blocks(&mut integers).chunks_mut(count.max(1)).zip(units.chunks_mut(stride)).enumerate() {
        level.run(Row { side, matrix: x, row, integers, units });
    }
    let x = Rows { integers: blocks(&mut integers), units: &units, count };
    with_values!(weights.values(), |values| {
        let task = |first: usize, count: usize| level.run(Columns { x, side: other, values, weights, first, count, target });
        spread_weights([n, k * values.first().map_or(0, size_of_val), STORED], m * n * k, &task);
    });
}

/// The rows of `x`, each of `count` blocks.
#[derive(Clone, Copy)]
struct Rows<'a> {
    integers: &'a [[i16; BLOCK]],
    units: &'a [f32],
    count: usize,
}

impl Rows<'_> {
    fn integers(&self, row: usize, start: usize, count: usize) -> &[[i16; BLOCK]] {
        &self.integers[row * self.count + start..][..count]
    }

    fn units<S: Simd>(&self, row: usize, start: usize) -> &[f32] {
        &self.units[row * (self.count + MAX_LANES) + start..][..S::LANES]
    }
}

/// The products of `count` rows of the weights.
struct Columns<'a, T> {
    x: Rows<'a>,
    side: Side,
    values: &'a [T],
    weights: Matrix<'a>,
    first: usize,
    count: usize,
    target: &'a Target<'a>,
}

impl<T: Block> Work for Columns<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        match self.target.rows() {
            1 => self.columns::<S, 1>(simd),
            2 => self.columns::<S, 2>(simd),
            3 => self.columns::<S, 3>(simd),
            _ => self.columns::<S, MAX_ROWS>(simd),
        }
    }
}

impl<T: Block> Columns<'_, T> {
    #[inline(always)]
    fn columns<S: Simd, const ROWS: usize>(&self, simd: S) {
        let (k, end) = (self.weights.columns(), self.first + self.count);
        let mut lanes = [Exact { sums: [simd.zero_integers(); MAX_LANES], uppers: [simd.zero_integers(); MAX_LANES] }; ROWS];
        for first in (self.first..end).step_by(STORED) {
            let together = STORED.min(end - first);
            let mut sums = [[0.0; STORED]; ROWS];
            for column in 0..together {
                let (whole, rest) = if k == 0 { (&[][..], &[][..]) } else { self.values[self.weights.index(first + column, 0)..][..k].as_chunks() };
                let mut added = [0.0; ROWS];
                for (span, blocks) in whole.chunks(TOGETHER).enumerate() {
                    self.add(simd, blocks, span * TOGETHER, &mut lanes, &mut added);
                }
                if !rest.is_empty() {
                    self.add(simd, &[filled(rest)], whole.len(), &mut lanes, &mut added);
                }
                for row in 0..ROWS {
                    sums[row][column] = added[row];
                }
            }
            for (row, sums) in sums.iter_mut().enumerate() {
                // SAFETY: each task has columns of its own.
                unsafe { self.target.store(row, first, &mut sums[..together]) };
            }
        }
    }

    /// Adds the products with up to [`TOGETHER`] blocks, of which the first is block `start`. `lanes` is room for the sums of each.
    #[inline(always)]
    fn add<S: Simd, const ROWS: usize>(
        &self,
        simd: S,
        blocks: &[[T; BLOCK]],
        start: usize,
        lanes: &mut [Exact<[S::Integers; MAX_LANES]>; ROWS],
        sums: &mut [f32; ROWS],
    ) {
        let of = Units::new(simd, self.side, blocks);
        for (group, blocks) in blocks.chunks(S::LANES).enumerate() {
            let first = group * S::LANES;
            let mut x = [&[][..]; ROWS];
            for row in 0..ROWS {
                x[row] = self.x.integers(row, start + first, blocks.len());
            }
            for (number, block) in blocks.iter().enumerate() {
                for place in (0..BLOCK).step_by(64 / size_of::<T>()) {
                    simd.prefetch_after(&raw const block[place]);
                }
                let exact = products(simd, of.rounding(simd, self.side, first + number), block, x, number);
                for row in 0..ROWS {
                    (lanes[row].sums[number], lanes[row].uppers[number]) = (exact[row].sums, exact[row].uppers);
                }
            }
            for row in 0..ROWS {
                let exact = Exact { sums: fold_lanes::<S, Sum>(simd, &lanes[row].sums), uppers: fold_lanes::<S, Sum>(simd, &lanes[row].uppers) };
                let mut values = [0.0; MAX_LANES];
                // SAFETY: there is a vector in each.
                unsafe {
                    let units = simd.multiply(simd.load(self.x.units::<S>(row, start + first).as_ptr()), simd.load(&raw const of.units[first]));
                    simd.store(values.as_mut_ptr(), simd.multiply(exact.rounded(simd), units));
                }
                for value in &values[..blocks.len()] {
                    sums[row] += value;
                }
            }
        }
    }
}

/// The products of a block and block `number` of each of the rows, lane by lane.
#[inline(always)]
fn products<S: Simd, T: Block, const ROWS: usize>(
    simd: S,
    rounding: Rounding<S::Vector>,
    block: &[T; BLOCK],
    x: [&[[i16; BLOCK]]; ROWS],
    number: usize,
) -> [Exact<S::Integers>; ROWS] {
    let mut exact = [Exact::zero(simd); ROWS];
    for place in (0..BLOCK).step_by(4 * S::LANES) {
        let places = [place, place + 2 * S::LANES];
        // SAFETY: there are so many elements.
        let words = unsafe { [rounding.words(simd, &raw const block[places[0]]), rounding.words(simd, &raw const block[places[1]])] };
        for row in 0..ROWS {
            // SAFETY: there are so many integers.
            let x = unsafe { [simd.load_integers(&raw const x[row][number][places[0]]), simd.load_integers(&raw const x[row][number][places[1]])] };
            exact[row].add(simd, simd.add_integers(simd.multiply_pairs(words[0], x[0]), simd.multiply_pairs(words[1], x[1])));
        }
    }
    exact
}
