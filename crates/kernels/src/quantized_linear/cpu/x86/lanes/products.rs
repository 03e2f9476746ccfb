//! Integer products of an octet's chunks.

use std::arch::x86_64::*;

use super::{super::super::integers::Octet, words::Words};
use crate::quantized::{CHUNK, format::Blocks};

/// For each half of the chunks, or for the whole of them.
pub(super) type Products = [__m256i; 2];

/// By `vpmaddubsw`, of planes of 16 bits or, `EIGHT`, of 8.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn avx2<F: Blocks, const EIGHT: bool>(words: &Words, x: &Octet) -> Products {
    let (mut products, count) = ([_mm256_setzero_si256(); 2], F::GROUP / 4);
    for group in 0..CHUNK / F::GROUP {
        // Sums of 16 bits, and what they add up to.
        let (mut highs, mut lows, mut all) = (_mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256());
        for at in 0..count {
            let word = count * group + at;
            // SAFETY: an octet has so many integers, and is aligned.
            let x = |plane: usize| unsafe { _mm256_load_si256(x.lanes()[plane][word].as_ptr().cast()) };
            highs = _mm256_add_epi16(highs, _mm256_maddubs_epi16(words[word], x(0)));
            if is_full(at, count, const { fit::<F>(128) }) {
                all = _mm256_add_epi32(all, _mm256_madd_epi16(highs, _mm256_set1_epi16(if EIGHT { 1 } else { 256 })));
                highs = _mm256_setzero_si256();
            }
            if EIGHT {
                continue;
            }
            lows = _mm256_add_epi16(lows, _mm256_maddubs_epi16(x(1), words[word]));
            if is_full(at, count, const { fit::<F>(255) }) {
                all = _mm256_add_epi32(all, _mm256_madd_epi16(lows, _mm256_set1_epi16(1)));
                lows = _mm256_setzero_si256();
            }
        }
        products[group] = all;
    }
    products
}

/// How many times the sum of two products of a field and so much fits into 16 bits.
const fn fit<F: Blocks>(most: usize) -> usize {
    i16::MAX as usize / (2 * most * ((1 << F::BITS) - 1))
}

/// Whether a sum holds no more after this one.
#[inline(always)]
fn is_full(at: usize, count: usize, fit: usize) -> bool {
    (at + 1).is_multiple_of(fit) || at + 1 == count
}

/// By VNNI, likewise.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(super) fn vnni<F: Blocks, const EIGHT: bool>(words: &Words, x: &Octet) -> Products {
    let (mut products, count) = ([_mm256_setzero_si256(); 2], F::GROUP / 4);
    for group in 0..CHUNK / F::GROUP {
        // Two sums of each, for one would wait for itself.
        let (mut highs, mut lows) = ([_mm256_setzero_si256(); 2], [_mm256_setzero_si256(); 2]);
        for word in count * group..count * (group + 1) {
            // SAFETY: an octet has so many integers, and is aligned.
            let x = |plane: usize| unsafe { _mm256_load_si256(x.lanes()[plane][word].as_ptr().cast()) };
            highs[word % 2] = _mm256_dpbusd_epi32(highs[word % 2], words[word], x(0));
            if !EIGHT {
                lows[word % 2] = _mm256_dpbusd_epi32(lows[word % 2], x(1), words[word]);
            }
        }
        let [high, low] = [highs, lows].map(|[even, odd]| _mm256_add_epi32(even, odd));
        products[group] = if EIGHT { high } else { _mm256_add_epi32(_mm256_slli_epi32::<8>(high), low) };
    }
    products
}
