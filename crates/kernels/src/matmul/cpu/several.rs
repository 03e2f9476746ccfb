//! `Y = X Wᵀ` for several rows of `X`, with the lanes of the strict dot product side by side.
//!
//! Blocks of 256 elements are transposed by squares, so that each vector has one slot of many lanes: slots are summed without moving elements, and lanes for
//! [`OUTPUTS`] rows of `W` at a time. A row of `W` is transposed once for all rows of `X`.

use std::ops::Range;

use super::{
    dot::{LINE_BYTES, PARTIALS},
    operand::Load,
    simd::Simd,
};

/// Rows of `W` whose lanes are summed together.
pub(super) const OUTPUTS: usize = 16;

/// Slots of a lane.
const SLOTS: usize = 8;

/// Lanes of a dot product.
pub(super) const LANES: usize = PARTIALS / SLOTS;

/// Slots that are summed at a time: a pair of neighbours.
const TOGETHER: usize = 2;

/// What a row of `W` and one of `X` have in memory: the sums of the lanes' lower slots, then those of the upper ones, of each group of lanes in turn.
pub(super) type Halves = [f32; 2 * LANES];

/// In how many parts a transposed row is: of each group of lanes, which are a vector's, the pairs of slots.
pub(super) const fn parts<S: Simd>() -> usize {
    LANES / S::LANES * SLOTS / TOGETHER
}

/// How many of the parts of a transposed row of `k` elements have any: of shorter rows than a block the rest is zero.
pub(super) const fn filled_parts<S: Simd>(k: usize) -> usize {
    squares::<S>(k) * S::LANES / TOGETHER
}

/// Squares of a block with elements of such a row.
const fn squares<S: Simd>(k: usize) -> usize {
    if k < PARTIALS { k.div_ceil(S::LANES * S::LANES) } else { PARTIALS / (S::LANES * S::LANES) }
}

/// Rows of `W` whose products share what is loaded of `X`.
pub(super) const fn shared<S: Simd>() -> usize {
    if S::LANES == 16 { 2 } else { 1 }
}

/// Transposes a row, widened and filled up to whole blocks by `padding`: of `W` by +0.0, of `X` by −0.0, whose product changes no accumulator. It becomes
/// [`parts`], one after the other, each with the vectors of its slots block by block; those that are not filled keep what they had.
#[inline(always)]
pub(super) fn transpose<S: Simd, T: Load>(simd: S, row: &[T], padding: f32, to: &mut [f32]) {
    let squares = squares::<S>(row.len());
    for block in 0..to.len() / PARTIALS {
        let rest = &row[(block * PARTIALS).min(row.len())..];
        let whole = squares.min(rest.len() / (S::LANES * S::LANES));
        transpose_squares(simd, rest, 0..whole, block, to);
        if whole < squares {
            let mut filled = [padding; PARTIALS];
            filled.iter_mut().zip(rest).for_each(|(to, value)| *to = value.to_f32());
            transpose_squares(simd, &filled, whole..squares, block, to);
        }
    }
}

/// Transposes some squares of a block.
#[inline(always)]
fn transpose_squares<S: Simd, T: Load>(simd: S, from: &[T], squares: Range<usize>, block: usize, to: &mut [f32]) {
    let (part, vectors_of_part) = (to.len() / parts::<S>(), TOGETHER * S::LANES);
    assert!(part * parts::<S>() == to.len() && (block + 1) * vectors_of_part <= part);
    assert!(squares.end <= PARTIALS / (S::LANES * S::LANES) && squares.end * S::LANES * S::LANES <= from.len());
    for square in squares {
        let mut vectors = [simd.splat(0.0); 16];
        // SAFETY: there are such squares, and each part has room for the vectors of this block.
        unsafe {
            for i in 0..S::LANES {
                let at = (square * S::LANES + i) * S::LANES;
                if (at * size_of::<T>()).is_multiple_of(LINE_BYTES) {
                    simd.prefetch_after(from.as_ptr().add(at));
                }
                vectors[i] = T::load(simd, from.as_ptr().add(at));
            }
            simd.transpose(&mut vectors[..S::LANES]);
            for i in 0..S::LANES {
                let slot = square * S::LANES + i;
                let at = slot / TOGETHER * part + block * vectors_of_part + slot % TOGETHER * S::LANES;
                simd.store(to.as_mut_ptr().add(at), vectors[i]);
            }
        }
    }
}

