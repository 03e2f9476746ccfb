//! Many rows of x of 8 bits: of fast precision. A row of x and one of the weight have one sum.

use std::arch::x86_64::*;

use super::{
    super::{
        COLUMNS,
        integers::{Octet, Rows},
    },
    Weights,
    fields::unpack_bytes,
    many::{self, GROUP, Tile, Way, rows},
};
use crate::{quantized::CHUNK, quantized_linear::SUMS};

/// Four bytes each of an octet's integers.
const FOURS: usize = SUMS * CHUNK / 4;

/// Rows of x whose sums vectors of 256 bits have at a time.
const ROWS: usize = 4;

type Sums = [f32; COLUMNS];

/// With AVX-512 and VNNI.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(super) fn multiply_512<const FIRST: i32, const SECOND: i32, const TABLE: bool>(weights: &Weights<'_>, x: &Rows, products: &mut [[f32; COLUMNS]]) {
    let way = Way { unpack: unpack_bytes::<FIRST, SECOND, TABLE>, add: add_512, zero: [0.0; COLUMNS], finish: |sums| *sums };
    // SAFETY: this function has what the way asks for.
    unsafe { many::multiply(&way, weights, x, products) };
}

/// With AVX2, of fields without a sign.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn multiply_256<const FIRST: i32, const SECOND: i32, const TABLE: bool>(weights: &Weights<'_>, x: &Rows, products: &mut [[f32; COLUMNS]]) {
    // As many sums of two products with x as 16 bits hold.
    let add = match FIRST + SECOND {
        ..=4 if !weights.halves => add_256::<8>,
        ..=5 => add_256::<4>,
        _ => add_256::<2>,
    };
    let way = Way { unpack: unpack_bytes::<FIRST, SECOND, TABLE>, add, zero: [0.0; COLUMNS], finish: |sums| *sums };
    // SAFETY: as above.
    unsafe { many::multiply(&way, weights, x, products) };
}

/// The four fours of half a chunk of each row of the weight.
#[inline(always)]
fn fours(tile: &Tile<FOURS>, half: usize, chunk: usize) -> &[[i32; COLUMNS]; 4] {
    // By pairs of chunks, halves, and chunks.
    let fours: &[[[[[i32; COLUMNS]; 4]; 2]; 2]; SUMS / 2] = bytemuck::cast_ref(&tile.words);
    &fours[chunk / 2][half][chunk % 2]
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn add_512(weights: &Weights<'_>, tile: &Tile<FOURS>, x: &[Octet], sums: &mut [Sums; GROUP]) {
    match x.len() {
        ..=4 => add_rows_512::<4>(weights, tile, rows(x, 0), sums),
        _ => add_rows_512::<GROUP>(weights, tile, rows(x, 0), sums),
    }
}

/// The sums of the first rows of x with an octet's products.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn add_rows_512<const ROWS: usize>(weights: &Weights<'_>, tile: &Tile<FOURS>, x: [&Octet; ROWS], to: &mut [Sums; GROUP]) {
    let groups = if weights.halves { 2 } else { 1 };
    let mut sums = [_mm512_setzero_ps(); ROWS];
    for row in 0..ROWS {
        // SAFETY: sixteen columns.
        sums[row] = unsafe { _mm512_loadu_ps(to[row].as_ptr()) };
    }
    for chunk in 0..SUMS {
        for group in 0..groups {
            let mut products = [_mm512_setzero_si512(); ROWS];
            for row in 0..ROWS {
                products[row] = _mm512_set1_epi32(-x[row].excess[group][chunk]);
            }
            for half in 2 * group / groups..2 * (group + 1) / groups {
                let fours = fours(tile, half, chunk);
                // SAFETY: sixteen columns each.
                let load = |four: usize| unsafe { _mm512_loadu_si512(fours[four].as_ptr().cast()) };
                let fours = [load(0), load(1), load(2), load(3)];
                for row in 0..ROWS {
                    let q = x[row].bytes(half, chunk).as_ptr();
                    // SAFETY: there are 16 bytes.
                    unsafe {
                        products[row] = dot::<0>(products[row], fours[0], q);
                        products[row] = dot::<4>(products[row], fours[1], q);
                        products[row] = dot::<8>(products[row], fours[2], q);
                        products[row] = dot::<12>(products[row], fours[3], q);
                    }
                }
            }
            let [a, b] = [&tile.scaled[0][group][chunk], &tile.scaled[1][group][chunk]];
            // SAFETY: sixteen columns each.
            let (a, b) = unsafe { (_mm512_loadu_ps(a.as_ptr()), _mm512_loadu_ps(b.as_ptr())) };
            for row in 0..ROWS {
                let s = x[row].scales[chunk];
                sums[row] = _mm512_fmadd_ps(_mm512_mul_ps(a, _mm512_set1_ps(s)), _mm512_cvtepi32_ps(products[row]), sums[row]);
                if weights.offsets {
                    sums[row] = _mm512_fmadd_ps(b, _mm512_set1_ps(s * x[row].totals[group][chunk]), sums[row]);
                }
            }
        }
    }
    for row in 0..ROWS {
        // SAFETY: sixteen columns.
        unsafe { _mm512_storeu_ps(to[row].as_mut_ptr(), sums[row]) };
    }
}

