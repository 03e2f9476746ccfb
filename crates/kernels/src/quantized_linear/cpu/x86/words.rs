//! Many rows of x of 16 bits: pairs of words.

use std::arch::x86_64::*;

use super::{
    super::{
        COLUMNS,
        integers::{Octet, Rows},
    },
    Weights,
    fields::unpack_words,
    many::{self, GROUP, Tile, Way, rows},
};
use crate::{quantized::CHUNK, quantized_linear::SUMS};

/// Pairs of an octet's integers.
const PAIRS: usize = SUMS * CHUNK / 2;

/// Rows of x whose sums vectors of 256 bits have at a time.
const ROWS: usize = 4;

/// The sums of a row of x and [`COLUMNS`] rows of the weight.
type Sums = [[f32; COLUMNS]; SUMS];

/// With AVX-512 and VNNI.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(super) fn multiply_512<const FIRST: i32, const SECOND: i32, const TABLE: bool>(weights: &Weights<'_>, x: &Rows, products: &mut [[f32; COLUMNS]]) {
    let way = Way { unpack: unpack_words::<FIRST, SECOND, TABLE>, add: add_512, zero: [[0.0; COLUMNS]; SUMS], finish };
    // SAFETY: this function has what the way asks for.
    unsafe { many::multiply(&way, weights, x, products) };
}

/// With AVX2.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn multiply_256<const FIRST: i32, const SECOND: i32, const TABLE: bool>(weights: &Weights<'_>, x: &Rows, products: &mut [[f32; COLUMNS]]) {
    let way = Way { unpack: unpack_words::<FIRST, SECOND, TABLE>, add: add_256, zero: [[0.0; COLUMNS]; SUMS], finish };
    // SAFETY: as above.
    unsafe { many::multiply(&way, weights, x, products) };
}

/// The lanes' xor tree.
fn finish(sums: &mut Sums) -> [f32; COLUMNS] {
    for mask in [4, 2, 1] {
        let (sums, others) = sums.split_at_mut(mask);
        sums.as_flattened_mut().iter_mut().zip(others.as_flattened()).for_each(|(sum, other)| *sum += other);
    }
    sums[0]
}

/// Four pairs of each row of the weight.
#[inline(always)]
fn words_of(tile: &Tile<PAIRS>, place: usize, chunk: usize) -> &[[i32; COLUMNS]; 4] {
    let pairs: &[[[[i32; COLUMNS]; 4]; SUMS]; 4] = bytemuck::cast_ref(&tile.words);
    &pairs[place][chunk]
}

/// The four pairs of a row of x.
#[inline(always)]
fn pairs(x: &Octet, place: usize, chunk: usize) -> *const i32 {
    x.words()[place][chunk].as_ptr().cast()
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn add_512(weights: &Weights<'_>, tile: &Tile<PAIRS>, x: &[Octet], sums: &mut [Sums; GROUP]) {
    match x.len() {
        ..=4 => add_rows_512::<4>(weights, tile, rows(x, 0), sums),
        _ => add_rows_512::<GROUP>(weights, tile, rows(x, 0), sums),
    }
}

/// The sums of the first rows of x with an octet's products.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn add_rows_512<const ROWS: usize>(weights: &Weights<'_>, tile: &Tile<PAIRS>, x: [&Octet; ROWS], sums: &mut [Sums; GROUP]) {
    let halves = weights.halves;
    for chunk in 0..SUMS {
        for half in 0..if halves { 2 } else { 1 } {
            let mut products = [_mm512_setzero_si512(); ROWS];
            for place in 2 * half..if halves { 2 * half + 2 } else { 4 } {
                let words = words_of(tile, place, chunk);
                // SAFETY: sixteen columns each.
                let load = |pair: usize| unsafe { _mm512_loadu_si512(words[pair].as_ptr().cast()) };
                let words = [load(0), load(1), load(2), load(3)];
                for row in 0..ROWS {
                    let q = pairs(x[row], place, chunk);
                    // SAFETY: there are four pairs.
                    unsafe {
                        products[row] = dot::<0>(products[row], words[0], q);
                        products[row] = dot::<4>(products[row], words[1], q);
                        products[row] = dot::<8>(products[row], words[2], q);
                        products[row] = dot::<12>(products[row], words[3], q);
                    }
                }
            }
            let [a, b] = [&tile.scaled[0][half][chunk], &tile.scaled[1][half][chunk]];
            // SAFETY: sixteen columns each.
            let (a, b) = unsafe { (_mm512_loadu_ps(a.as_ptr()), _mm512_loadu_ps(b.as_ptr())) };
            for row in 0..ROWS {
                let (s, to) = (_mm512_set1_ps(x[row].scales[chunk]), &mut sums[row][chunk]);
                // SAFETY: sixteen columns.
                let mut sum = unsafe { _mm512_loadu_ps(to.as_ptr()) };
                sum = _mm512_fmadd_ps(_mm512_mul_ps(a, s), _mm512_cvtepi32_ps(products[row]), sum);
                if weights.offsets {
                    sum = _mm512_fmadd_ps(_mm512_mul_ps(b, s), _mm512_set1_ps(x[row].totals[half][chunk]), sum);
                }
                // SAFETY: as above.
                unsafe { _mm512_storeu_ps(to.as_mut_ptr(), sum) };
            }
        }
    }
}

