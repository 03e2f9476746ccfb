//! Many rows of x: an octet of [`COLUMNS`] rows of the weight is unpacked and turned round, so that a lane is a row of the weight, and meets one row of x after
//! another. The same code for every format.

use std::arch::x86_64::*;

use super::{
    super::{COLUMNS, NOTHING, Octet, Rows, tree},
    Weights,
    scales::Scaled,
    words::{Unpack, Unpacked},
};
use crate::{quantized::CHUNK, quantized::packed::PackedRow, quantized_linear::SUMS, simd};

/// Rows of x from which on turning the weight round pays.
pub(super) const LEAST: usize = 8;

/// Rows of x that share an unpacked octet. Their sums stay in the second-level cache.
const BLOCK: usize = 128;

/// Pairs of an octet's integers.
const PAIRS: usize = SUMS * CHUNK / 2;

/// The sums of a row of x and [`COLUMNS`] rows of the weight.
type Sums = [[f32; COLUMNS]; SUMS];

/// An octet of [`COLUMNS`] rows of the weight.
#[repr(C, align(64))]
struct Tile {
    /// Pairs of integers, ordered as those of an octet of x.
    words: [[i32; COLUMNS]; PAIRS],
    /// By halves and chunks.
    scale: [Sums; 2],
    offset: [Sums; 2],
}

static AFTER: Octet = NOTHING;

#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn multiply(weights: &Weights<'_>, unpack: Unpack, x: &Rows, products: &mut [[f32; COLUMNS]]) {
    let vnni = simd::level() >= simd::Level::Avx512 && is_x86_feature_detected!("avx512vnni");
    let mut tile = Tile { words: [[0; COLUMNS]; PAIRS], scale: [[[0.0; COLUMNS]; SUMS]; 2], offset: [[[0.0; COLUMNS]; SUMS]; 2] };
    let mut unpacked = [[[_mm256_setzero_si256(); SUMS / 2]; 4]; COLUMNS];
    let mut scaled = [Scaled::default(); COLUMNS];
    let mut sums = vec![[[0.0; COLUMNS]; SUMS]; products.len().min(BLOCK).next_multiple_of(8)];
    for (block, products) in products.chunks_mut(BLOCK).enumerate() {
        sums.fill([[0.0; COLUMNS]; SUMS]);
        for octet in 0..x.octets() {
            for ((bytes, unpacked), scaled) in weights.rows.clone().zip(&mut unpacked).zip(&mut scaled) {
                let row = PackedRow { bytes, places: weights.places };
                // SAFETY: this function has the level that they ask for.
                unsafe { (unpack(weights, row, octet, unpacked), (weights.scales)(row, weights.chunks, octet, std::slice::from_mut(scaled))) };
            }
            turn(&unpacked, &mut tile.words);
            for half in 0..if weights.halves { 2 } else { 1 } {
                for (chunk, column) in (0..SUMS).flat_map(|chunk| (0..COLUMNS).map(move |column| (chunk, column))) {
                    tile.scale[half][chunk][column] = scaled[column].scale[half][chunk];
                    tile.offset[half][chunk][column] = scaled[column].offset[half][chunk];
                }
            }
            let row = |index: usize| if index < products.len() { &x.row(BLOCK * block + index)[octet] } else { &AFTER };
            let mut first = 0;
            while first < products.len() {
                if vnni && products.len() - first > 4 {
                    // SAFETY: the processor has these instructions.
                    unsafe { add_512::<8>(weights, &tile, std::array::from_fn(|i| row(first + i)), &mut sums[first..]) };
                    first += 8;
                } else if vnni {
                    // SAFETY: as above.
                    unsafe { add_512::<4>(weights, &tile, std::array::from_fn(|i| row(first + i)), &mut sums[first..]) };
                    first += 4;
                } else {
                    add_256::<4>(weights, &tile, std::array::from_fn(|i| row(first + i)), &mut sums[first..]);
                    first += 4;
                }
            }
        }
        for (products, sums) in products.iter_mut().zip(&sums) {
            *products = std::array::from_fn(|column| tree(sums.map(|sum| sum[column])));
        }
    }
}

