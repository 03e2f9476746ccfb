//! Arithmetic by data type, as [`crate::functions`] defines it: 16-bit floats compute in f32 and round once, integers wrap.

use elinvar_core::Element;

use crate::{
    float::Float,
    functions::{Function2, types},
};

/// An element that can be computed with.
pub(crate) trait Number: Element {
    fn add(a: Self, b: Self) -> Self;
    fn mul(a: Self, b: Self) -> Self;
    /// NaN if either is.
    fn min(a: Self, b: Self) -> Self;
    /// NaN if either is.
    fn max(a: Self, b: Self) -> Self;
}

macro_rules! numbers {
    ($at:ident: $($type:ty),*) => {
        $(impl Number for $type {
            #[inline(always)]
            fn add(a: Self, b: Self) -> Self {
                $at::<types::Add, Self>(a, b)
            }

            #[inline(always)]
            fn mul(a: Self, b: Self) -> Self {
                $at::<types::Mul, Self>(a, b)
            }

            #[inline(always)]
            fn min(a: Self, b: Self) -> Self {
                $at::<types::Min, Self>(a, b)
            }

            #[inline(always)]
            fn max(a: Self, b: Self) -> Self {
                $at::<types::Max, Self>(a, b)
            }
        })*
    };
}

#[inline(always)]
fn in_f32<F: Function2<f32>, T: Float>(a: T, b: T) -> T {
    T::from_f32(F::at(a.to_f32(), b.to_f32()))
}

#[inline(always)]
fn exactly<F: Function2<T>, T>(a: T, b: T) -> T {
    F::at(a, b)
}

numbers!(in_f32: f32, half::f16, half::bf16);
numbers!(exactly: i8, i16, i32, i64, u8, u16, u32, u64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_larger_and_the_smaller_of_a_number_and_nan_is_nan() {
        for (a, b) in [(1.0, f32::NAN), (f32::NAN, 1.0)] {
            assert!(<f32 as Number>::max(a, b).is_nan() && <f32 as Number>::min(a, b).is_nan());
        }
    }
}
