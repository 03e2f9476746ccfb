//! Fields of an octet of a row as bytes, by halves of chunks, as the layout of planes has an octet of x.

use std::{arch::x86_64::*, mem::MaybeUninit};

use super::{Weights, is_signed};
use crate::{
    quantized::{CHUNK, packed::PackedRow},
    quantized_linear::SUMS,
};

/// Of an octet, by pairs of chunks: their first 16 fields, and the others.
pub(super) type Fields = [[__m256i; 2]; SUMS / 2];

/// Of an octet, by four chunks: their first 16 fields, and the others.
pub(super) type WideFields = [[__m512i; 2]; SUMS / 4];

/// The planes of an octet that ends the weight.
type Room = [[u8; SUMS * CHUNK]; 2];

/// The planes of an octet; after the row's end anything.
#[inline(always)]
fn octet_planes<'a, const FIRST: i32, const SECOND: i32>(
    weights: &Weights<'_>,
    row: PackedRow<'a>,
    octet: usize,
    room: &'a mut MaybeUninit<Room>,
) -> [&'a [u8]; 2] {
    let [first, second] = row.places.planes;
    let (first_bytes, second_bytes) = (4 * FIRST as usize, 4 * SECOND as usize);
    let [first, second] = [first + SUMS * first_bytes * octet, second + SUMS * second_bytes * octet];
    let plane = |start: usize, bytes: usize| row.bytes.get(start..)?.get(..SUMS * bytes);
    let others = if SECOND > 0 { plane(second, second_bytes) } else { Some(&[][..]) };
    if let (Some(first), Some(second)) = (plane(first, first_bytes), others) {
        return [first, second];
    }
    let count = SUMS.min(weights.chunks - SUMS * octet);
    let room = room.write([[0; SUMS * CHUNK]; 2]);
    room[0][..first_bytes * count].copy_from_slice(&row.bytes[first..][..first_bytes * count]);
    room[1][..second_bytes * count].copy_from_slice(&row.bytes[second..][..second_bytes * count]);
    [&room[0][..SUMS * first_bytes], &room[1][..SUMS * second_bytes]]
}

/// The fields of an octet's first `PAIRS` pairs of chunks, or what they choose.
///
/// Loops and not iterators: what takes a closure is compiled without these instructions, and would not be inlined.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn fields<const FIRST: i32, const SECOND: i32, const TABLE: bool, const PAIRS: usize>(
    weights: &Weights<'_>,
    row: PackedRow<'_>,
    octet: usize,
) -> Fields {
    let mut room = MaybeUninit::uninit();
    let [first, second] = octet_planes::<FIRST, SECOND>(weights, row, octet, &mut room);
    // SAFETY: 16 bytes.
    let table = _mm256_broadcastsi128_si256(unsafe { _mm_loadu_si128(weights.table.as_ptr().cast()) });
    let mut all = [[_mm256_setzero_si256(); 2]; SUMS / 2];
    for pair in 0..PAIRS {
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
        all[pair] = fields;
    }
    all
}

/// The bytes of fields as words: those of even and of odd places.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn words<const SIGNED: bool>(fields: __m256i) -> [__m256i; 2] {
    if SIGNED {
        [_mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(fields)), _mm256_srai_epi16::<8>(fields)]
    } else {
        [_mm256_and_si256(fields, _mm256_set1_epi16(0xff)), _mm256_srli_epi16::<8>(fields)]
    }
}

/// The integers of an octet as words, in the order that an octet of x has them in: its fields less the zero.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn unpack_words<const FIRST: i32, const SECOND: i32, const TABLE: bool>(
    weights: &Weights<'_>,
    row: PackedRow<'_>,
    octet: usize,
    to: &mut [i32; SUMS * CHUNK / 2],
) {
    let (fields, zero) = (fields::<FIRST, SECOND, TABLE, { SUMS / 2 }>(weights, row, octet), _mm256_set1_epi16(weights.zero));
    for pair in 0..SUMS / 2 {
        for half in 0..2 {
            let words = if is_signed(FIRST, TABLE) { words::<true>(fields[pair][half]) } else { words::<false>(fields[pair][half]) };
            for odd in 0..2 {
                let to = &mut to[8 * ((2 * half + odd) * (SUMS / 2) + pair)..][..8];
                // SAFETY: eight pairs.
                unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), _mm256_sub_epi16(words[odd], zero)) };
            }
        }
    }
}