/// Rows to columns, eight by eight.
#[inline]
#[target_feature(enable = "avx2")]
fn turn(from: &[Unpacked; COLUMNS], to: &mut [[i32; COLUMNS]; PAIRS]) {
    for (at, to) in to.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        for (part, from) in from.as_chunks::<8>().0.iter().enumerate() {
            let (mut rows, mut fours) = ([_mm256_setzero_si256(); 8], [[_mm256_setzero_si256(); 4]; 2]);
            for (row, from) in rows.iter_mut().zip(from) {
                *row = from[at / 4][at % 4];
            }
            // Word w and, in the upper lane, w + 4 of four rows.
            for (fours, [a, b, c, d]) in fours.iter_mut().zip(rows.as_chunks::<4>().0) {
                let low = [_mm256_unpacklo_epi32(*a, *b), _mm256_unpacklo_epi32(*c, *d)];
                let high = [_mm256_unpackhi_epi32(*a, *b), _mm256_unpackhi_epi32(*c, *d)];
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
fn add_512<const ROWS: usize>(weights: &Weights<'_>, tile: &Tile, x: [&Octet; ROWS], sums: &mut [Sums]) {
    let (halves, sums) = (weights.halves, &mut sums[..ROWS]);
    for chunk in 0..SUMS {
        for half in 0..if halves { 2 } else { 1 } {
            let mut products = [_mm512_setzero_si512(); ROWS];
            for pair in (if halves { 2 * half..2 * half + 2 } else { 0..4 }).flat_map(|at| (0..4).map(move |pair| (SUMS * at + chunk) * 4 + pair)) {
                // SAFETY: sixteen columns.
                let words = unsafe { _mm512_loadu_si512(tile.words[pair].as_ptr().cast()) };
                for row in 0..ROWS {
                    // SAFETY: an octet has so many pairs, and is aligned.
                    let q = unsafe { x[row].q.as_ptr().cast::<i32>().add(pair).read() };
                    products[row] = _mm512_dpwssd_epi32(products[row], words, _mm512_set1_epi32(q));
                }
            }
            // SAFETY: sixteen columns.
            let [a, b] = unsafe { [_mm512_loadu_ps(tile.scale[half][chunk].as_ptr()), _mm512_loadu_ps(tile.offset[half][chunk].as_ptr())] };
            for row in 0..ROWS {
                let (s, to) = (_mm512_set1_ps(x[row].scales[chunk]), sums[row][chunk].as_mut_ptr());
                // SAFETY: sixteen columns.
                let mut sum = unsafe { _mm512_loadu_ps(to) };
                sum = _mm512_fmadd_ps(_mm512_mul_ps(a, s), _mm512_cvtepi32_ps(products[row]), sum);
                if weights.offsets {
                    sum = _mm512_fmadd_ps(_mm512_mul_ps(b, s), _mm512_set1_ps(total(halves, half, chunk, x[row])), sum);
                }
                // SAFETY: as above.
                unsafe { _mm512_storeu_ps(to, sum) };
            }
        }
    }
}

/// The same with half as many columns at a time.
#[target_feature(enable = "avx2,fma,f16c")]
fn add_256<const ROWS: usize>(weights: &Weights<'_>, tile: &Tile, x: [&Octet; ROWS], sums: &mut [Sums]) {
    let (halves, sums) = (weights.halves, &mut sums[..ROWS]);
    for chunk in 0..SUMS {
        for half in 0..if halves { 2 } else { 1 } {
            let mut products = [[_mm256_setzero_si256(); 2]; ROWS];
            for pair in (if halves { 2 * half..2 * half + 2 } else { 0..4 }).flat_map(|at| (0..4).map(move |pair| (SUMS * at + chunk) * 4 + pair)) {
                let words = tile.words[pair].as_ptr();
                // SAFETY: sixteen columns.
                let words = unsafe { [_mm256_loadu_si256(words.cast()), _mm256_loadu_si256(words.add(8).cast())] };
                for row in 0..ROWS {
                    // SAFETY: an octet has so many pairs, and is aligned.
                    let q = _mm256_set1_epi32(unsafe { x[row].q.as_ptr().cast::<i32>().add(pair).read() });
                    products[row][0] = _mm256_add_epi32(products[row][0], _mm256_madd_epi16(words[0], q));
                    products[row][1] = _mm256_add_epi32(products[row][1], _mm256_madd_epi16(words[1], q));
                }
            }
            for part in 0..2 {
                let (a, b) = (&tile.scale[half][chunk][8 * part..][..8], &tile.offset[half][chunk][8 * part..][..8]);
                // SAFETY: eight columns each.
                let [a, b] = unsafe { [_mm256_loadu_ps(a.as_ptr()), _mm256_loadu_ps(b.as_ptr())] };
                for row in 0..ROWS {
                    let (s, to) = (_mm256_set1_ps(x[row].scales[chunk]), &mut sums[row][chunk][8 * part..][..8]);
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
