//! AVX2 and AVX-512. A format is a shape of planes, a kernel for each, and what its scales are.

mod bytes;
mod few;
mod fields;
mod lanes;
mod many;
mod scales;
mod wide;
mod words;

use super::{
    COLUMNS,
    integers::{Layout, Rows},
};
use crate::{
    Precision,
    quantized::{
        CHUNK, Format,
        format::{Blocks, Fields, with_blocks},
        packed::{PackedRow, Places, planes},
    },
    simd,
};
use scales::Scaled;

/// Rows of x from which on turning the weight round pays.
const MANY: usize = 8;

/// Rows of the weight, and what their kernels need of its format.
struct Weights<'a> {
    /// Those rows and what follows them: where it is there, the octet after a row's last chunks may be read.
    bytes: &'a [u8],
    row_bytes: usize,
    count: usize,
    places: Places,
    chunks: usize,
    /// Subtracted from fields.
    zero: i16,
    /// What bytes of four bits stand for, where they choose.
    table: [i8; 16],
    /// Whether the halves of a chunk have scales of their own.
    halves: bool,
    offsets: bool,
    /// [`scales::of`] the format.
    scales: unsafe fn(PackedRow<'_>, usize, usize, &mut [Scaled]),
}

/// Rows of a weight with rows of x, in the layout that belongs to it.
///
/// # Safety
/// The processor has what it was chosen for.
type Multiply = unsafe fn(&Weights<'_>, &Rows, &mut [[f32; COLUMNS]]);

/// What this processor multiplies with.
#[derive(Clone, Copy)]
pub(super) struct Kernel(Multiply);

/// The kernel for `m` rows of x on a processor with AVX2, FMA and F16C, and their layout.
pub(super) fn kernel(format: Format, m: usize, precision: Precision) -> (Layout, Kernel) {
    let (layout, multiply) = with_blocks!(format, F => {
        if const { lanes::takes::<F>() } && m == 1 {
            return match (precision, has_vnni()) {
                (Precision::Strict | Precision::Invariant, false) => (Layout::Lanes, Kernel(lanes::multiply::<F, false>)),
                (Precision::Strict | Precision::Invariant, true) => (Layout::Lanes, Kernel(lanes::multiply_vnni::<F, false>)),
                (Precision::Fast, false) => (Layout::LaneBytes, Kernel(lanes::multiply::<F, true>)),
                (Precision::Fast, true) => (Layout::LaneBytes, Kernel(lanes::multiply_vnni::<F, true>)),
            };
        }
        choose::<{ planes(F::BITS)[0] as i32 }, { planes(F::BITS)[1] as i32 }, { matches!(F::FIELDS, Fields::Chosen(_)) }>(m, precision)
    });
    (layout, Kernel(multiply))
}

fn choose<const FIRST: i32, const SECOND: i32, const TABLE: bool>(m: usize, precision: Precision) -> (Layout, Multiply) {
    let vnni = has_vnni();
    // Without VNNI two products of bytes are added in 16 bits, which is not enough for bytes that have a sign.
    let fits = vnni || !is_signed(FIRST, TABLE);
    match (m >= MANY, precision) {
        (false, _) if vnni => (Layout::Planes, wide::multiply::<FIRST, SECOND, TABLE>),
        (false, Precision::Fast) if fits => (Layout::Bytes, few::multiply::<FIRST, SECOND, TABLE, true>),
        (false, Precision::Strict | Precision::Invariant) if fits => (Layout::Planes, few::multiply::<FIRST, SECOND, TABLE, false>),
        (false, _) => (Layout::Words, few::multiply::<FIRST, SECOND, TABLE, false>),
        (true, Precision::Fast) if vnni => (Layout::Bytes, bytes::multiply_512::<FIRST, SECOND, TABLE>),
        (true, Precision::Fast) if fits => (Layout::Bytes, bytes::multiply_256::<FIRST, SECOND, TABLE>),
        (true, _) if vnni => (Layout::Words, words::multiply_512::<FIRST, SECOND, TABLE>),
        (true, _) => (Layout::Words, words::multiply_256::<FIRST, SECOND, TABLE>),
    }
}

fn has_vnni() -> bool {
    simd::level() >= simd::Level::Avx512 && is_x86_feature_detected!("avx512vnni")
}

impl<'a> Weights<'a> {
    /// A row with what follows it.
    #[inline(always)]
    fn row(&self, index: usize) -> PackedRow<'a> {
        PackedRow { bytes: &self.bytes[self.row_bytes * index..], places: self.places }
    }
}

/// Whether the halves of a chunk have scales of their own: in formats with planes of two bits.
const fn has_halves(first: i32, second: i32) -> bool {
    first == 2 || second == 2
}

/// Whether fields, or what they choose, are bytes with a sign.
const fn is_signed(first: i32, table: bool) -> bool {
    table || first == 8
}

/// The first `count` packed rows of `row_bytes` with rows of x.
pub(super) fn multiply<F: Blocks>(Kernel(multiply): Kernel, x: &Rows, [row_bytes, count]: [usize; 2], bytes: &[u8], products: &mut [[f32; COLUMNS]]) {
    const { assert!(has_halves(planes(F::BITS)[0] as i32, planes(F::BITS)[1] as i32) == (F::GROUP < CHUNK)) }
    let Some(places) = Places::of::<F>(x.chunks).filter(|_| x.chunks > 0) else { return };
    let (zero, table) = match F::FIELDS {
        Fields::Less(zero) => (zero, [0; 16]),
        Fields::Signed => (0, [0; 16]),
        Fields::Chosen(table) => (0, *table),
    };
    let (chunks, halves, offsets, scales) = (x.chunks, F::GROUP < CHUNK, F::OFFSETS, scales::of::<F>);
    let weights = Weights { bytes, row_bytes, count, places, chunks, zero, table, halves, offsets, scales };
    // SAFETY: it was chosen for this processor.
    unsafe { multiply(&weights, x, products) };
}
