//! Many rows of x: an octet of [`COLUMNS`] rows of the weight is unpacked and turned round, so that a lane is a row of the weight, and meets one row of x after
//! another. The same code for every format.

use std::arch::x86_64::*;

use super::{
    super::{COLUMNS, NOTHING, Octet, Rows},
    Weights,
    scales::Scaled,
    words::{PAIRS, Unpack},
};
use crate::{quantized::packed::PackedRow, quantized_linear::SUMS, simd};

/// Rows of x from which on turning the weight round pays.
pub(super) const LEAST: usize = 8;

/// Rows of x that share an unpacked octet. Their sums stay in the second-level cache.
const BLOCK: usize = 128;

/// The sums of a row of x and [`COLUMNS`] rows of the weight.
type Sums = [[f32; COLUMNS]; SUMS];

/// An octet of [`COLUMNS`] rows of the weight.
#[repr(C, align(64))]
struct Tile {
    /// Pairs of integers, ordered as those of an octet of x.
    pairs: [[[[i32; COLUMNS]; 4]; SUMS]; 4],
    /// Scales, then offsets, each by halves and chunks.
    scaled: [[Sums; 2]; 2],
    /// Those rows as they are read.
    rows: ([[i32; PAIRS]; COLUMNS], [Scaled; COLUMNS]),
}

static AFTER: Octet = NOTHING;

#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn multiply(weights: &Weights<'_>, unpack: Unpack, x: &Rows, products: &mut [[f32; COLUMNS]]) {
    let vnni = simd::level() >= simd::Level::Avx512 && is_x86_feature_detected!("avx512vnni");
    let rows = ([[0; PAIRS]; COLUMNS], [Scaled::default(); COLUMNS]);
    let mut tile = Tile { pairs: [[[[0; COLUMNS]; 4]; SUMS]; 4], scaled: [[[[0.0; COLUMNS]; SUMS]; 2]; 2], rows };
    let mut sums = vec![[[0.0; COLUMNS]; SUMS]; products.len().min(BLOCK).next_multiple_of(8)];
    for (block, products) in products.chunks_mut(BLOCK).enumerate() {
        sums.fill([[0.0; COLUMNS]; SUMS]);
        for octet in 0..x.chunks.div_ceil(SUMS) {
            let (unpacked, scaled) = &mut tile.rows;
            for ((bytes, unpacked), scaled) in weights.rows.clone().zip(unpacked).zip(scaled) {
                let row = PackedRow { bytes, places: weights.places };
                // SAFETY: this function has the level that they ask for.
                unsafe { (unpack(weights, row, octet, unpacked), (weights.scales)(row, weights.chunks, octet, std::slice::from_mut(scaled))) };
            }
            turn::<PAIRS>(&tile.rows.0, bytemuck::cast_mut(&mut tile.pairs));
            turn::<{ 4 * SUMS }>(bytemuck::cast_ref(&tile.rows.1), bytemuck::cast_mut(&mut tile.scaled));
            let rows = &x.octet(octet)[BLOCK * block..][..products.len()];
            let mut first = 0;
            while first < products.len() {
                let sums = &mut sums[first..];
                if vnni && products.len() - first > 4 {
                    // SAFETY: the processor has these instructions.
                    unsafe {
                        add_512::<8>(weights, &tile, std::array::from_fn(|i| rows.get(first + i).unwrap_or(&AFTER)), &mut sums.as_chunks_mut().0[0])
                    };
                    first += 8;
                    continue;
                }
                let four: [_; 4] = std::array::from_fn(|i| rows.get(first + i).unwrap_or(&AFTER));
                if vnni {
                    // SAFETY: as above.
                    unsafe { add_512(weights, &tile, four, &mut sums.as_chunks_mut().0[0]) };
                } else {
                    add_256(weights, &tile, four, &mut sums.as_chunks_mut().0[0]);
                }
                first += 4;
            }
        }
        for (products, sums) in products.iter_mut().zip(&mut sums) {
            for mask in [4, 2, 1] {
                let (sums, others) = sums.split_at_mut(mask);
                sums.as_flattened_mut().iter_mut().zip(others.as_flattened()).for_each(|(sum, other)| *sum += other);
            }
            *products = sums[0];
        }
    }
}

