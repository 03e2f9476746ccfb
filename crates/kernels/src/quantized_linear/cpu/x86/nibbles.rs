//! One row of x with fields of four bits, by vectors of 256 bits: an octet's words are turned round, so that a lane is a chunk and nothing is left to be
//! added up across lanes.

use std::arch::x86_64::*;

use super::{
    super::{
        COLUMNS,
        integers::{Octet, Rows},
    },
    Weights,
    few::AHEAD,
};
use crate::{
    quantized::{
        CHUNK,
        format::{Blocks, Fields},
        packed::PackedRow,
    },
    quantized_linear::SUMS,
};

/// Rows of the weight whose sums are added up at once.
const SIDES: usize = 4;

/// Bytes of an octet's fields.
const FIELDS: usize = SUMS * CHUNK / 2;

/// Whether a format's fields are numbers of four bits.
pub(super) const fn has_nibbles<F: Blocks>() -> bool {
    F::BITS == 4 && matches!(F::FIELDS, Fields::Less(_))
}

/// What an octet of a row of the weight is made of.
#[derive(Clone, Copy)]
struct Parts<'a> {
    fields: &'a [u8; FIELDS],
    /// Of so many bytes as eight chunks have.
    subscales: &'a [u8],
    numbers: &'a [u8],
}

/// One row of x, in lanes, of 8 bits if `EIGHT`.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn multiply<F: Blocks, const EIGHT: bool>(weights: &Weights<'_>, x: &Rows, products: &mut [[f32; COLUMNS]]) {
    // SAFETY: this function has the level.
    unsafe { with::<F>(weights, x, products, |fields, x| product::<EIGHT>(fields, x)) };
}

/// The same with VNNI, of 16 bits.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(super) fn multiply_vnni<F: Blocks>(weights: &Weights<'_>, x: &Rows, products: &mut [[f32; COLUMNS]]) {
    // SAFETY: as above.
    unsafe { with::<F>(weights, x, products, |fields, x| product_vnni(fields, x)) };
}

/// With a unit's products of the chunks of an octet.
///
/// # Safety
/// The processor has AVX2, FMA, F16C and what the unit asks for.
#[inline(always)]
unsafe fn with<F: Blocks>(
    weights: &Weights<'_>,
    x: &Rows,
    products: &mut [[f32; COLUMNS]],
    product: impl Fn(&[u8; FIELDS], &Octet) -> __m256i + Copy,
) {
    let [products] = products else { return };
    for (first, products) in products[..weights.count].chunks_mut(SIDES).enumerate() {
        // SAFETY: the caller's promise.
        unsafe {
            let mut sums = [_mm256_setzero_ps(); SIDES];
            for side in 0..products.len() {
                sums[side] = row::<F>(weights.row(SIDES * first + side), weights.row_bytes, x, product);
            }
            let mut lanes = [0.0; SIDES];
            _mm_storeu_ps(lanes.as_mut_ptr(), trees(sums));
            products.copy_from_slice(&lanes[..products.len()]);
        }
    }
}

/// The lanes' sums for a row of the weight.
///
/// # Safety
/// As [`with`].
#[inline(always)]
unsafe fn row<F: Blocks>(row: PackedRow<'_>, bytes: usize, x: &Rows, product: impl Fn(&[u8; FIELDS], &Octet) -> __m256i) -> __m256 {
    let (scales, all) = (SUMS * F::SUBSCALES, 2 * F::NUMBERS.len() * SUMS / (F::ELEMENTS / CHUNK));
    let (fields, more) = row.bytes[..row.places.subscales].as_chunks::<FIELDS>();
    let (mut subscales, mut numbers) = (&row.bytes[row.places.subscales..row.places.numbers], &row.bytes[row.places.numbers..bytes]);
    // SAFETY: the caller's promise.
    let add = |parts: Parts<'_>, x: &Octet, sums| unsafe { add::<F>(parts, product(parts.fields, x), x, sums) };
    // SAFETY: as above.
    let mut sums = unsafe { _mm256_setzero_ps() };
    for (octet, fields) in fields.iter().enumerate() {
        prefetch(fields, 0);
        prefetch(fields, 64);
        let ([x], Some(parts)) = (x.octet(octet), numbers.split_at_checked(all)) else { return sums };
        let Some(scales) = subscales.split_at_checked(scales) else { return sums };
        sums = add(Parts { fields, subscales: scales.0, numbers: parts.0 }, x, sums);
        (subscales, numbers) = (scales.1, parts.1);
    }
    for line in (row.places.subscales..bytes).step_by(64) {
        prefetch(row.bytes, line);
    }
    if !more.is_empty()
        && let [x] = x.octet(fields.len())
    {
        // What is not there is zero, as x is; only blocks of a chunk end within an octet.
        let (mut fields, mut last) = ([0; FIELDS], [0; 4 * SUMS]);
        fields[..more.len()].copy_from_slice(more);
        let there = numbers.len().min(all);
        last[..there].copy_from_slice(&numbers[..there]);
        sums = add(Parts { fields: &fields, subscales, numbers: &last[..all] }, x, sums);
    }
    sums
}

