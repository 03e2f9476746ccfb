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
        let (mut numbers, mut subscales) = ([0u8; 4 * SUMS], [0u8; 2 * SUMS]);
        let at = row.places.numbers + 2 * F::NUMBERS.len() * (chunk / blocks);
        copy(&mut numbers, &row.bytes[at..], 2 * F::NUMBERS.len() * (SUMS / blocks), 2 * F::NUMBERS.len() * (count / blocks));
        copy(&mut subscales, &row.bytes[row.places.subscales + F::SUBSCALES * chunk..], F::SUBSCALES * SUMS, F::SUBSCALES * count);
        let mut widened = [0f32; 2 * SUMS];
        for (widened, numbers) in widened.as_chunks_mut::<8>().0.iter_mut().zip(numbers.as_chunks::<16>().0) {
            // SAFETY: eight numbers.
            let numbers = unsafe { _mm_loadu_si128(numbers.as_ptr().cast()) };
            let floats =
                if F::BF16 { _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(numbers))) } else { _mm256_cvtph_ps(numbers) };
            // SAFETY: eight floats.
            unsafe { _mm256_storeu_ps(widened.as_mut_ptr(), floats) };
        }
        for chunk in 0..SUMS {
            let number = |i: usize| if i < F::NUMBERS.len() { widened[F::NUMBERS.len() * (chunk / blocks) + i] } else { 0.0 };
            let subscale = |i: usize| if i < F::SUBSCALES { subscales[F::SUBSCALES * chunk + i] } else { 0 };
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

/// The first `count` bytes, which are `all` but at a row's end: a number of bytes that the compiler knows needs no call.
#[inline(always)]
fn copy(to: &mut [u8], from: &[u8], all: usize, count: usize) {
    if count == all { to[..all].copy_from_slice(&from[..all]) } else { to[..count].copy_from_slice(&from[..count]) }
}
