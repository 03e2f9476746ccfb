//! The strict dot product: 256 partial sums, then a fixed tree.
//!
//! Accumulator `j` starts at +0.0 and folds the elements `k ≡ j (mod 256)` in ascending order with fma. Accumulators `8l..8l+8` belong to
//! lane `l`: they are summed pairwise, then the 32 lanes by halves (16, 8, 4, 2, 1), which is what an xor shuffle leaves in lane 0.

use super::{operand::Load, simd::Simd};

/// Partial sums of a strict dot product.
pub(crate) const PARTIALS: usize = 256;

/// Bytes of a cache line.
pub(crate) const LINE_BYTES: usize = 64;

/// The partial sums of one dot product, on cache lines of their own.
#[repr(align(64))]
pub(crate) struct Partials(pub(crate) [f32; PARTIALS]);

impl Partials {
    pub(crate) const ZERO: Self = Self([0.0; PARTIALS]);
}

/// Folds `blocks` blocks of 256 elements of a row of weights, which come from memory, with one of `x` into partial sums.
///
/// # Safety
/// `weights` and `x` are valid for reading `256 * blocks` elements.
#[inline(always)]
pub(crate) unsafe fn fold<S: Simd, T: Load>(simd: S, partials: &mut Partials, weights: *const T, x: *const f32, blocks: usize) {
    // All partial sums fit into the registers of AVX-512, half of them elsewhere: there the weights are gone through in tiles that stay in the first cache;
    // eight blocks of f32 and four of 16-bit floats are measured best.
    let tile = if S::LANES * 16 == PARTIALS { blocks.max(1) } else { 2 * size_of::<T>() };
    for first in (0..blocks).step_by(tile) {
        let (at, count) = (first * PARTIALS, tile.min(blocks - first));
        // SAFETY: the caller's promise; the tile is of its blocks.
        unsafe {
            let (weights, x) = (weights.add(at), x.add(at));
            if S::LANES == 16 {
                fold_by::<S, T, 16>(simd, partials, weights, x, count)
            } else {
                fold_by::<S, T, 8>(simd, partials, weights, x, count)
            }
        }
    }
}

/// As [`fold`], by `N` vectors of partial sums at a time.
///
/// # Safety
/// As [`fold`].
#[inline(always)]
unsafe fn fold_by<S: Simd, T: Load, const N: usize>(simd: S, Partials(partials): &mut Partials, weights: *const T, x: *const f32, blocks: usize) {
    for base in (0..PARTIALS).step_by(N * S::LANES) {
        // SAFETY: `N * LANES` divides 256, so every access is inside a block of 256 elements.
        unsafe {
            let mut sums = [simd.splat(0.0); N];
            for i in 0..N {
                sums[i] = simd.load(partials.as_ptr().add(base + i * S::LANES));
            }
            for block in 0..blocks {
                for i in 0..N {
                    let at = block * PARTIALS + base + i * S::LANES;
                    if (i * S::LANES * size_of::<T>()).is_multiple_of(LINE_BYTES) {
                        simd.prefetch_after(weights.add(at));
                    }
                    sums[i] = simd.fma(T::load(simd, weights.add(at)), simd.load(x.add(at)), sums[i]);
                }
            }
            for i in 0..N {
                simd.store(partials.as_mut_ptr().add(base + i * S::LANES), sums[i]);
            }
        }
    }
}

/// Folds the last, incomplete block into the first partial sums.
#[inline(always)]
pub(crate) fn fold_rest<T: Load>(Partials(partials): &mut Partials, weights: &[T], x: &[f32]) {
    for ((partial, w), x) in partials.iter_mut().zip(weights).zip(x) {
        *partial = w.to_f32().mul_add(*x, *partial);
    }
}

/// The fixed tree over the partial sums.
#[inline(always)]
pub(crate) fn tree<S: Simd>(simd: S, Partials(partials): &Partials) -> f32 {
    let mut lanes = [0.0; 32];
    // A vector holds the slots of whole lanes, so eight of them make the lane sums of one.
    for (first, lanes) in lanes.chunks_exact_mut(S::LANES).enumerate() {
        let mut sums = [simd.splat(0.0); 8];
        // SAFETY: eight vectors of slots are `8 * LANES` of the 256 partial sums, and one of lane sums is one chunk.
        unsafe {
            for i in 0..8 {
                sums[i] = simd.load(partials.as_ptr().add((8 * first + i) * S::LANES));
            }
            for i in 0..4 {
                sums[i] = simd.add_pairs(sums[2 * i], sums[2 * i + 1]);
            }
            sums[0] = simd.add_pairs(sums[0], sums[1]);
            sums[1] = simd.add_pairs(sums[2], sums[3]);
            simd.store(lanes.as_mut_ptr(), simd.add_pairs(sums[0], sums[1]));
        }
    }
    for half in [16, 8, 4, 2, 1] {
        for i in 0..half {
            lanes[i] += lanes[i + half];
        }
    }
    lanes[0]
}
