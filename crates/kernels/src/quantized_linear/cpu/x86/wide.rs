//! A few rows of x by vectors of 512 bits: a lane is one of the eight sums of one of two rows of the weight.

use std::arch::x86_64::*;

use super::{
    super::{
        COLUMNS,
        integers::{Octet, Rows},
        product::tree,
    },
    MANY, Weights,
    few::{SEGMENT, prefetch},
    fields::{WideFields, wide_fields},
    has_halves, is_signed,
    scales::Scaled,
};
use crate::{quantized::packed::PackedRow, quantized_linear::SUMS};

/// Less than [`MANY`] rows of x, as planes.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(super) fn multiply<const FIRST: i32, const SECOND: i32, const TABLE: bool>(weights: &Weights<'_>, x: &Rows, products: &mut [[f32; COLUMNS]]) {
    let octets = x.chunks.div_ceil(SUMS);
    let mut scaled = [[Scaled::default(); SEGMENT]; 2];
    let octet_bytes = weights.row_bytes / octets;
    for column in (0..weights.count).step_by(2) {
        // The last of an odd number beside itself.
        let other = (column + 1).min(weights.count - 1);
        let pair = [weights.row(column), weights.row(other)];
        let mut sums = [_mm512_setzero_ps(); MANY];
        for first in (0..octets).step_by(SEGMENT) {
            let count = SEGMENT.min(octets - first);
            for side in 0..2 {
                // SAFETY: this function has the level that they ask for.
                unsafe { (weights.scales)(pair[side], weights.chunks, first, &mut scaled[side][..count]) };
            }
            for at in 0..count {
                let octet = first + at;
                prefetch(pair[0].bytes, octet, octet_bytes);
                prefetch(pair[1].bytes, octet, octet_bytes);
                let scaled = [&scaled[0][at], &scaled[1][at]];
                match x.octet(octet) {
                    // One is in registers, and half an octet is enough at the end of some.
                    [x] if weights.chunks - SUMS * octet <= SUMS / 2 => {
                        let fields = both::<FIRST, SECOND, TABLE, { SUMS / 8 }>(weights, pair, octet);
                        sums[0] = add::<FIRST, SECOND, TABLE, { SUMS / 8 }>(weights, &fields, scaled, x, sums[0]);
                    }
                    [x] => {
                        let fields = both::<FIRST, SECOND, TABLE, { SUMS / 4 }>(weights, pair, octet);
                        sums[0] = add::<FIRST, SECOND, TABLE, { SUMS / 4 }>(weights, &fields, scaled, x, sums[0]);
                    }
                    rows => {
                        let fields = both::<FIRST, SECOND, TABLE, { SUMS / 4 }>(weights, pair, octet);
                        for (x, sum) in rows.iter().zip(&mut sums) {
                            *sum = add::<FIRST, SECOND, TABLE, { SUMS / 4 }>(weights, &fields, scaled, x, *sum);
                        }
                    }
                }
            }
        }
        for (products, sums) in products.iter_mut().zip(sums) {
            let mut lanes = [[0.0; SUMS]; 2];
            // SAFETY: sixteen lanes.
            unsafe { _mm512_storeu_ps(lanes.as_mut_ptr().cast(), sums) };
            products[other] = tree(lanes[1]);
            products[column] = tree(lanes[0]);
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn both<const FIRST: i32, const SECOND: i32, const TABLE: bool, const FOURS: usize>(
    weights: &Weights<'_>,
    [a, b]: [PackedRow<'_>; 2],
    octet: usize,
) -> [WideFields; 2] {
    [wide_fields::<FIRST, SECOND, TABLE, FOURS>(weights, a, octet), wide_fields::<FIRST, SECOND, TABLE, FOURS>(weights, b, octet)]
}

/// The sums with the products of an octet's first `FOURS` times four chunks.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn add<const FIRST: i32, const SECOND: i32, const TABLE: bool, const FOURS: usize>(
    weights: &Weights<'_>,
    fields: &[WideFields; 2],
    scaled: [&Scaled; 2],
    x: &Octet,
    mut sums: __m512,
) -> __m512 {
    // Four sums each of four chunks of a row.
    let mut products = [[_mm512_setzero_si512(); SUMS / 2]; 2];
    let planes = x.planes();
    for side in 0..2 {
        for four in 0..FOURS {
            // SAFETY: an octet has so many integers, and is aligned.
            let load = |plane: usize, half: usize| unsafe { _mm512_load_si512(planes[plane][half].as_ptr().add(4 * four).cast()) };
            let flip = _mm512_set1_epi8(if is_signed(FIRST, TABLE) { i8::MIN } else { 0 });
            let fields = fields[side][four];
            let high = |half: usize, to| _mm512_dpbusd_epi32(to, _mm512_xor_si512(fields[half], flip), load(0, half));
            let low = |half: usize, to| _mm512_dpbusd_epi32(to, load(1, half), fields[half]);
            let zero = _mm512_setzero_si512();
            if has_halves(FIRST, SECOND) {
                for half in 0..2 {
                    products[half][2 * side + four] = low(half, _mm512_slli_epi32::<8>(high(half, zero)));
                }
            } else {
                products[0][2 * side + four] = low(1, low(0, _mm512_slli_epi32::<8>(high(1, high(0, zero)))));
            }
        }
    }
    for half in 0..if has_halves(FIRST, SECOND) { 2 } else { 1 } {
        // SAFETY: eight numbers each.
        let two = |numbers: [&[f32; SUMS]; 2]| unsafe {
            _mm512_insertf32x8::<1>(_mm512_castps256_ps512(_mm256_loadu_ps(numbers[0].as_ptr())), _mm256_loadu_ps(numbers[1].as_ptr()))
        };
        // SAFETY: as above.
        let integers = |numbers: &[i32; SUMS]| unsafe { _mm512_broadcast_i32x8(_mm256_loadu_si256(numbers.as_ptr().cast())) };
        let s = two([&x.scales, &x.scales]);
        let product = _mm512_sub_epi32(across(products[half]), integers(&x.excess[half]));
        let scale = two([&scaled[0].scale[half], &scaled[1].scale[half]]);
        sums = _mm512_fmadd_ps(_mm512_mul_ps(scale, s), _mm512_cvtepi32_ps(product), sums);
        if weights.offsets {
            let offset = two([&scaled[0].offset[half], &scaled[1].offset[half]]);
            sums = _mm512_fmadd_ps(_mm512_mul_ps(offset, s), two([&x.totals[half], &x.totals[half]]), sums);
        }
    }
    sums
}

/// Of four sums each of the first and the last four chunks of two rows, one sum for each chunk of each row.
#[inline]
#[target_feature(enable = "avx512f")]
fn across([a, b, c, d]: [__m512i; 4]) -> __m512i {
    let ab = _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    let cd = _mm512_add_epi32(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
    // Of each chunk in turn, that of `a` and so on.
    let sums = _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
    _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), sums)
}
