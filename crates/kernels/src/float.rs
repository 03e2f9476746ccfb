//! Conversions between the floating-point types, written so that loops over them vectorise: one rounding, to nearest even; NaN stays NaN.

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
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }

    #[inline(always)]
    fn from_f32(value: f32) -> Self {
        let bits = value.to_bits();
        let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1));
        let quiet = bits | 0x0040_0000;
        bf16::from_bits((if value.is_nan() { quiet } else { rounded } >> 16) as u16)
    }
}

impl Float for f16 {
    #[inline(always)]
    fn to_f32(self) -> f32 {
        let bits = u32::from(self.to_bits());
        let magnitude = bits & 0x7fff;
        // Scaling by 2^112 moves the exponent's bias from 15 to 127 and normalises denormals, exactly.
        let scaled = f32::from_bits(magnitude << 13) * f32::from_bits((127 + 112) << 23);
        let special = f32::from_bits(0x7f80_0000 | magnitude << 13);
        let value = if magnitude >= 0x7c00 { special } else { scaled };
        f32::from_bits(value.to_bits() | (bits & 0x8000) << 16)
    }

    #[inline(always)]
    fn from_f32(value: f32) -> Self {
        let bits = value.to_bits();
        let sign = (bits >> 16) & 0x8000;
        let magnitude = bits & 0x7fff_ffff;
        // Normal results: rebias and round in integers; a carry into the exponent is what rounding up means.
        let normal = magnitude.wrapping_sub(112 << 23).wrapping_add(0xfff + ((magnitude >> 13) & 1)) >> 13;
        // Denormal results: adding 0.5 puts the last kept bit at f32's last place, so the addition itself rounds.
        let denormal = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0.5f32.to_bits());
        let finite = if magnitude < (113 << 23) { denormal } else { normal };
        let overflow = if magnitude > 0x7f80_0000 { 0x7e00 | (magnitude >> 13) & 0x3ff } else { 0x7c00 };
        let result = if magnitude >= 0x477f_f000 { overflow } else { finite };
        f16::from_bits((sign | result) as u16)
    }
}

/// All of `values` in f32; no copy is made of values that are.
pub fn widen<T: Float>(values: &[T]) -> Cow<'_, [f32]> {
    bytemuck::try_cast_slice(values).ok().filter(|_| T::DTYPE == DType::F32).map_or_else(|| Cow::Owned(widened(values)), Cow::Borrowed)
}

simd! {
    fn widened<T: Float>(values: &[T]) -> Vec<f32> {
        values.iter().map(|v| v.to_f32()).collect()
    }
}

/// `$body` with `$type` standing for the element type of a floating-point `$dtype`; others are refused for `$what`.
macro_rules! with_float {
    ($dtype:expr, $what:expr, $type:ident => $body:expr) => {
        match $dtype {
            elinvar_core::DType::F32 => {
                type $type = f32;
                $body
            }
            elinvar_core::DType::F16 => {
                type $type = half::f16;
                $body
            }
            elinvar_core::DType::BF16 => {
                type $type = half::bf16;
                $body
            }
            other => return Err(elinvar_core::Error::invalid_argument(format!("{} of {other}: f32, f16 or bf16 expected", $what))),
        }
    };
}
pub(crate) use with_float;

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
