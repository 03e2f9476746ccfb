//! The tree over a simdgroup's accumulators by vector shuffles, which the compiler does not find by itself.

use std::arch::x86_64::{
    __m256, __m512, _mm_add_ps, _mm_add_ss, _mm_cvtss_f32, _mm_movehdup_ps, _mm_movehl_ps, _mm256_add_ps, _mm256_castps256_ps128,
    _mm256_extractf128_ps, _mm256_loadu_ps, _mm256_permute_ps, _mm256_permute2f128_ps, _mm256_shuffle_ps, _mm512_add_ps, _mm512_castps512_ps256,
    _mm512_extractf32x8_ps, _mm512_load_ps, _mm512_shuffle_f32x4, _mm512_shuffle_ps,
};

use super::layout::Accumulators;

/// Elements of a vector: two lanes of eight slots.
const VECTOR: usize = 16;

/// Sums slots pairwise, then lanes by the xor tree.
#[target_feature(enable = "avx512f,avx512dq")]
pub(super) fn sum(Accumulators(accumulators): &Accumulators) -> f32 {
    // SAFETY: 16 aligned vectors are the 256 accumulators.
    let vector = |i: usize| unsafe { _mm512_load_ps(accumulators.as_ptr().add(VECTOR * i)) };
    let slots = |i: usize| pairs(pairs(vector(i), vector(i + 1)), pairs(vector(i + 2), vector(i + 3)));
    let lanes = |i: usize| quarters(slots(i), slots(i + 4));
    // In each half of the registers: lanes 0, 2, 4, 6 in the first quarter, 1, 3, 5, 7 in the second, and those eight further on.
    let by_16 = _mm512_add_ps(lanes(0), lanes(8));
    let by_8 = _mm256_add_ps(_mm512_castps512_ps256(by_16), _mm512_extractf32x8_ps::<1>(by_16));
    let by_4 = _mm256_add_ps(by_8, _mm256_permute_ps::<0b11_10>(by_8));
    let (even, odd) = (_mm256_castps256_ps128(by_4), _mm256_extractf128_ps::<1>(by_4));
    let by_2 = [even, odd].map(|lanes| _mm_add_ss(lanes, _mm_movehdup_ps(lanes)));
    _mm_cvtss_f32(_mm_add_ss(by_2[0], by_2[1]))
}

/// The same with half the registers' width.
#[target_feature(enable = "avx")]
pub(super) fn sum_narrow(Accumulators(accumulators): &Accumulators) -> f32 {
    let part = |i: usize| lanes_narrow(&accumulators.as_chunks().0[i]);
    sum_lanes(_mm256_add_ps(_mm256_add_ps(part(0), part(2)), _mm256_add_ps(part(1), part(3))))
}

/// The same of a quarter where the rest is zero.
#[target_feature(enable = "avx")]
pub(super) fn sum_short(accumulators: &[f32; 64]) -> f32 {
    sum_lanes(lanes_narrow(accumulators))
}

/// Sums the slots of eight lanes.
#[inline]
#[target_feature(enable = "avx")]
fn lanes_narrow(accumulators: &[f32; 64]) -> __m256 {
    // SAFETY: eight vectors are the 64 accumulators.
    let lane = |i: usize| unsafe { _mm256_loadu_ps(accumulators.as_ptr().add(8 * i)) };
    // In each half of the registers half the slots of four lanes.
    let slots = |i: usize| pairs_narrow(pairs_narrow(lane(i), lane(i + 1)), pairs_narrow(lane(i + 2), lane(i + 3)));
    let (a, b) = (slots(0), slots(4));
    _mm256_add_ps(_mm256_permute2f128_ps::<0x20>(a, b), _mm256_permute2f128_ps::<0x31>(a, b))
}

/// Sums eight lanes by the xor tree.
#[inline]
#[target_feature(enable = "avx")]
fn sum_lanes(by_8: __m256) -> f32 {
    let by_4 = _mm_add_ps(_mm256_castps256_ps128(by_8), _mm256_extractf128_ps::<1>(by_8));
    let by_2 = _mm_add_ps(by_4, _mm_movehl_ps(by_4, by_4));
    _mm_cvtss_f32(_mm_add_ss(by_2, _mm_movehdup_ps(by_2)))
}

/// Sums of neighbours: in each half two of `a`, then two of `b`.
#[inline]
#[target_feature(enable = "avx")]
fn pairs_narrow(a: __m256, b: __m256) -> __m256 {
    _mm256_add_ps(_mm256_shuffle_ps::<0b10_00_10_00>(a, b), _mm256_shuffle_ps::<0b11_01_11_01>(a, b))
}

/// Sums of neighbours: in each quarter two of `a`, then two of `b`.
#[inline]
#[target_feature(enable = "avx512f")]
fn pairs(a: __m512, b: __m512) -> __m512 {
    _mm512_add_ps(_mm512_shuffle_ps::<0b10_00_10_00>(a, b), _mm512_shuffle_ps::<0b11_01_11_01>(a, b))
}

/// Sums of neighbouring quarters: two of `a`, then two of `b`.
#[inline]
#[target_feature(enable = "avx512f")]
fn quarters(a: __m512, b: __m512) -> __m512 {
    _mm512_add_ps(_mm512_shuffle_f32x4::<0b10_00_10_00>(a, b), _mm512_shuffle_f32x4::<0b11_01_11_01>(a, b))
}
