//! Rows of keys and values in a cache: floats, or bytes, each row packed in [`Format::Q8_0`].
//!
//! 32 neighbours of a row become bytes `q` and a scale `d`: with `s = max |x| / 127` and `r = 1 / s`, zero where `s` is, each rounded to f32, `d` is `s` rounded
//! to f16, and `q` is `x · r` rounded to f32 and then to the nearest integer, halves away from zero, of at most 127: ggml's rule. `d · q` is exact in f32. If one of
//! the 32 is NaN or infinite, `d · q` is NaN for all of them. What a packed row is filled up with is not written.

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
            let mut greatest = 0f32;
            for x in x {
                let magnitude = x.to_f32().abs();
                greatest = if magnitude > greatest || magnitude.is_nan() { magnitude } else { greatest };
            }
            let scale = greatest / 127.0;
            let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
            let rounded = if scale.is_nan() { f16::NAN } else { f16::from_f32(scale) };
            d.copy_from_slice(&rounded.to_le_bytes());
            for (q, x) in q.iter_mut().zip(x) {
                // NaN becomes zero.
                *q = ((x.to_f32() * inverse).round().clamp(-127.0, 127.0) as i8).cast_unsigned();
            }
        }
    }
}
