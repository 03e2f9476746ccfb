//! Fields as 16-bit words, in the order of an octet of x: of two chunks at a time, which are a register's lanes, a word of two bytes has neighbours.

use std::arch::x86_64::*;

use super::Weights;
use crate::{
    quantized::{CHUNK, packed::PackedRow},
    quantized_linear::SUMS,
};

/// Of an octet: by pairs of chunks, then by the places that [`place`](super::super::place) sets apart.
pub(super) type Words = [[__m256i; 4]; SUMS / 2];

/// Pairs of an octet's integers.
pub(super) const PAIRS: usize = SUMS * CHUNK / 2;

pub(super) type Unpack = unsafe fn(&Weights<'_>, PackedRow<'_>, usize, &mut [i32; PAIRS]);

/// The integers of an octet, in the order of an octet of x: its fields less the zero.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn unpack<const FIRST: i32, const SECOND: i32, const TABLE: bool>(
    weights: &Weights<'_>,
    row: PackedRow<'_>,
    octet: usize,
    to: &mut [i32; PAIRS],
) {
    let (words, zero) = (words::<FIRST, SECOND, TABLE>(weights, row, octet), _mm256_set1_epi16(weights.zero));
    for (index, to) in to.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let integers = _mm256_sub_epi16(words[index % (SUMS / 2)][index / (SUMS / 2)], zero);
        // SAFETY: eight pairs.
        unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), integers) };
    }
}

/// The fields of an octet, or what they choose; zeros after the row's end.
///
/// Loops and not iterators: what takes a closure is compiled without these instructions, and would not be inlined.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn words<const FIRST: i32, const SECOND: i32, const TABLE: bool>(weights: &Weights<'_>, row: PackedRow<'_>, octet: usize) -> Words {
    let [first, second] = row.places.planes;
    let (first_bytes, second_bytes) = (4 * FIRST as usize, 4 * SECOND as usize);
    let (first, second) = (&row.bytes[first + SUMS * first_bytes * octet..], &row.bytes[second + SUMS * second_bytes * octet..]);
    let count = SUMS.min(weights.chunks - SUMS * octet);
    let mut room;
    let (first, second) = if count == SUMS {
        (&first[..SUMS * first_bytes], &second[..SUMS * second_bytes])
    } else {
        room = [[0; SUMS * CHUNK]; 2];
        room[0][..first_bytes * count].copy_from_slice(&first[..first_bytes * count]);
        room[1][..second_bytes * count].copy_from_slice(&second[..second_bytes * count]);
        (&room[0][..SUMS * first_bytes], &room[1][..SUMS * second_bytes])
    };
    // SAFETY: 16 bytes.
    let table = _mm256_broadcastsi128_si256(unsafe { _mm_loadu_si128(weights.table.as_ptr().cast()) });
    let mut words = [[_mm256_setzero_si256(); 4]; SUMS / 2];
    for pair in 0..SUMS / 2 {
        // SAFETY: `FIRST` and `SECOND` are the bits of the planes, and each slice has the fields of two chunks.
        let mut fields = unsafe { plane::<FIRST, 0>(&first[8 * FIRST as usize * pair..][..8 * FIRST as usize]) };
        if SECOND > 0 {
            // SAFETY: as above.
            let high = unsafe { plane::<SECOND, FIRST>(&second[8 * SECOND as usize * pair..][..8 * SECOND as usize]) };
            fields = [_mm256_or_si256(fields[0], high[0]), _mm256_or_si256(fields[1], high[1])];
        }
        if TABLE {
            fields = [_mm256_shuffle_epi8(table, fields[0]), _mm256_shuffle_epi8(table, fields[1])];
        }
        for half in 0..2 {
            let [even, odd] = &mut words[pair].as_chunks_mut::<2>().0[half];
            if TABLE || FIRST == 8 {
                *even = _mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(fields[half]));
                *odd = _mm256_srai_epi16::<8>(fields[half]);
            } else {
                *even = _mm256_and_si256(fields[half], _mm256_set1_epi16(0xff));
                *odd = _mm256_srli_epi16::<8>(fields[half]);
            }
        }
    }
    words
}

/// The fields of a plane of so many bits, moved up, as bytes: of each of two chunks the first 16, and the others.
///
/// # Safety
/// There are `8 * BITS` bytes.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn plane<const BITS: i32, const UP: i32>(bytes: &[u8]) -> [__m256i; 2] {
    let (from, mask) = (bytes.as_ptr(), _mm256_set1_epi8((((1u16 << BITS) - 1) << UP) as i8));
    // Planes of few bits are repeated, and moved by what the place of a field in its byte asks for.
    let (up, left) = (_mm_cvtsi32_si128(UP), 4 - UP);
    let [low, high] = match BITS {
        8 => {
            // SAFETY: there are 64 bytes.
            let [one, other] = unsafe { [_mm256_loadu_si256(from.cast()), _mm256_loadu_si256(from.add(CHUNK).cast())] };
            return [_mm256_permute2x128_si256::<0x20>(one, other), _mm256_permute2x128_si256::<0x31>(one, other)];
        }
        4 => {
            // SAFETY: there are 32 bytes.
            let both = unsafe { _mm256_loadu_si256(from.cast()) };
            [both, _mm256_srli_epi16::<4>(both)]
        }
        2 => {
            // SAFETY: there are 16 bytes.
            let both = _mm256_castsi128_si256(unsafe { _mm_loadu_si128(from.cast()) });
            let repeated = _mm256_permute4x64_epi64::<0b01_01_00_00>(both);
            let by = _mm256_setr_epi64x(0, 2, 0, 2);
            let more = _mm256_add_epi64(by, _mm256_set1_epi64x(left.into()));
            [_mm256_srlv_epi64(_mm256_sll_epi64(repeated, up), by), _mm256_srlv_epi64(repeated, more)]
        }
        _ => {
            // SAFETY: there are 8 bytes.
            let both = _mm256_castsi128_si256(unsafe { _mm_loadl_epi64(from.cast()) });
            let repeated = _mm256_permutevar8x32_epi32(both, _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1));
            let by = _mm256_setr_epi32(0, 1, 2, 3, 0, 1, 2, 3);
            let more = _mm256_add_epi32(by, _mm256_set1_epi32(left));
            [_mm256_srlv_epi32(_mm256_sll_epi32(repeated, up), by), _mm256_srlv_epi32(repeated, more)]
        }
    };
    [_mm256_and_si256(low, mask), _mm256_and_si256(high, mask)]
}