/// The sums with an octet's products.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn add<F: Blocks>(parts: Parts<'_>, product: __m256i, x: &Octet, sums: __m256) -> __m256 {
    // SAFETY: eight numbers each.
    let load = |floats: &[f32; SUMS]| unsafe { _mm256_loadu_ps(floats.as_ptr()) };
    // SAFETY: as above.
    let integers = |integers: &[i32; SUMS]| unsafe { _mm256_loadu_si256(integers.as_ptr().cast()) };
    let [scale, offset] = scales::<F>(parts);
    let s = load(&x.scales);
    let product = _mm256_sub_epi32(product, integers(&x.excess[0]));
    let sums = _mm256_fmadd_ps(_mm256_mul_ps(scale, s), _mm256_cvtepi32_ps(product), sums);
    if F::OFFSETS { _mm256_fmadd_ps(_mm256_mul_ps(offset, s), _mm256_cvtepi32_ps(integers(&x.totals[0])), sums) } else { sums }
}

/// Fetches what is [`AHEAD`] of a place.
#[inline(always)]
fn prefetch(bytes: &[u8], at: usize) {
    // SAFETY: a hint, for which any address is fine.
    unsafe { _mm_prefetch::<_MM_HINT_T1>(bytes.as_ptr().wrapping_add(AHEAD + at).cast()) };
}

/// The fields of an octet: of the halves of chunks, four of each lane after the other.
#[inline]
#[target_feature(enable = "avx2")]
fn words(fields: &[u8; FIELDS]) -> [[__m256i; 4]; 2] {
    // SAFETY: there are 128 bytes.
    let load = |pair: usize| unsafe { _mm256_loadu_si256(fields.as_ptr().add(32 * pair).cast()) };
    let (a, b, c, d) = (load(0), load(1), load(2), load(3));
    let low = [_mm256_unpacklo_epi32(a, b), _mm256_unpacklo_epi32(c, d)];
    let high = [_mm256_unpackhi_epi32(a, b), _mm256_unpackhi_epi32(c, d)];
    let words = [
        _mm256_unpacklo_epi64(low[0], low[1]),
        _mm256_unpackhi_epi64(low[0], low[1]),
        _mm256_unpacklo_epi64(high[0], high[1]),
        _mm256_unpackhi_epi64(high[0], high[1]),
    ];
    let (mut all, mask) = ([words; 2], _mm256_set1_epi8(15));
    for word in 0..4 {
        all[0][word] = _mm256_and_si256(words[word], mask);
        all[1][word] = _mm256_and_si256(_mm256_srli_epi16::<4>(words[word]), mask);
    }
    all
}

/// The product of each chunk of an octet.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn product<const EIGHT: bool>(fields: &[u8; FIELDS], x: &Octet) -> __m256i {
    let (fields, lanes) = (words(fields), x.lanes());
    // SAFETY: an octet has so many integers, and is aligned.
    let x = |plane: usize, four: usize| unsafe { _mm256_load_si256(lanes[plane][four].as_ptr().cast()) };
    // Sixteen products of 8 bits with a sign and 4 bits fit into 16, and eight without a sign.
    let (mut highs, mut lows) = (_mm256_setzero_si256(), [_mm256_setzero_si256(); 2]);
    for half in 0..2 {
        for word in 0..4 {
            highs = _mm256_add_epi16(highs, _mm256_maddubs_epi16(fields[half][word], x(0, 4 * half + word)));
            if !EIGHT {
                lows[half] = _mm256_add_epi16(lows[half], _mm256_maddubs_epi16(x(1, 4 * half + word), fields[half][word]));
            }
        }
    }
    let one = _mm256_set1_epi16(1);
    if EIGHT {
        return _mm256_madd_epi16(highs, one);
    }
    let lows = _mm256_add_epi32(_mm256_madd_epi16(lows[0], one), _mm256_madd_epi16(lows[1], one));
    _mm256_add_epi32(_mm256_madd_epi16(highs, _mm256_set1_epi16(256)), lows)
}