/// The sums with the products of pairs of words and the pair at so many bytes. The compiler takes intrinsics apart that follow each other, into
/// multiplications and additions.
///
/// # Safety
/// That pair is there.
#[inline]
#[target_feature(enable = "avx512f,avx512vnni")]
unsafe fn dot<const AT: usize>(mut sums: __m512i, words: __m512i, pairs: *const i32) -> __m512i {
    // SAFETY: it reads that pair.
    unsafe {
        std::arch::asm!(
            "vpdpwssd {sums}, {words}, dword ptr [{pairs} + {at}]{{1to16}}",
            sums = inout(zmm_reg) sums,
            words = in(zmm_reg) words,
            pairs = in(reg) pairs,
            at = const AT,
            options(pure, readonly, nostack, preserves_flags),
        );
    }
    sums
}

#[target_feature(enable = "avx2,fma,f16c")]
fn add_256(weights: &Weights<'_>, tile: &Tile<PAIRS>, x: &[Octet], sums: &mut [Sums; GROUP]) {
    for (first, sums) in (0..x.len()).step_by(ROWS).zip(sums.as_chunks_mut().0) {
        add_rows_256(weights, tile, rows(x, first), sums);
    }
}

/// As [`add_rows_512`].
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn add_rows_256(weights: &Weights<'_>, tile: &Tile<PAIRS>, x: [&Octet; ROWS], sums: &mut [Sums; ROWS]) {
    let halves = weights.halves;
    for chunk in 0..SUMS {
        for half in 0..if halves { 2 } else { 1 } {
            let mut products = [[_mm256_setzero_si256(); 2]; ROWS];
            for place in 2 * half..if halves { 2 * half + 2 } else { 4 } {
                for (pair, words) in words_of(tile, place, chunk).iter().enumerate() {
                    let words = words.as_ptr();
                    // SAFETY: sixteen columns.
                    let words = unsafe { [_mm256_loadu_si256(words.cast()), _mm256_loadu_si256(words.add(8).cast())] };
                    for row in 0..ROWS {
                        // SAFETY: there are four pairs.
                        let q = _mm256_set1_epi32(unsafe { pairs(x[row], place, chunk).add(pair).read() });
                        products[row][0] = _mm256_add_epi32(products[row][0], _mm256_madd_epi16(words[0], q));
                        products[row][1] = _mm256_add_epi32(products[row][1], _mm256_madd_epi16(words[1], q));
                    }
                }
            }
            for part in 0..2 {
                let at = 8 * part..8 * part + 8;
                let [a, b] = [0, 1].map(|of| tile.scaled[of][half][chunk][at.clone()].as_ptr());
                // SAFETY: eight columns each.
                let (a, b) = unsafe { (_mm256_loadu_ps(a), _mm256_loadu_ps(b)) };
                for row in 0..ROWS {
                    let (s, to) = (_mm256_set1_ps(x[row].scales[chunk]), &mut sums[row][chunk][at.clone()]);
                    // SAFETY: eight columns.
                    let mut sum = unsafe { _mm256_loadu_ps(to.as_ptr()) };
                    sum = _mm256_fmadd_ps(_mm256_mul_ps(a, s), _mm256_cvtepi32_ps(products[row][part]), sum);
                    if weights.offsets {
                        sum = _mm256_fmadd_ps(_mm256_mul_ps(b, s), _mm256_set1_ps(x[row].totals[half][chunk]), sum);
                    }
                    // SAFETY: as above.
                    unsafe { _mm256_storeu_ps(to.as_mut_ptr(), sum) };
                }
            }
        }
    }
}
