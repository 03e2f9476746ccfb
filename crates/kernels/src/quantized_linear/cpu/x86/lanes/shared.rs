//! What the elements of an octet's chunks share, in the order of lanes.

use std::arch::x86_64::*;

use super::Parts;
use crate::quantized::{CHUNK, format::Blocks};

/// Scales and offsets, for each half of the chunks or for the whole of them.
pub(super) struct Shared {
    pub(super) scale: [__m256; 2],
    pub(super) offset: [__m256; 2],
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn shared<F: Blocks>(Parts { subscales, numbers, .. }: &Parts<'_>) -> Shared {
    // SAFETY: there are 16 bytes.
    let bytes = |from: &[u8]| unsafe { _mm_loadu_si128(from[..16].as_ptr().cast()) };
    let wide = |numbers: __m128i| match F::BF16 {
        true => _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(numbers))),
        false => _mm256_cvtph_ps(numbers),
    };
    // Of a block of 256 elements, the first and the second in turn.
    let both = |numbers: &[u8]| wide(_mm_set1_epi32(i32::from_le_bytes([numbers[0], numbers[1], numbers[2], numbers[3]])));
    let negative = |offset: __m256| _mm256_xor_ps(offset, _mm256_set1_ps(-0.0));
    let none = [_mm256_setzero_ps(); 2];
    // The bytes of two subscales of each chunk, moved up by so many bytes.
    let sub = |which: i32, up: i32| {
        let place = |chunk: i32| (2 * chunk + which) << (8 * up) | if up == 0 { -256 } else { 0x80_8080 };
        let places = _mm256_setr_epi32(place(0), place(2), place(4), place(6), place(1), place(3), place(5), place(7));
        _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(bytes(subscales)), places)
    };
    match (F::SUBSCALES, F::GROUP < CHUNK, F::OFFSETS) {
        (0, _, false) => {
            let lanes = _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
            Shared { scale: [wide(_mm_shuffle_epi8(bytes(numbers), lanes)); 2], offset: none }
        }
        (0, _, true) => {
            // Scales of even and of odd chunks, then their offsets, of four chunks each.
            let lanes = _mm_setr_epi8(0, 1, 8, 9, 4, 5, 12, 13, 2, 3, 10, 11, 6, 7, 14, 15);
            let (a, b) = (_mm_shuffle_epi8(bytes(numbers), lanes), _mm_shuffle_epi8(bytes(&numbers[16..]), lanes));
            Shared { scale: [wide(_mm_unpacklo_epi32(a, b)); 2], offset: [wide(_mm_unpackhi_epi32(a, b)); 2] }
        }
        (_, false, _) => {
            let numbers = both(numbers);
            let scale = _mm256_mul_ps(_mm256_moveldup_ps(numbers), _mm256_cvtepi32_ps(sub(0, 0)));
            let offset = _mm256_mul_ps(_mm256_movehdup_ps(numbers), _mm256_cvtepi32_ps(sub(1, 0)));
            Shared { scale: [scale; 2], offset: [negative(offset); 2] }
        }
        (_, true, false) => {
            let number = wide(_mm_set1_epi16(i16::from_le_bytes([numbers[0], numbers[1]])));
            let scale = |half| _mm256_mul_ps(number, _mm256_cvtepi32_ps(_mm256_srai_epi32::<24>(sub(half, 3))));
            Shared { scale: [scale(0), scale(1)], offset: none }
        }
        (_, true, true) => {
            let numbers = both(numbers);
            let low = |half| _mm256_and_si256(sub(half, 0), _mm256_set1_epi32(15));
            let scale = |half| _mm256_mul_ps(_mm256_moveldup_ps(numbers), _mm256_cvtepi32_ps(low(half)));
            let high = |half| _mm256_srli_epi32::<4>(sub(half, 0));
            let offset = |half| negative(_mm256_mul_ps(_mm256_movehdup_ps(numbers), _mm256_cvtepi32_ps(high(half))));
            Shared { scale: [scale(0), scale(1)], offset: [offset(0), offset(1)] }
        }
    }
}
