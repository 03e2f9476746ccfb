//! Conversions between the floating-point types, written so that loops over them vectorise: one rounding, to nearest even; NaN stays NaN.

#[cfg(target_arch = "x86_64")]
mod avx512_bf16;
#[cfg(target_arch = "x86_64")]
mod f16c;
mod scalar;

use std::borrow::Cow;

use elinvar_core::{DType, Element};
use half::{bf16, f16};

use crate::simd;

/// A floating-point element: computed on in f32, stored as itself.
pub trait Float: Element {
    /// Exact.
    fn to_f32(self) -> f32;

    /// Rounded to nearest even.
    fn from_f32(value: f32) -> Self;

    /// [`Float::to_f32`] of every element of a slice into another of the same length.
    fn widen_into(from: &[Self], to: &mut [f32]) {
        widen_each(from, to);
    }

    /// [`Float::from_f32`] of every element of a slice into another of the same length.
    fn narrow_into(from: &[f32], to: &mut [Self]) {
        narrow_each(from, to);
    }
}

simd! {
    fn widen_each<T: Float>(from: &[T], to: &mut [f32]) {
        for (to, from) in to.iter_mut().zip(from) {
            *to = from.to_f32();
        }
    }
}

simd! {
    fn narrow_each<T: Float>(from: &[f32], to: &mut [T]) {
        for (to, from) in to.iter_mut().zip(from) {
            *to = T::from_f32(*from);
        }
    }
}

impl Float for f32 {
    #[inline(always)]
    fn to_f32(self) -> f32 {
        self
    }

    #[inline(always)]
    fn from_f32(value: f32) -> Self {
        value
    }
}

impl Float for bf16 {
    #[inline(always)]
    fn to_f32(self) -> f32 {
        scalar::bf16_to_f32(self)
    }

    #[inline(always)]
    fn from_f32(value: f32) -> Self {
        scalar::bf16_from_f32(value)
    }

    #[cfg(target_arch = "x86_64")]
    fn narrow_into(from: &[f32], to: &mut [Self]) {
        if simd::level() < simd::Level::Avx512 || !is_x86_feature_detected!("avx512bf16") {
            return narrow_each(from, to);
        }
        // SAFETY: the processor has AVX-512 BF16, and every level of AVX-512 has DQ.
        unsafe { avx512_bf16::narrow(from, to) }
    }
}

impl Float for f16 {
    #[inline(always)]
    fn to_f32(self) -> f32 {
        scalar::f16_to_f32(self)
    }

    #[inline(always)]
    fn from_f32(value: f32) -> Self {
        scalar::f16_from_f32(value)
    }

    #[cfg(target_arch = "x86_64")]
    fn widen_into(from: &[Self], to: &mut [f32]) {
        if simd::level() < simd::Level::Avx2 {
            return widen_each(from, to);
        }
        // SAFETY: every level from AVX2 on has AVX and F16C.
        unsafe { f16c::widen(from, to) }
    }

    #[cfg(target_arch = "x86_64")]
    fn narrow_into(from: &[f32], to: &mut [Self]) {
        if simd::level() < simd::Level::Avx2 {
            return narrow_each(from, to);
        }
        // SAFETY: as above.
        unsafe { f16c::narrow(from, to) }
    }
}

/// All of `values` in f32; no copy is made of values that are.
pub fn widen<T: Float>(values: &[T]) -> Cow<'_, [f32]> {
    as_f32(values).map_or_else(
        || {
            let mut wide = vec![0.0; values.len()];
            T::widen_into(values, &mut wide);
            Cow::Owned(wide)
        },
        Cow::Borrowed,
    )
}

/// The same slice, if it is one of f32.
pub fn as_f32<T: Float>(values: &[T]) -> Option<&[f32]> {
    bytemuck::try_cast_slice(values).ok().filter(|_| T::DTYPE == DType::F32)
}

/// The same slice, if it is one of f32.
pub fn as_f32_mut<T: Float>(values: &mut [T]) -> Option<&mut [f32]> {
    if T::DTYPE == DType::F32 { bytemuck::try_cast_slice_mut(values).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_widens_as_the_half_crate_says() {
        for bits in 0..=u16::MAX {
            let (a, b) = (f16::from_bits(bits), bf16::from_bits(bits));
            assert!(Float::to_f32(a).to_bits() == f16::to_f32(a).to_bits() || a.is_nan() && Float::to_f32(a).is_nan(), "{bits:04x}");
            assert!(Float::to_f32(b).to_bits() == bf16::to_f32(b).to_bits() || b.is_nan() && Float::to_f32(b).is_nan(), "{bits:04x}");
        }
    }

    #[test]
    fn slices_are_converted_as_their_elements_are() {
        let narrow_values: Vec<f16> = (0..=u16::MAX).map(f16::from_bits).collect();
        let mut wide = vec![0.0; narrow_values.len()];
        Float::widen_into(&narrow_values, &mut wide);
        let floats: Vec<f32> = (0..u32::MAX).step_by(30_011).map(f32::from_bits).collect();
        let mut narrow = vec![f16::ZERO; floats.len()];
        Float::narrow_into(&floats, &mut narrow);
        for (half, wide) in narrow_values.iter().zip(wide).chain(narrow.iter().zip(floats.iter().copied())) {
            let (exact, found) = (Float::to_f32(*half), <f16 as Float>::from_f32(wide));
            assert!(found.to_bits() == half.to_bits() || half.is_nan() && found.is_nan() && exact.is_nan(), "{wide:e}");
        }
        // Denormals in every vector, in some and in none.
        let mixed = floats.iter().map(|f| if f.abs() < f32::MIN_POSITIVE { 1.0 } else { *f }).collect::<Vec<_>>();
        let tiny = (0..200_000u32).step_by(3).map(|i| if i % 7 == 0 { f32::from_bits(i * 41) } else { f32::from_bits(i << 15 | 0x8000) });
        for floats in [floats, mixed, tiny.collect()] {
            let mut narrow = vec![bf16::ZERO; floats.len()];
            Float::narrow_into(&floats, &mut narrow);
            for (half, wide) in narrow.iter().zip(floats) {
                assert_eq!(half.to_bits(), <bf16 as Float>::from_f32(wide).to_bits(), "{wide:e}");
            }
        }
    }

    #[test]
    fn narrowing_rounds_to_nearest_even() {
        let around = (0..=u16::MAX).flat_map(|h| {
            let (a, b) = (f16::from_bits(h).to_f32().to_bits(), u32::from(h) << 16);
            [a.wrapping_sub(1), a, a + 1, a + 0xfff, a + 0x1000, a + 0x1001, b + 0x7fff, b + 0x8000, b + 0x8001]
        });
        for bits in around.chain((0..u32::MAX).step_by(40_009)) {
            let x = f32::from_bits(bits);
            let (a, b) = (<f16 as Float>::from_f32(x), <bf16 as Float>::from_f32(x));
            if x.is_nan() {
                assert!(a.is_nan() && b.is_nan(), "{bits:08x}");
            } else {
                assert_eq!((a.to_bits(), b.to_bits()), (f16::from_f32(x).to_bits(), bf16::from_f32(x).to_bits()), "{bits:08x}");
            }
        }
    }
}
