//! Many rows of x: an octet of [`COLUMNS`] rows of the weight is unpacked and turned round, so that a lane is a row of the weight, and meets one row of x after
//! another. The same code for every format.

use std::arch::x86_64::*;

use super::{
    super::{
        COLUMNS,
        integers::{NOTHING, Octet, Rows},
    },
    Weights,
    scales::Scaled,
};
use crate::{quantized::packed::PackedRow, quantized_linear::SUMS};

/// Rows of x that share an unpacked octet. Their sums stay in the second-level cache.
const BLOCK: usize = 128;

/// Rows of x of which a group has sums side by side.
pub(super) const GROUP: usize = 8;

/// An octet of [`COLUMNS`] rows of the weight.
#[repr(C, align(64))]
pub(super) struct Tile<const WORDS: usize> {
    /// Integers, as an octet is unpacked.
    pub(super) words: [[i32; COLUMNS]; WORDS],
    /// Scales, then offsets, each by halves and chunks.
    pub(super) scaled: [[[[f32; COLUMNS]; SUMS]; 2]; 2],
}

/// A unit's way to multiply.
pub(super) struct Way<const WORDS: usize, S> {
    /// The integers of an octet of a row of the weight.
    pub(super) unpack: unsafe fn(&Weights<'_>, PackedRow<'_>, usize, &mut [i32; WORDS]),
    /// The sums of at most [`GROUP`] rows of x with a tile's products.
    pub(super) add: unsafe fn(&Weights<'_>, &Tile<WORDS>, &[Octet], &mut [S; GROUP]),
    pub(super) zero: S,
    /// Products of their sums.
    pub(super) finish: fn(&mut S) -> [f32; COLUMNS],
}

/// So many rows from `first` on, of nothing after the last.
#[inline(always)]
pub(super) fn rows<const ROWS: usize>(x: &[Octet], first: usize) -> [&Octet; ROWS] {
    static AFTER: Octet = NOTHING;
    std::array::from_fn(|row| x.get(first + row).unwrap_or(&AFTER))
}

/// # Safety
/// The processor has AVX2, FMA, F16C and what the way asks for.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn multiply<const WORDS: usize, S: Copy>(way: &Way<WORDS, S>, weights: &Weights<'_>, x: &Rows, products: &mut [[f32; COLUMNS]]) {
    let mut rows = ([[0; WORDS]; COLUMNS], [Scaled::default(); COLUMNS]);
    let mut tile = Tile { words: [[0; COLUMNS]; WORDS], scaled: [[[[0.0; COLUMNS]; SUMS]; 2]; 2] };
    let mut sums = vec![[way.zero; GROUP]; products.len().min(BLOCK).div_ceil(GROUP)];
    for (block, products) in products.chunks_mut(BLOCK).enumerate() {
        sums.fill([way.zero; GROUP]);
        for octet in 0..x.chunks.div_ceil(SUMS) {
            for (index, (unpacked, scaled)) in rows.0.iter_mut().zip(&mut rows.1).enumerate().take(weights.count) {
                let row = weights.row(index);
                // SAFETY: this function has the level that they ask for.
                unsafe { ((way.unpack)(weights, row, octet, unpacked), (weights.scales)(row, weights.chunks, octet, std::slice::from_mut(scaled))) };
            }
            turn(&rows.0, &mut tile.words);
            turn::<{ 4 * SUMS }>(bytemuck::cast_ref(&rows.1), bytemuck::cast_mut(&mut tile.scaled));
            let x = &x.octet(octet)[BLOCK * block..][..products.len()];
            for (x, sums) in x.chunks(GROUP).zip(&mut sums) {
                // SAFETY: the caller's promise.
                unsafe { (way.add)(weights, &tile, x, sums) };
            }
        }
        for (products, sums) in products.iter_mut().zip(sums.as_flattened_mut()) {
            *products = (way.finish)(sums);
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
