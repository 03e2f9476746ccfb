//! The fields of an octet as bytes without a sign, four neighbours of each chunk together.

use std::arch::x86_64::*;

use super::Planes;
use crate::quantized::{format::Blocks, packed::planes};

/// Word `d` of a lane is what elements `4 d` to `4 d + 3` of its chunk are.
pub(super) type Words = [__m256i; 8];

/// Those of a format's planes.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn words<F: Blocks>([first, second]: Planes<'_>) -> Words {
    let bits = const { planes(F::BITS) };
    let words = if bits[0] == 4 { fours(first) } else { twos(first, 0) };
    let high = match bits[1] {
        1 => ones(second, bits[0] as i32),
        2 => twos(second, bits[0] as i32),
        _ => return words,
    };
    let mut all = words;
    for word in 0..8 {
        all[word] = _mm256_or_si256(words[word], high[word]);
    }
    all
}

/// Of a plane of four bits: words within 128 bits are turned round, so that lanes are chunks.
#[inline]
#[target_feature(enable = "avx2")]
fn fours(plane: &[u8]) -> Words {
    let plane = &plane[..128];
    // SAFETY: there are 128 bytes.
    let load = |pair: usize| unsafe { _mm256_loadu_si256(plane.as_ptr().add(32 * pair).cast()) };
    let (a, b, c, d) = (load(0), load(1), load(2), load(3));
    let low = [_mm256_unpacklo_epi32(a, b), _mm256_unpacklo_epi32(c, d)];
    let high = [_mm256_unpackhi_epi32(a, b), _mm256_unpackhi_epi32(c, d)];
    let turned = [
        _mm256_unpacklo_epi64(low[0], low[1]),
        _mm256_unpackhi_epi64(low[0], low[1]),
        _mm256_unpacklo_epi64(high[0], high[1]),
        _mm256_unpackhi_epi64(high[0], high[1]),
    ];
    let (mut words, mask) = ([mask(0, 0); 8], mask(4, 0));
    for word in 0..4 {
        words[word] = _mm256_and_si256(turned[word], mask);
        words[4 + word] = _mm256_and_si256(_mm256_srli_epi16::<4>(turned[word]), mask);
    }
    words
}

/// Of a plane of two bits, moved up: a chunk has two words of it, each with a field of every second word.
#[inline]
#[target_feature(enable = "avx2")]
fn twos(plane: &[u8], up: i32) -> Words {
    let plane = &plane[..64];
    // SAFETY: there are 64 bytes.
    let load = |four: usize| unsafe { _mm256_loadu_ps(plane.as_ptr().add(32 * four).cast()) };
    let (a, b) = (load(0), load(1));
    let lanes = _mm256_setr_epi32(0, 4, 2, 6, 1, 5, 3, 7);
    let even = _mm256_permutevar8x32_epi32(_mm256_castps_si256(_mm256_shuffle_ps::<0b10_00_10_00>(a, b)), lanes);
    let odd = _mm256_permutevar8x32_epi32(_mm256_castps_si256(_mm256_shuffle_ps::<0b11_01_11_01>(a, b)), lanes);
    let mut words = [mask(0, 0); 8];
    for word in 0..8 {
        let from = if word % 2 == 0 { even } else { odd };
        words[word] = _mm256_and_si256(moved(from, up - word as i32 / 2 * 2), mask(2, up));
    }
    words
}

/// Of a plane of one bit, moved up: a chunk has one word of it, with a field of every word.
#[inline]
#[target_feature(enable = "avx2")]
fn ones(plane: &[u8], up: i32) -> Words {
    let plane = &plane[..32];
    // SAFETY: there are 32 bytes.
    let plane = unsafe { _mm256_loadu_si256(plane.as_ptr().cast()) };
    let plane = _mm256_permutevar8x32_epi32(plane, _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7));
    let mut words = [mask(0, 0); 8];
    for word in 0..8 {
        words[word] = _mm256_and_si256(moved(plane, up - word as i32), mask(1, up));
    }
    words
}

/// Bits moved up, or down.
#[inline]
#[target_feature(enable = "avx2")]
fn moved(bits: __m256i, by: i32) -> __m256i {
    let count = _mm_cvtsi32_si128(by.abs());
    if by > 0 { _mm256_sll_epi16(bits, count) } else { _mm256_srl_epi16(bits, count) }
}

/// So many bits of each byte, moved up.
#[inline]
#[target_feature(enable = "avx2")]
fn mask(bits: u32, up: i32) -> __m256i {
    _mm256_set1_epi8((((1u32 << bits) - 1) << up) as i8)
}