/// As [`product`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn product_vnni(fields: &[u8; FIELDS], x: &Octet) -> __m256i {
    let (fields, lanes, zero) = (words(fields), x.lanes(), _mm256_setzero_si256());
    // SAFETY: an octet has so many integers, and is aligned.
    let x = |plane: usize, four: usize| unsafe { _mm256_load_si256(lanes[plane][four].as_ptr().cast()) };
    let (mut highs, mut lows) = ([zero; 2], [zero; 2]);
    for half in 0..2 {
        for word in 0..4 {
            highs[half] = _mm256_dpbusd_epi32(highs[half], fields[half][word], x(0, 4 * half + word));
        }
    }
    let highs = _mm256_add_epi32(highs[0], highs[1]);
    for half in 0..2 {
        for word in 0..4 {
            lows[half] = _mm256_dpbusd_epi32(lows[half], x(1, 4 * half + word), fields[half][word]);
        }
    }
    _mm256_add_epi32(_mm256_slli_epi32::<8>(highs), _mm256_add_epi32(lows[0], lows[1]))
}

/// What the chunks of an octet share: scales and offsets, in the order of lanes.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn scales<F: Blocks>(Parts { subscales, numbers, .. }: Parts<'_>) -> [__m256; 2] {
    // SAFETY: an octet has so many bytes of them; shorter ones have been made whole.
    let bytes = |from: &[u8]| unsafe { _mm_loadu_si128(from[..16].as_ptr().cast()) };
    let wide = |numbers: __m128i| match F::BF16 {
        true => _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(numbers))),
        false => _mm256_cvtph_ps(numbers),
    };
    if F::SUBSCALES == 2 {
        let both = wide(_mm_set1_epi32(i32::from_le_bytes([numbers[0], numbers[1], numbers[2], numbers[3]])));
        let subscales = _mm256_broadcastsi128_si256(bytes(subscales));
        let sub = |which: i32| {
            let place = |chunk: i32| -256 | 2 * chunk + which;
            let places = _mm256_setr_epi32(place(0), place(2), place(4), place(6), place(1), place(3), place(5), place(7));
            _mm256_cvtepi32_ps(_mm256_shuffle_epi8(subscales, places))
        };
        let (scale, offset) = (_mm256_moveldup_ps(both), _mm256_movehdup_ps(both));
        return [_mm256_mul_ps(scale, sub(0)), _mm256_xor_ps(_mm256_mul_ps(offset, sub(1)), _mm256_set1_ps(-0.0))];
    }
    if F::NUMBERS.len() == 1 {
        let lanes = _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
        return [wide(_mm_shuffle_epi8(bytes(numbers), lanes)), _mm256_setzero_ps()];
    }
    // Scales of even and of odd chunks, then their offsets, of four chunks each.
    let lanes = _mm_setr_epi8(0, 1, 8, 9, 4, 5, 12, 13, 2, 3, 10, 11, 6, 7, 14, 15);
    let fours = [_mm_shuffle_epi8(bytes(numbers), lanes), _mm_shuffle_epi8(bytes(&numbers[16..]), lanes)];
    [wide(_mm_unpacklo_epi32(fours[0], fours[1])), wide(_mm_unpackhi_epi32(fours[0], fours[1]))]
}

/// The sum of each side's lanes: the tree of [`tree`](super::super::product::tree), in the order of lanes.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn trees([a, b, c, d]: [__m256; SIDES]) -> __m128 {
    // Of two sides the sums of lanes 0 and 4, and of 2 and 6; above, of 1 and 5, and of 3 and 7.
    let two = |a, b| {
        let (a, b) = (_mm256_castps_pd(a), _mm256_castps_pd(b));
        _mm256_add_ps(_mm256_castpd_ps(_mm256_unpacklo_pd(a, b)), _mm256_castpd_ps(_mm256_unpackhi_pd(a, b)))
    };
    let (ab, cd) = (two(a, b), two(c, d));
    let sums = _mm256_add_ps(_mm256_shuffle_ps::<0b10_00_10_00>(ab, cd), _mm256_shuffle_ps::<0b11_01_11_01>(ab, cd));
    _mm_add_ps(_mm256_castps256_ps128(sums), _mm256_extractf128_ps::<1>(sums))
}
