//! What the elements of chunks share, an octet at a time.

use std::arch::x86_64::*;

use crate::{
    quantized::{
        CHUNK,
        format::{Blocks, Scales},
        packed::PackedRow,
    },
    quantized_linear::SUMS,
};

/// The scales and offsets of an octet's chunks, for each of their halves where these differ, else for the first. Those after a row's end are finite.
#[derive(Clone, Copy, Default, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(32))]
pub(super) struct Scaled {
    pub(super) scale: [[f32; SUMS]; 2],
    pub(super) offset: [[f32; SUMS]; 2],
}

/// Those of the octets from `first` on, of a row of `chunks`.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn of<F: Blocks>(row: PackedRow<'_>, chunks: usize, first: usize, to: &mut [Scaled]) {
    let blocks = F::ELEMENTS / CHUNK;
    for (octet, to) in (first..).zip(to) {
        let chunk = SUMS * octet;
        let count = SUMS.min(chunks - chunk);
        let numbers = row.places.numbers + 2 * F::NUMBERS.len() * (chunk / blocks);
        let numbers = part(row.bytes, numbers, 2 * F::NUMBERS.len() * (count / blocks));
        let subscales = part(row.bytes, row.places.subscales + F::SUBSCALES * chunk, F::SUBSCALES * count);
        let mut widened = [0f32; 2 * SUMS];
        let halves = [_mm256_castsi256_si128(numbers), _mm256_extracti128_si256::<1>(numbers)];
        for (widened, numbers) in widened.as_chunks_mut::<8>().0.iter_mut().zip(halves) {
            let floats =
                if F::BF16 { _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(numbers))) } else { _mm256_cvtph_ps(numbers) };
            // SAFETY: eight floats.
            unsafe { _mm256_storeu_ps(widened.as_mut_ptr(), floats) };
        }
        let mut bytes = [0u8; 4 * SUMS];
        // SAFETY: 32 bytes.
        unsafe { _mm256_storeu_si256(bytes.as_mut_ptr().cast(), subscales) };
        for chunk in 0..SUMS {
            let number = |i: usize| if i < F::NUMBERS.len() { widened[F::NUMBERS.len() * (chunk / blocks) + i] } else { 0.0 };
            let subscale = |i: usize| if i < F::SUBSCALES { bytes[F::SUBSCALES * chunk + i] } else { 0 };
            let Scales { scale, offset } = F::scales([number(0), number(1)], [subscale(0), subscale(1)]);
            for half in 0..CHUNK / F::GROUP {
                to.scale[half][chunk] = scale[half];
                if F::OFFSETS {
                    to.offset[half][chunk] = offset[half];
                }
            }
        }
    }
}

/// The first `count` bytes from a place on, then zeros.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn part(bytes: &[u8], at: usize, count: usize) -> __m256i {
    let (bytes, mut room) = (&bytes[at..], [0; 32]);
    let bytes = match bytes.first_chunk() {
        Some(bytes) => bytes,
        None => {
            room[..count].copy_from_slice(&bytes[..count]);
            &room
        }
    };
    const PLACES: [i8; 32] = {
        let mut places = [0; 32];
        let mut at = 0;
        while at < 32 {
            places[at] = at as i8;
            at += 1;
        }
        places
    };
    // SAFETY: 32 bytes each.
    let (bytes, places) = unsafe { (_mm256_loadu_si256(bytes.as_ptr().cast()), _mm256_loadu_si256(PLACES.as_ptr().cast())) };
    _mm256_and_si256(bytes, _mm256_cmpgt_epi8(_mm256_set1_epi8(count as i8), places))
}
