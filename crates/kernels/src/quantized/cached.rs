//! Rows of keys and values in a cache: floats, or bytes, each row packed in [`Format::Q8_0`], as [`crate::kv_append`] makes them.

use elinvar_core::{DType, Element, MetalFile, Result};
use half::{bf16, f16};

use super::format::{CHUNK, Format};
use crate::{
    TensorInfo,
    float::Float,
    metal::metal_file,
    signature::{mismatch, shape_of},
    simd,
};

/// The types of caches.
pub(crate) const TYPES: &[DType] = &[DType::F32, DType::F16, DType::BF16, DType::U8];

/// How rows are read and written in Metal.
pub(crate) const METAL: MetalFile = metal_file!("quantized/cached.metal");

/// Bytes that hold an element and its part of the scale.
const PACKED_CHUNK: usize = CHUNK + 2;

/// Elements of the rows that lie along the last axis of a cache.
///
/// # Errors
/// Bytes that are no packed row.
pub(crate) fn width(name: &str, cache: &TensorInfo) -> Result<usize> {
    let extent = cache.shape().last().copied().unwrap_or(1);
    if cache.dtype != DType::U8 {
        return Ok(extent);
    }
    let width = extent / PACKED_CHUNK * CHUNK;
    if extent > 0 && Format::Q8_0.packed_row_bytes(width) == Some(extent) {
        return Ok(width);
    }
    let expected = format_args!("a last axis of whole rows packed in {}, of a multiple of {CHUNK} elements", Format::Q8_0);
    Err(mismatch(&[shape_of(name, cache)], expected))
}

/// What a cache has for each element, or more than one.
pub(crate) trait Cached: Element {
    /// Elements in memory of a row of so many.
    fn extent(width: usize) -> usize;

    /// Writes a row, which has the extent of its width.
    fn store<T: Float>(row: &[T], to: &mut [Self]);
}

macro_rules! floats {
    ($($type:ty)*) => {
        $(impl Cached for $type {
            fn extent(width: usize) -> usize {
                width
            }

            fn store<T: Float>(row: &[T], to: &mut [Self]) {
                round(row, to);
            }
        })*
    };
}
floats!(f32 f16 bf16);

impl Cached for u8 {
    fn extent(width: usize) -> usize {
        width / CHUNK * PACKED_CHUNK
    }

    fn store<T: Float>(row: &[T], to: &mut [Self]) {
        quantise(row, to);
    }
}

simd! {
    fn round<A: Float, B: Float>(from: &[A], to: &mut [B]) {
        for (to, from) in to.iter_mut().zip(from) {
            *to = B::from_f32(from.to_f32());
        }
    }
}

simd! {
    fn quantise<T: Float>(row: &[T], packed: &mut [u8]) {
        let (integers, scales) = packed.split_at_mut(row.len());
        for ((x, q), d) in row.chunks_exact(CHUNK).zip(integers.chunks_exact_mut(CHUNK)).zip(scales.chunks_exact_mut(2)) {
            // Magnitudes are in the order of their bits, and NaN is above all.
            let greatest = x.iter().fold(0, |most, x| most.max(x.to_f32().abs().to_bits()));
            let scale = f32::from_bits(greatest) / 127.0;
            let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
            let rounded = if scale.is_nan() { f16::NAN } else { Float::from_f32(scale) };
            d.copy_from_slice(&rounded.to_le_bytes());
            for (q, x) in q.iter_mut().zip(x) {
                // NaN becomes zero.
                *q = ((x.to_f32() * inverse).round().clamp(-127.0, 127.0) as i8).cast_unsigned();
            }
        }
    }
}

simd! {
    /// Packed rows of `width` elements, which begin `stride` bytes from each other, the first at `start`, as floats one after the other.
    pub(crate) fn decode(packed: &[u8], start: usize, stride: i64, width: usize, rows: &mut [f32]) {
        for (index, row) in rows.chunks_exact_mut(width.max(1)).enumerate() {
            let (integers, scales) = packed[(start as i64 + index as i64 * stride) as usize..].split_at(width);
            for ((x, q), d) in row.chunks_exact_mut(CHUNK).zip(integers.chunks_exact(CHUNK)).zip(scales.chunks_exact(2)) {
                let scale = Float::to_f32(f16::from_le_bytes([d[0], d[1]]));
                for (x, q) in x.iter_mut().zip(q) {
                    *x = scale * f32::from(q.cast_signed());
                }
            }
        }
    }
}
