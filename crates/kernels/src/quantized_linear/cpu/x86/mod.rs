//! AVX2 and AVX-512. A format is a shape of planes, a kernel for each, and what its scales are.

mod few;
mod many;
mod scales;
mod words;

use super::{COLUMNS, Multiply, Rows};
use crate::quantized::{
    CHUNK, Format,
    format::{Blocks, Fields, with_blocks},
    packed::{PackedRow, Places, planes},
};
use scales::Scaled;

/// Rows of the weight, and what their kernels need of its format.
struct Weights<'a> {
    rows: std::slice::ChunksExact<'a, u8>,
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

/// For a processor with AVX2, FMA and F16C.
pub(super) fn multiply(format: Format) -> Multiply {
    with_blocks!(format, F => of::<F, { planes(F::BITS)[0] as i32 }, { planes(F::BITS)[1] as i32 }, { matches!(F::FIELDS, Fields::Chosen(_)) }>)
}

fn of<F: Blocks, const FIRST: i32, const SECOND: i32, const TABLE: bool>(
    x: &Rows,
    row_bytes: usize,
    weights: &[u8],
    products: &mut [[f32; COLUMNS]],
) {
    let Some(places) = Places::of::<F>(x.chunks).filter(|_| x.chunks > 0) else { return };
    let (zero, table) = match F::FIELDS {
        Fields::Less(zero) => (zero, [0; 16]),
        Fields::Signed => (0, [0; 16]),
        Fields::Chosen(table) => (0, *table),
    };
    let (rows, halves) = (weights.chunks_exact(row_bytes), F::GROUP < CHUNK);
    let weights = Weights { rows, places, chunks: x.chunks, zero, table, halves, offsets: F::OFFSETS, scales: scales::of::<F> };
    if products.len() < many::LEAST {
        // SAFETY: the caller of `multiply` saw the level.
        unsafe { few::multiply::<FIRST, SECOND, TABLE>(&weights, x, products) };
    } else {
        // SAFETY: as above.
        unsafe { many::multiply(&weights, words::unpack::<FIRST, SECOND, TABLE>, x, products) };
    }
}
