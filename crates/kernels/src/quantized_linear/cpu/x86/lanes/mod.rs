//! One row of x with fields of up to six bits without a sign, by vectors of 256 bits: a lane is a chunk, so that nothing is left to be added up across lanes.

mod products;
mod shared;
mod words;

use std::arch::x86_64::*;

use super::{
    super::{
        COLUMNS,
        integers::{Octet, Rows},
    },
    Weights,
    few::AHEAD,
    scales::part,
};
use crate::{
    quantized::{
        CHUNK,
        format::{Blocks, Fields},
        packed::{PackedRow, planes},
    },
    quantized_linear::SUMS,
};
use products::Products;
use shared::{Shared, shared};
use words::{Words, words};

/// Rows of the weight whose sums are added up at once.
const SIDES: usize = 4;

/// Whether a format has such fields.
pub(super) const fn takes<F: Blocks>() -> bool {
    matches!(F::FIELDS, Fields::Less(_))
}

/// The planes of an octet of a row of the weight.
type Planes<'a> = [&'a [u8]; 2];

/// What an octet of a row of the weight is made of.
struct Parts<'a> {
    planes: Planes<'a>,
    subscales: &'a [u8],
    numbers: &'a [u8],
}

/// In lanes, of 8 bits if `EIGHT`.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn multiply<F: Blocks, const EIGHT: bool>(weights: &Weights<'_>, x: &Rows, products: &mut [[f32; COLUMNS]]) {
    // SAFETY: this function has the level.
    unsafe { with::<F>(weights, x, products, |words, x| products::avx2::<F, EIGHT>(words, x)) };
}

/// The same with VNNI.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(super) fn multiply_vnni<F: Blocks, const EIGHT: bool>(weights: &Weights<'_>, x: &Rows, products: &mut [[f32; COLUMNS]]) {
    // SAFETY: as above.
    unsafe { with::<F>(weights, x, products, |words, x| products::vnni::<F, EIGHT>(words, x)) };
}

/// With a unit's products.
///
/// # Safety
/// The processor has AVX2, FMA, F16C and what the unit asks for.
#[inline(always)]
unsafe fn with<F: Blocks>(weights: &Weights<'_>, x: &Rows, products: &mut [[f32; COLUMNS]], product: impl Fn(&Words, &Octet) -> Products + Copy) {
    let [products] = products else { return };
    for (first, products) in products[..weights.count].chunks_mut(SIDES).enumerate() {
        // SAFETY: the caller's promise.
        unsafe {
            let mut sums = [_mm256_setzero_ps(); SIDES];
            for side in 0..products.len() {
                sums[side] = row::<F>(weights.row(SIDES * first + side), weights.row_bytes, x, product);
            }
            let sums = trees(sums);
            match <&mut [f32; SIDES]>::try_from(&mut *products) {
                Ok(products) => _mm_storeu_ps(products.as_mut_ptr(), sums),
                Err(_) => {
                    let mut lanes = [0.0; SIDES];
                    _mm_storeu_ps(lanes.as_mut_ptr(), sums);
                    products.iter_mut().zip(lanes).for_each(|(product, sum)| *product = sum);
                }
            }
        }
    }
}

/// The lanes' sums for a row of the weight.
///
/// # Safety
/// As [`with`].
#[inline(always)]
unsafe fn row<F: Blocks>(row: PackedRow<'_>, bytes: usize, x: &Rows, product: impl Fn(&Words, &Octet) -> Products) -> __m256 {
    let [first, second] = const { planes(F::BITS) }.map(|bits| 4 * bits * SUMS);
    let (subscales, numbers) = (SUMS * F::SUBSCALES, 2 * F::NUMBERS.len() * SUMS / (F::ELEMENTS / CHUNK));
    let places = row.places;
    let mut rest = [
        &row.bytes[..places.planes[1]],
        &row.bytes[places.planes[1]..places.subscales],
        &row.bytes[places.subscales..places.numbers],
        &row.bytes[places.numbers..bytes],
    ];
    // SAFETY: the caller's promise.
    let add = |[first, second, subscales, numbers]: [&[u8]; 4], x: &Octet, sums| unsafe {
        let parts = Parts { planes: [first, second], subscales, numbers };
        add::<F>(&parts, product(&words::<F>(parts.planes), x), x, sums)
    };
    // Weights are read one after the other, so an octet fetches as many bytes as it takes.
    let octet_bytes = first + second + subscales + numbers;
    let fetch = |octet: usize| (0..octet_bytes).step_by(64).for_each(|line| prefetch(row.bytes, octet_bytes * octet + line));
    // SAFETY: as above.
    let mut sums = unsafe { _mm256_setzero_ps() };
    for octet in 0..x.chunks / SUMS {
        fetch(octet);
        let mut parts = [&[][..]; 4];
        for (part, (rest, bytes)) in parts.iter_mut().zip(rest.iter_mut().zip([first, second, subscales, numbers])) {
            (*part, *rest) = rest.split_at(bytes);
        }
        let [x] = x.octet(octet) else { return sums };
        sums = add(parts, x, sums);
    }
    let (whole, left) = (x.chunks / SUMS, x.chunks % SUMS);
    if left > 0
        && let [x] = x.octet(whole)
    {
        fetch(whole);
        // Only blocks of a chunk end within an octet. What follows the last fields is multiplied by zeros, but scales have to be finite.
        let after = |plane: usize, bytes: usize| row.bytes.get(places.planes[plane] + bytes * whole..)?.get(..bytes);
        let mut room = [[0; 4 * CHUNK]; 2];
        let planes = match (after(0, first), after(1, second)) {
            (Some(first), Some(second)) => [first, second],
            _ => {
                room.iter_mut().zip(rest).for_each(|(room, rest)| room[..rest.len()].copy_from_slice(rest));
                [&room[0][..], &room[1][..]]
            }
        };
        let mut last = [0; 4 * SUMS];
        // SAFETY: the caller's promise; 32 bytes.
        unsafe { _mm256_storeu_si256(last.as_mut_ptr().cast(), part(row.bytes, places.numbers + numbers * whole, 2 * F::NUMBERS.len() * left)) };
        sums = add([planes[0], planes[1], &[], &last], x, sums);
    }
    sums
}

/// Fetches what is [`AHEAD`] of a place.
#[inline(always)]
fn prefetch(bytes: &[u8], at: usize) {
    // SAFETY: a hint, for which any address is fine.
    unsafe { _mm_prefetch::<_MM_HINT_T1>(bytes.as_ptr().wrapping_add(AHEAD + at).cast()) };
}

/// The sums with an octet's products.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn add<F: Blocks>(parts: &Parts<'_>, products: Products, x: &Octet, mut sums: __m256) -> __m256 {
    // SAFETY: eight numbers each.
    let load = |floats: &[f32; SUMS]| unsafe { _mm256_loadu_ps(floats.as_ptr()) };
    // SAFETY: as above.
    let excess = |half: usize| unsafe { _mm256_loadu_si256(x.excess[half].as_ptr().cast()) };
    let (Shared { scale, offset }, s) = (shared::<F>(parts), load(&x.scales));
    for half in 0..CHUNK / F::GROUP {
        let product = if matches!(F::FIELDS, Fields::Less(0)) { products[half] } else { _mm256_sub_epi32(products[half], excess(half)) };
        sums = _mm256_fmadd_ps(_mm256_mul_ps(scale[half], s), _mm256_cvtepi32_ps(product), sums);
        if F::OFFSETS {
            sums = _mm256_fmadd_ps(_mm256_mul_ps(offset[half], s), load(&x.totals[half]), sums);
        }
    }
    sums
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