/// The fields of an octet as bytes without a sign: of each pair of chunks the first halves, then the others.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn unpack_bytes<const FIRST: i32, const SECOND: i32, const TABLE: bool>(
    weights: &Weights<'_>,
    row: PackedRow<'_>,
    octet: usize,
    to: &mut [i32; SUMS * CHUNK / 4],
) {
    let fields = fields::<FIRST, SECOND, TABLE, { SUMS / 2 }>(weights, row, octet);
    let flip = _mm256_set1_epi8(if is_signed(FIRST, TABLE) { i8::MIN } else { 0 });
    for pair in 0..SUMS / 2 {
        for half in 0..2 {
            let to = &mut to[8 * (2 * pair + half)..][..8];
            // SAFETY: 32 bytes.
            unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), _mm256_xor_si256(fields[pair][half], flip)) };
        }
    }
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

/// As [`fields`] of the first `FOURS` times four chunks, by vectors of 512 bits.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(super) fn wide_fields<const FIRST: i32, const SECOND: i32, const TABLE: bool, const FOURS: usize>(
    weights: &Weights<'_>,
    row: PackedRow<'_>,
    octet: usize,
) -> WideFields {
    let mut room = MaybeUninit::uninit();
    let [first, second] = octet_planes::<FIRST, SECOND>(weights, row, octet, &mut room);
    // SAFETY: 16 bytes.
    let table = _mm512_broadcast_i32x4(unsafe { _mm_loadu_si128(weights.table.as_ptr().cast()) });
    let mut all = [[_mm512_setzero_si512(); 2]; SUMS / 4];
    for four in 0..FOURS {
        // SAFETY: `FIRST` and `SECOND` are the bits of the planes, and each slice has the fields of four chunks.
        let mut fields = unsafe { wide_plane::<FIRST, 0>(&first[16 * FIRST as usize * four..][..16 * FIRST as usize]) };
        if SECOND > 0 {
            // SAFETY: as above.
            let high = unsafe { wide_plane::<SECOND, FIRST>(&second[16 * SECOND as usize * four..][..16 * SECOND as usize]) };
            fields = [_mm512_or_si512(fields[0], high[0]), _mm512_or_si512(fields[1], high[1])];
        }
        if TABLE {
            fields = [_mm512_shuffle_epi8(table, fields[0]), _mm512_shuffle_epi8(table, fields[1])];
        }
        all[four] = fields;
    }
    all
}

/// As [`plane`], of four chunks.
///
/// # Safety
/// There are `16 * BITS` bytes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2")]
unsafe fn wide_plane<const BITS: i32, const UP: i32>(bytes: &[u8]) -> [__m512i; 2] {
    let (from, mask) = (bytes.as_ptr(), _mm512_set1_epi8((((1u16 << BITS) - 1) << UP) as i8));
    let (up, left) = (_mm_cvtsi32_si128(UP), 4 - UP);
    let [low, high] = match BITS {
        8 => {
            // SAFETY: there are 128 bytes.
            let [one, other] = unsafe { [_mm512_loadu_si512(from.cast()), _mm512_loadu_si512(from.add(2 * CHUNK).cast())] };
            return [_mm512_shuffle_i64x2::<0b10_00_10_00>(one, other), _mm512_shuffle_i64x2::<0b11_01_11_01>(one, other)];
        }
        4 => {
            // SAFETY: there are 64 bytes.
            let all = unsafe { _mm512_loadu_si512(from.cast()) };
            [all, _mm512_srli_epi16::<4>(all)]
        }
        2 => {
            // SAFETY: there are 32 bytes.
            let all = _mm512_castsi256_si512(unsafe { _mm256_loadu_si256(from.cast()) });
            let repeated = _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 0, 1, 1, 2, 2, 3, 3), all);
            let by = _mm512_setr_epi64(0, 2, 0, 2, 0, 2, 0, 2);
            let more = _mm512_add_epi64(by, _mm512_set1_epi64(left.into()));
            [_mm512_srlv_epi64(_mm512_sll_epi64(repeated, up), by), _mm512_srlv_epi64(repeated, more)]
        }
        _ => {
            // SAFETY: there are 16 bytes.
            let all = _mm512_castsi128_si512(unsafe { _mm_loadu_si128(from.cast()) });
            let repeated = _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3), all);
            let by = _mm512_setr_epi32(0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3);
            let more = _mm512_add_epi32(by, _mm512_set1_epi32(left));
            [_mm512_srlv_epi32(_mm512_sll_epi32(repeated, up), by), _mm512_srlv_epi32(repeated, more)]
        }
    };
    [_mm512_and_si512(low, mask), _mm512_and_si512(high, mask)]
}