/// Rows to columns, eight by eight.
#[inline]
#[target_feature(enable = "avx2")]
fn turn<const LENGTH: usize>(from: &[[i32; LENGTH]; COLUMNS], to: &mut [[i32; COLUMNS]; LENGTH]) {
    for (at, to) in to.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        for (part, from) in from.as_chunks::<8>().0.iter().enumerate() {
            // Word w and, in the upper lane, w + 4 of four rows.
            let mut fours = [[_mm256_setzero_si256(); 4]; 2];
            for (fours, from) in fours.iter_mut().zip(from.as_chunks::<4>().0) {
                // SAFETY: eight words.
                let row = |row: usize| unsafe { _mm256_loadu_si256(from[row][8 * at..][..8].as_ptr().cast()) };
                let (a, b, c, d) = (row(0), row(1), row(2), row(3));
                let low = [_mm256_unpacklo_epi32(a, b), _mm256_unpacklo_epi32(c, d)];
                let high = [_mm256_unpackhi_epi32(a, b), _mm256_unpackhi_epi32(c, d)];
                *fours = [
                    _mm256_unpacklo_epi64(low[0], low[1]),
                    _mm256_unpackhi_epi64(low[0], low[1]),
                    _mm256_unpacklo_epi64(high[0], high[1]),
                    _mm256_unpackhi_epi64(high[0], high[1]),
                ];
            }
            for word in 0..4 {
                let [a, b] = [fours[0][word], fours[1][word]];
                // SAFETY: eight columns of a row of them.
                unsafe {
                    _mm256_storeu_si256(to[word].as_mut_ptr().add(8 * part).cast(), _mm256_permute2x128_si256::<0x20>(a, b));
                    _mm256_storeu_si256(to[word + 4].as_mut_ptr().add(8 * part).cast(), _mm256_permute2x128_si256::<0x31>(a, b));
                }
            }
        }
    }
}

/// The sum of the integers of a chunk, or of a half.
#[inline(always)]
fn total(halves: bool, half: usize, chunk: usize, x: &Octet) -> f32 {
    (if halves { x.totals[half][chunk] } else { x.totals[0][chunk] + x.totals[1][chunk] }) as f32
}

/// The sums of some rows of x with an octet's products.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn add_512<const ROWS: usize>(weights: &Weights<'_>, tile: &Tile, x: [&Octet; ROWS], sums: &mut [Sums; ROWS]) {
    let halves = weights.halves;
    for chunk in 0..SUMS {
        for half in 0..if halves { 2 } else { 1 } {
            let mut products = [_mm512_setzero_si512(); ROWS];
            for place in 2 * half..if halves { 2 * half + 2 } else { 4 } {
                let pairs = &tile.pairs[place][chunk];
                // SAFETY: sixteen columns each.
                let words = |pair: usize| unsafe { _mm512_loadu_si512(pairs[pair].as_ptr().cast()) };
                let words = [words(0), words(1), words(2), words(3)];
                for row in 0..ROWS {
                    let q = x[row].pairs(place, chunk);
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
                    sum = _mm512_fmadd_ps(_mm512_mul_ps(b, s), _mm512_set1_ps(total(halves, half, chunk, x[row])), sum);
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

/// The same.
#[target_feature(enable = "avx2,fma,f16c")]
fn add_256<const ROWS: usize>(weights: &Weights<'_>, tile: &Tile, x: [&Octet; ROWS], sums: &mut [Sums; ROWS]) {
    let halves = weights.halves;
    for chunk in 0..SUMS {
        for half in 0..if halves { 2 } else { 1 } {
            let mut products = [[_mm256_setzero_si256(); 2]; ROWS];
            for place in 2 * half..if halves { 2 * half + 2 } else { 4 } {
                for (pair, words) in tile.pairs[place][chunk].iter().enumerate() {
                    let words = words.as_ptr();
                    // SAFETY: sixteen columns.
                    let words = unsafe { [_mm256_loadu_si256(words.cast()), _mm256_loadu_si256(words.add(8).cast())] };
                    for row in 0..ROWS {
                        // SAFETY: there are four pairs.
                        let q = _mm256_set1_epi32(unsafe { x[row].pairs(place, chunk).add(pair).read() });
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
                        sum = _mm256_fmadd_ps(_mm256_mul_ps(b, s), _mm256_set1_ps(total(halves, half, chunk, x[row])), sum);
                    }
                    // SAFETY: as above.
                    unsafe { _mm256_storeu_ps(to.as_mut_ptr(), sum) };
                }
            }
        }
    }
}