/// Sums part `number` of some transposed rows of `W`, which begin at `weights`, with the same of some of `X`, into the halves of each pair. Parts come in
/// order.
///
/// # Safety
/// Each of `weights` and `x` is valid for reading a part of `blocks` blocks, each of `to` for writing [`Halves`].
#[inline(always)]
pub(super) unsafe fn fold<S: Simd, const COUNT: usize, const SHARED: usize>(
    simd: S,
    number: usize,
    weights: [*const f32; SHARED],
    x: [*const f32; COUNT],
    blocks: usize,
    to: [[*mut f32; SHARED]; COUNT],
) {
    let mut sums = [[[simd.splat(0.0); TOGETHER]; SHARED]; COUNT];
    for block in 0..blocks {
        for slot in 0..TOGETHER {
            let at = (block * TOGETHER + slot) * S::LANES;
            // SAFETY: the caller's promise.
            unsafe {
                let mut w = [simd.splat(0.0); SHARED];
                for output in 0..SHARED {
                    w[output] = simd.load(weights[output].add(at));
                }
                for row in 0..COUNT {
                    let x = simd.load(x[row].add(at));
                    for output in 0..SHARED {
                        sums[row][output][slot] = simd.fma(w[output], x, sums[row][output][slot]);
                    }
                }
            }
        }
    }
    for row in 0..COUNT {
        for output in 0..SHARED {
            let [a, b] = sums[row][output];
            let mut sum = simd.add(a, b);
            // SAFETY: the caller's promise; a half is of two pairs.
            unsafe {
                let to = to[row][output].add(number / 2 * S::LANES);
                if number % 2 == 1 {
                    sum = simd.add(simd.load(to), sum);
                }
                simd.store(to, sum);
            }
        }
    }
}

/// The sums over lanes of as many outputs.
#[inline(always)]
pub(super) fn sum_lanes<S: Simd>(simd: S, outputs: &[Halves; OUTPUTS]) -> [f32; OUTPUTS] {
    let mut sums = [0.0; OUTPUTS];
    for first in (0..OUTPUTS).step_by(S::LANES) {
        let (mut vectors, mut others) = ([simd.splat(0.0); 16], [simd.splat(0.0); 16]);
        // SAFETY: halves of groups of lanes, and as many outputs, are a vector's elements.
        unsafe {
            for i in 0..S::LANES {
                let mut groups = [simd.splat(0.0); 4];
                for group in 0..LANES / S::LANES {
                    let from = outputs[first + i].as_ptr().add(2 * group * S::LANES);
                    groups[group] = simd.add(simd.load(from), simd.load(from.add(S::LANES)));
                }
                let [a, b, c, d] = groups;
                if S::LANES == OUTPUTS {
                    // Every other lane.
                    (vectors[i], others[i]) = (a, b);
                } else {
                    vectors[i] = simd.add(simd.add(a, c), simd.add(b, d));
                }
            }
            let mut total = across(simd, &mut vectors);
            if S::LANES == OUTPUTS {
                total = simd.add(total, across(simd, &mut others));
            }
            simd.store(sums.as_mut_ptr().add(first), total);
        }
    }
    sums
}

/// The sums of as many vectors' elements, by halves.
#[inline(always)]
fn across<S: Simd>(simd: S, vectors: &mut [S::Vector; 16]) -> S::Vector {
    simd.transpose(&mut vectors[..S::LANES]);
    let mut count = S::LANES / 2;
    while count > 0 {
        for i in 0..count {
            vectors[i] = simd.add(vectors[i], vectors[i + count]);
        }
        count /= 2;
    }
    vectors[0]
}
