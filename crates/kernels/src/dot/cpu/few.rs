//! Few rows: a linear layer while it decodes. Reads the weights once, from memory; everything else stays in the caches.

use super::integers::{Block, GROUP, Row, blocks, quantise_line, room};
use crate::{
    dot::{BLOCK, Side},
    matmul::cpu::{
        level::Level,
        operand::{Matrix, Target, with_values},
        scratch::Scratch,
        simd::{Simd, Work},
    },
    parallel::spread,
};

/// Rows of `x` at most: of more, panels are worth their packing.
pub(super) const MAX_ROWS: usize = 6;

/// Multiplications below which a second thread costs more than it gives.
const SERIAL: usize = 1 << 15;

/// Bytes of weights that are worth a task of their own.
const TASK_BYTES: usize = 1 << 17;

/// Columns that are stored together.
const TOGETHER: usize = 16;

/// Computes `target = x * weights^T` for `x` `[m, k]`, with `m` up to [`MAX_ROWS`], and `weights` `[n, k]` with contiguous rows.
pub(super) fn product(level: Level, (side, x): (Side, Matrix<'_>), (other, weights): (Side, Matrix<'_>), target: &Target<'_>) {
    let (m, k, n) = (x.rows(), x.columns(), weights.rows());
    // Whole groups, those after the end zero.
    let count = k.div_ceil(BLOCK).next_multiple_of(GROUP);
    let (mut integers, mut units) = (room(m * count), Scratch::new(m * count));
    integers.fill(0.0);
    units.fill(0.0);
    for (row, (integers, units)) in blocks(&mut integers).chunks_mut(count.max(1)).zip(units.chunks_mut(count.max(1))).enumerate() {
        level.run(Row { side, matrix: x, row, integers, units });
    }
    let x = Rows { integers: blocks(&mut integers), units: &units, count };
    with_values!(weights.values(), |values| {
        let task = |first: usize, count: usize| level.run(Columns { x, side: other, values, weights, first, count, target });
        if m * n * k <= SERIAL {
            return task(0, n);
        }
        let columns = (TASK_BYTES / (k * size_of_val(&values[0])).max(1)).clamp(1, 256).next_multiple_of(TOGETHER);
        spread(n.div_ceil(columns), 1, &|i| task(i * columns, columns.min(n - i * columns)));
    });
}

/// The rows of `x`, each of `count` blocks.
#[derive(Clone, Copy)]
struct Rows<'a> {
    integers: &'a [[i16; BLOCK]],
    units: &'a [f32],
    count: usize,
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

#[repr(align(64))]
struct Line([[i16; BLOCK]; GROUP]);

impl<T: Block> Work for Columns<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let (m, k) = (self.target.rows(), self.weights.columns());
        let (mut line, mut units) = (Line([[0; BLOCK]; GROUP]), [0.0; GROUP]);
        let end = self.first + self.count;
        for first in (self.first..end).step_by(TOGETHER) {
            let together = TOGETHER.min(end - first);
            let mut sums = [[0.0; TOGETHER]; MAX_ROWS];
            for column in 0..together {
                let weights = if k == 0 { &[] } else { &self.values[self.weights.index(first + column, 0)..][..k] };
                for (group, weights) in weights.chunks(S::LANES * BLOCK).enumerate() {
                    for place in (0..weights.len()).step_by(64 / size_of::<T>()) {
                        simd.prefetch_after(&raw const weights[place]);
                    }
                    let start = group * S::LANES;
                    units.fill(0.0);
                    quantise_line(simd, self.side, weights, &mut line.0, &mut units);
                    for row in 0..m {
                        let at = row * self.x.count + start;
                        let (x, x_units) = (&self.x.integers[at..][..S::LANES], &self.x.units[at..][..S::LANES]);
                        let sum = &mut sums[row][column];
                        *sum = add_blocks(simd, *sum, [x, &line.0[..S::LANES]], [x_units, &units[..S::LANES]]);
                    }
                }
            }
            for (row, sums) in sums.iter_mut().enumerate().take(m) {
                // SAFETY: each task has columns of its own.
                unsafe { self.target.store(row, first, &mut sums[..together]) };
            }
        }
    }
}

/// Adds the values of a vector of blocks to a sum.
#[inline(always)]
fn add_blocks<S: Simd>(simd: S, mut sum: f32, [left, right]: [&[[i16; BLOCK]]; 2], units: [&[f32]; 2]) -> f32 {
    assert!([left.len(), right.len(), units[0].len(), units[1].len()] == [S::LANES; 4]);
    let [mut highs, mut lows] = [[simd.splat(0.0); GROUP]; 2];
    for block in 0..S::LANES {
        let [mut high, mut low] = [simd.zero_integers(); 2];
        for place in (0..BLOCK).step_by(4 * S::LANES) {
            let mut fours = simd.zero_integers();
            for place in [place, place + 2 * S::LANES] {
                // SAFETY: there are so many integers.
                let [left, right] =
                    unsafe { [simd.load_integers(left[block].as_ptr().add(place)), simd.load_integers(right[block].as_ptr().add(place))] };
                fours = simd.add_integers(fours, simd.multiply_pairs(left, right));
            }
            let [h, l] = simd.split_integers(fours);
            (high, low) = (simd.add_integers(high, h), simd.add_integers(low, l));
        }
        (highs[block], lows[block]) = (simd.to_floats(high), simd.to_floats(low));
    }
    let exact = simd.fma(sum_lanes(simd, highs), simd.splat(65536.0), sum_lanes(simd, lows));
    let mut values = [0.0; GROUP];
    // SAFETY: there is a vector in each.
    unsafe {
        let units = simd.multiply(simd.load(units[0].as_ptr()), simd.load(units[1].as_ptr()));
        simd.store(values.as_mut_ptr(), simd.multiply(exact, units));
    }
    for i in 0..S::LANES {
        sum += values[i];
    }
    sum
}

/// The sums of the lanes of as many vectors as there are lanes: integers of less than 24 bits, in any order.
#[inline(always)]
fn sum_lanes<S: Simd>(simd: S, mut vectors: [S::Vector; GROUP]) -> S::Vector {
    for level in 1..=S::LANES.ilog2() {
        for i in 0..S::LANES >> level {
            vectors[i] = simd.add_pairs(vectors[2 * i], vectors[2 * i + 1]);
        }
    }
    vectors[0]
}
