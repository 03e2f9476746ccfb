//! A few rows of x by vectors of 256 bits: the weight comes from memory as fast as that gives it, and an octet is unpacked into registers.

use std::arch::x86_64::*;

use super::{
    super::{
        COLUMNS,
        integers::{Octet, Rows},
        product::tree,
    },
    MANY, Weights,
    fields::{Fields, fields, words},
    has_halves, is_signed,
    scales::Scaled,
};
use crate::quantized_linear::SUMS;

/// Octets whose scales are computed at a time.
pub(super) const SEGMENT: usize = 16;

/// Bytes ahead at which the weight is fetched, into the second cache: the hardware alone does it too late, and of the first cache so many lines cannot be
/// waited for at a time.
pub(super) const AHEAD: usize = 16 << 10;

/// Fetches what the weight has some octets after this one.
#[inline(always)]
pub(super) fn prefetch(bytes: &[u8], octet: usize, octet_bytes: usize) {
    let mut line = AHEAD + octet_bytes * octet;
    let end = line + octet_bytes;
    while line < end {
        // SAFETY: a hint, for which any address is fine.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(bytes.as_ptr().wrapping_add(line).cast()) };
        line += 64;
    }
}

/// Less than [`MANY`] rows of x, which are words where fields have a sign, else planes, or, `EIGHT`, bytes.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn multiply<const FIRST: i32, const SECOND: i32, const TABLE: bool, const EIGHT: bool>(
    weights: &Weights<'_>,
    x: &Rows,
    products: &mut [[f32; COLUMNS]],
) {
    let octets = x.chunks.div_ceil(SUMS);
    let mut scaled = [Scaled::default(); SEGMENT];
    let octet_bytes = weights.row_bytes / octets;
    for column in 0..weights.count {
        let row = weights.row(column);
        let mut sums = [_mm256_setzero_ps(); MANY];
        for first in (0..octets).step_by(SEGMENT) {
            let scaled = &mut scaled[..SEGMENT.min(octets - first)];
            // SAFETY: this function has the level that it asks for.
            unsafe { (weights.scales)(row, weights.chunks, first, scaled) };
            for (octet, scaled) in (first..).zip(&*scaled) {
                prefetch(row.bytes, octet, octet_bytes);
                match x.octet(octet) {
                    // One is in registers, and half an octet is enough at the end of some.
                    [x] if weights.chunks - SUMS * octet <= SUMS / 2 => {
                        let fields = fields::<FIRST, SECOND, TABLE, { SUMS / 4 }>(weights, row, octet);
                        sums[0] = add::<FIRST, SECOND, TABLE, EIGHT, { SUMS / 4 }>(weights, &fields, scaled, x, sums[0]);
                    }
                    [x] => {
                        let fields = fields::<FIRST, SECOND, TABLE, { SUMS / 2 }>(weights, row, octet);
                        sums[0] = add::<FIRST, SECOND, TABLE, EIGHT, { SUMS / 2 }>(weights, &fields, scaled, x, sums[0]);
                    }
                    rows => {
                        let fields = fields::<FIRST, SECOND, TABLE, { SUMS / 2 }>(weights, row, octet);
                        for (x, sum) in rows.iter().zip(&mut sums) {
                            *sum = add::<FIRST, SECOND, TABLE, EIGHT, { SUMS / 2 }>(weights, &fields, scaled, x, *sum);
                        }
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

/// The sums with the products of an octet's first `PAIRS` pairs of chunks.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn add<const FIRST: i32, const SECOND: i32, const TABLE: bool, const EIGHT: bool, const PAIRS: usize>(
    weights: &Weights<'_>,
    fields: &Fields,
    scaled: &Scaled,
    x: &Octet,
    sums: __m256,
) -> __m256 {
    let mut products = [[_mm256_setzero_si256(); SUMS / 2]; 2];
    for pair in 0..PAIRS {
        // Of words, or, by halves of 16 bits, 256 times those of high bytes and those of low ones.
        let mut halves = [[_mm256_setzero_si256(); 2]; 2];
        for half in 0..2 {
            halves[half] = if is_signed(FIRST, TABLE) {
                let (words, x) = (words::<true>(fields[pair][half]), x.words());
                // SAFETY: an octet has so many integers, and is aligned.
                let load = |at: usize| unsafe { _mm256_load_si256(x[at].as_ptr().add(2 * pair).cast()) };
                [_mm256_madd_epi16(words[0], load(2 * half)), _mm256_madd_epi16(words[1], load(2 * half + 1))]
            } else {
                let (fields, x) = (fields[pair][half], x.planes());
                // SAFETY: as above.
                let load = |plane: usize| unsafe { _mm256_load_si256(x[plane][half].as_ptr().add(2 * pair).cast()) };
                // At most two products of 8 and 5 bits or, where halves are apart, one of 6: they fit.
                let high = _mm256_maddubs_epi16(fields, load(0));
                [high, if EIGHT { high } else { _mm256_maddubs_epi16(load(1), fields) }]
            };
        }
        let together = |[a, b]: [__m256i; 2]| {
            if is_signed(FIRST, TABLE) {
                return _mm256_add_epi32(a, b);
            }
            let low = _mm256_madd_epi16(b, _mm256_set1_epi16(1));
            if EIGHT { low } else { _mm256_add_epi32(_mm256_madd_epi16(a, _mm256_set1_epi16(256)), low) }
        };
        if has_halves(FIRST, SECOND) {
            (products[0][pair], products[1][pair]) = (together(halves[0]), together(halves[1]));
        } else {
            let [a, b] = halves;
            let add = |a, b| if is_signed(FIRST, TABLE) { _mm256_add_epi32(a, b) } else { _mm256_add_epi16(a, b) };
            products[0][pair] = together([add(a[0], b[0]), add(a[1], b[1])]);
        }
    }
    let sums = add_group(weights, scaled, 0, x, across(products[0]), sums);
    if has_halves(FIRST, SECOND) { add_group(weights, scaled, 1, x, across(products[1]), sums) } else { sums }
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn add_group(weights: &Weights<'_>, scaled: &Scaled, half: usize, x: &Octet, product: __m256i, sums: __m256) -> __m256 {
    // SAFETY: eight numbers each.
    let load = |floats: &[f32; SUMS]| unsafe { _mm256_loadu_ps(floats.as_ptr()) };
    // SAFETY: as above.
    let integers = |integers: &[i32; SUMS]| unsafe { _mm256_loadu_si256(integers.as_ptr().cast()) };
    let s = load(&x.scales);
    let product = _mm256_sub_epi32(product, integers(&x.excess[half]));
    let sums = _mm256_fmadd_ps(_mm256_mul_ps(load(&scaled.scale[half]), s), _mm256_cvtepi32_ps(product), sums);
    if !weights.offsets {
        return sums;
    }
    _mm256_fmadd_ps(_mm256_mul_ps(load(&scaled.offset[half]), s), load(&x.totals[half]), sums)
}

/// Of pairs of chunks with four sums each, one sum for each chunk.
#[inline]
#[target_feature(enable = "avx2")]
fn across([one, two, three, four]: [__m256i; 4]) -> __m256i {
    let sums = _mm256_hadd_epi32(_mm256_hadd_epi32(one, two), _mm256_hadd_epi32(three, four));
    _mm256_permutevar8x32_epi32(sums, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7))
}