/// The sums with the products of four bytes without a sign and the four at so many bytes, which have one.
///
/// # Safety
/// Those four are there.
#[inline]
#[target_feature(enable = "avx512f,avx512vnni")]
unsafe fn dot<const AT: usize>(mut sums: __m512i, fours: __m512i, bytes: *const u8) -> __m512i {
    // SAFETY: it reads those four.
    unsafe {
        std::arch::asm!(
            "vpdpbusd {sums}, {fours}, dword ptr [{bytes} + {at}]{{1to16}}",
            sums = inout(zmm_reg) sums,
            fours = in(zmm_reg) fours,
            bytes = in(reg) bytes,
            at = const AT,
            options(pure, readonly, nostack, preserves_flags),
        );
    }
    sums
}

/// `RUN` products of fours follow each other in 16 bits.
#[target_feature(enable = "avx2,fma,f16c")]
fn add_256<const RUN: usize>(weights: &Weights<'_>, tile: &Tile<FOURS>, x: &[Octet], sums: &mut [Sums; GROUP]) {
    for (first, sums) in (0..x.len()).step_by(ROWS).zip(sums.as_chunks_mut().0) {
        add_rows_256::<RUN>(weights, tile, rows(x, first), sums);
    }
}

/// As [`add_rows_512`].
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn add_rows_256<const RUN: usize>(weights: &Weights<'_>, tile: &Tile<FOURS>, x: [&Octet; ROWS], sums: &mut [Sums; ROWS]) {
    let groups = if weights.halves { 2 } else { 1 };
    for chunk in 0..SUMS {
        for group in 0..groups {
            let mut products = [[_mm256_setzero_si256(); 2]; ROWS];
            for row in 0..ROWS {
                products[row] = [_mm256_set1_epi32(-x[row].excess[group][chunk]); 2];
            }
            for first in (8 * group / groups..8 * (group + 1) / groups).step_by(RUN) {
                let mut pairs = [[_mm256_setzero_si256(); 2]; ROWS];
                for four in first..first + RUN {
                    let fours = fours(tile, four / 4, chunk)[four % 4].as_ptr();
                    // SAFETY: sixteen columns.
                    let fours = unsafe { [_mm256_loadu_si256(fours.cast()), _mm256_loadu_si256(fours.add(8).cast())] };
                    for row in 0..ROWS {
                        let q = x[row].bytes(four / 4, chunk).as_ptr();
                        // SAFETY: there are four bytes.
                        let q = _mm256_set1_epi32(unsafe { q.add(4 * (four % 4)).cast::<i32>().read_unaligned() });
                        pairs[row][0] = _mm256_add_epi16(pairs[row][0], _mm256_maddubs_epi16(fours[0], q));
                        pairs[row][1] = _mm256_add_epi16(pairs[row][1], _mm256_maddubs_epi16(fours[1], q));
                    }
                }
                for row in 0..ROWS {
                    for part in 0..2 {
                        let four = _mm256_madd_epi16(pairs[row][part], _mm256_set1_epi16(1));
                        products[row][part] = _mm256_add_epi32(products[row][part], four);
                    }
                }
            }
            for part in 0..2 {
                let at = 8 * part..8 * part + 8;
                let [a, b] = [0, 1].map(|of| tile.scaled[of][group][chunk][at.clone()].as_ptr());
                // SAFETY: eight columns each.
                let (a, b) = unsafe { (_mm256_loadu_ps(a), _mm256_loadu_ps(b)) };
                for row in 0..ROWS {
                    let (s, to) = (x[row].scales[chunk], &mut sums[row][at.clone()]);
                    // SAFETY: eight columns.
                    let mut sum = unsafe { _mm256_loadu_ps(to.as_ptr()) };
                    sum = _mm256_fmadd_ps(_mm256_mul_ps(a, _mm256_set1_ps(s)), _mm256_cvtepi32_ps(products[row][part]), sum);
                    if weights.offsets {
                        sum = _mm256_fmadd_ps(b, _mm256_set1_ps(s * x[row].totals[group][chunk]), sum);
                    }
                    // SAFETY: as above.
                    unsafe { _mm256_storeu_ps(to.as_mut_ptr(), sum) };
                }
            }
        }
    }
}
