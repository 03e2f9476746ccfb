//! A few rows of x: the weight comes from memory as fast as that gives it, and an octet is unpacked into registers.

use std::arch::x86_64::*;

use super::{
    super::{COLUMNS, Octet, Rows, tree},
    Weights, many,
    scales::Scaled,
    words::{Words, words},
};
use crate::{quantized::packed::PackedRow, quantized_linear::SUMS};

/// Octets whose scales are computed at a time.
const SEGMENT: usize = 16;

/// Bytes ahead at which the weight is fetched: the hardware alone does it too late.
const AHEAD: usize = 4096;

/// Less than [`many::LEAST`] rows.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn multiply<const FIRST: i32, const SECOND: i32, const TABLE: bool>(weights: &Weights<'_>, x: &Rows, products: &mut [[f32; COLUMNS]]) {
    let octets = x.chunks.div_ceil(SUMS);
    let mut scaled = [Scaled::default(); SEGMENT];
    for (column, bytes) in weights.rows.clone().enumerate() {
        let row = PackedRow { bytes, places: weights.places };
        let mut sums = [_mm256_setzero_ps(); many::LEAST];
        for first in (0..octets).step_by(SEGMENT) {
            let scaled = &mut scaled[..SEGMENT.min(octets - first)];
            // SAFETY: this function has the level that it asks for.
            unsafe { (weights.scales)(row, weights.chunks, first, scaled) };
            for (octet, scaled) in (first..).zip(&*scaled) {
                for line in (bytes.len() / octets * octet..bytes.len() / octets * (octet + 1)).step_by(64) {
                    _mm_prefetch::<_MM_HINT_T0>(bytes.as_ptr().wrapping_add(AHEAD + line).cast());
                }
                if products.len() == 1 {
                    // Unpacked here as well, the words need no memory.
                    let words = words::<FIRST, SECOND, TABLE>(weights, row, octet);
                    sums[0] = add(weights, &words, scaled, &x.octet(octet)[0], sums[0]);
                } else {
                    let words = words::<FIRST, SECOND, TABLE>(weights, row, octet);
                    for (x, sum) in x.octet(octet).iter().zip(&mut sums) {
                        *sum = add(weights, &words, scaled, x, *sum);
                    }
                }
            }
        }
        for (products, sums) in products.iter_mut().zip(sums) {
            let mut lanes = [0.0; SUMS];
            // SAFETY: eight lanes.
            unsafe { _mm256_storeu_ps(lanes.as_mut_ptr(), sums) };
            products[column] = tree(lanes);
        }
    }
}

/// The sums with an octet's products.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn add(weights: &Weights<'_>, words: &Words, scaled: &Scaled, x: &Octet, sums: __m256) -> __m256 {
    let (mut low, mut high) = ([_mm256_setzero_si256(); SUMS / 2], [_mm256_setzero_si256(); SUMS / 2]);
    for pair in 0..SUMS / 2 {
        // SAFETY: an octet has so many integers, and is aligned.
        let product = |at: usize| unsafe { _mm256_madd_epi16(words[pair][at], _mm256_load_si256(x.q[at].as_ptr().add(2 * pair).cast())) };
        low[pair] = _mm256_add_epi32(product(0), product(1));
        high[pair] = _mm256_add_epi32(product(2), product(3));
    }
    // SAFETY: eight sums each.
    let totals = unsafe { [_mm256_loadu_si256(x.totals[0].as_ptr().cast()), _mm256_loadu_si256(x.totals[1].as_ptr().cast())] };
    if weights.halves {
        let sums = add_group(weights, scaled, 0, x, [across(low), totals[0]], sums);
        return add_group(weights, scaled, 1, x, [across(high), totals[1]], sums);
    }
    for pair in 0..SUMS / 2 {
        low[pair] = _mm256_add_epi32(low[pair], high[pair]);
    }
    add_group(weights, scaled, 0, x, [across(low), _mm256_add_epi32(totals[0], totals[1])], sums)
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn add_group(weights: &Weights<'_>, scaled: &Scaled, half: usize, x: &Octet, [product, total]: [__m256i; 2], sums: __m256) -> __m256 {
    // SAFETY: eight floats each.
    let load = |floats: &[f32; SUMS]| unsafe { _mm256_loadu_ps(floats.as_ptr()) };
    let s = load(&x.scales);
    let product = _mm256_sub_epi32(product, _mm256_mullo_epi32(total, _mm256_set1_epi32(weights.zero.into())));
    let sums = _mm256_fmadd_ps(_mm256_mul_ps(load(&scaled.scale[half]), s), _mm256_cvtepi32_ps(product), sums);
    if !weights.offsets {
        return sums;
    }
    _mm256_fmadd_ps(_mm256_mul_ps(load(&scaled.offset[half]), s), _mm256_cvtepi32_ps(total), sums)
}

/// Of pairs of chunks with four sums each, one sum for each chunk.
#[inline]
#[target_feature(enable = "avx2")]
fn across([one, two, three, four]: [__m256i; 4]) -> __m256i {
    let sums = _mm256_hadd_epi32(_mm256_hadd_epi32(one, two), _mm256_hadd_epi32(three, four));
    _mm256_permutevar8x32_epi32(sums, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7))
}
