//! The strict dot product: 256 partial sums, then a fixed tree.
//!
//! Accumulator `j` starts at +0.0 and folds the elements `k ≡ j (mod 256)` in ascending order with fma. Accumulators `8l..8l+8` belong to
//! lane `l`: they are summed pairwise, then the 32 lanes by halves (16, 8, 4, 2, 1), which is what an xor shuffle leaves in lane 0.

use super::{operand::Load, simd::Simd};

/// Partial sums of a strict dot product.
pub(crate) const PARTIALS: usize = 256;

/// The partial sums of one dot product, on cache lines of their own.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(crate) struct Partials(pub(crate) [f32; PARTIALS]);

impl Partials {
    pub(crate) const ZERO: Self = Self([0.0; PARTIALS]);
}

/// Folds `blocks` blocks of 256 elements into the partial sums.
///
/// # Safety
/// `weights` and `x` are valid for reading `256 * blocks` elements.
#[inline(always)]
pub(crate) unsafe fn fold<S: Simd, T: Load>(simd: S, Partials(partials): &mut Partials, weights: *const T, x: *const f32, blocks: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        if S::LANES == 16 { fold_by::<S, T, 16>(simd, partials, weights, x, blocks) } else { fold_by::<S, T, 8>(simd, partials, weights, x, blocks) }
    }
}

/// # Safety
/// As [`fold`].
#[inline(always)]
unsafe fn fold_by<S: Simd, T: Load, const N: usize>(simd: S, partials: &mut [f32; PARTIALS], weights: *const T, x: *const f32, blocks: usize) {
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
pub(crate) fn tree(Partials(partials): &Partials) -> f32 {
    let pairs: [f32; 128] = std::array::from_fn(|i| partials[2 * i] + partials[2 * i + 1]);
    let quads: [f32; 64] = std::array::from_fn(|i| pairs[2 * i] + pairs[2 * i + 1]);
    let mut lanes: [f32; 32] = std::array::from_fn(|i| quads[2 * i] + quads[2 * i + 1]);
    for half in [16, 8, 4, 2, 1] {
        for i in 0..half {
            lanes[i] += lanes[i + half];
        }
    }
    lanes[0]
}
