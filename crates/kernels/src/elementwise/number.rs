//! Arithmetic by data type: floating-point types compute in f32 and round once, integers wrap.

use elinvar_core::Element;

use crate::{float::Float, order};

/// An element that can be calculated with.
pub(crate) trait Number: Element {
    fn add(a: Self, b: Self) -> Self;
    fn sub(a: Self, b: Self) -> Self;
    fn mul(a: Self, b: Self) -> Self;
    /// Integers: towards zero; by zero gives zero.
    fn div(a: Self, b: Self) -> Self;
    /// NaN if either is.
    fn min(a: Self, b: Self) -> Self;
    /// NaN if either is.
    fn max(a: Self, b: Self) -> Self;
}

macro_rules! float_numbers {
    ($($type:ty),*) => {
        $(impl Number for $type {
            #[inline(always)]
            fn add(a: Self, b: Self) -> Self {
                Float::from_f32(Float::to_f32(a) + Float::to_f32(b))
            }

            #[inline(always)]
            fn sub(a: Self, b: Self) -> Self {
                Float::from_f32(Float::to_f32(a) - Float::to_f32(b))
            }

            #[inline(always)]
            fn mul(a: Self, b: Self) -> Self {
                Float::from_f32(Float::to_f32(a) * Float::to_f32(b))
            }

            #[inline(always)]
            fn div(a: Self, b: Self) -> Self {
                Float::from_f32(Float::to_f32(a) / Float::to_f32(b))
            }

            #[inline(always)]
            fn min(a: Self, b: Self) -> Self {
                Float::from_f32(order::min(Float::to_f32(a), Float::to_f32(b)))
            }

            #[inline(always)]
            fn max(a: Self, b: Self) -> Self {
                Float::from_f32(order::max(Float::to_f32(a), Float::to_f32(b)))
            }
        })*
    };
}
float_numbers!(f32, half::f16, half::bf16);

/// An integer.
pub(crate) trait Integer: Number {
    /// The low bits of a power, its exponent given as sign and magnitude; to a negative exponent the exact power towards zero (of zero: zero).
    fn power(self, negative: bool, magnitude: u64) -> Self;

    /// −1, 0 or 1.
    fn sign(self) -> Self;
}

macro_rules! integer_numbers {
    ($($type:ty),*) => {
        $(impl Number for $type {
            #[inline(always)]
            fn add(a: Self, b: Self) -> Self {
                a.wrapping_add(b)
            }

            #[inline(always)]
            fn sub(a: Self, b: Self) -> Self {
                a.wrapping_sub(b)
            }

            #[inline(always)]
            fn mul(a: Self, b: Self) -> Self {
                a.wrapping_mul(b)
            }

            #[inline(always)]
            fn div(a: Self, b: Self) -> Self {
                if b == 0 { 0 } else { a.wrapping_div(b) }
            }

            #[inline(always)]
            fn min(a: Self, b: Self) -> Self {
                Ord::min(a, b)
            }

            #[inline(always)]
            fn max(a: Self, b: Self) -> Self {
                Ord::max(a, b)
            }
        }

        impl Integer for $type {
            #[inline(always)]
            fn power(self, negative: bool, magnitude: u64) -> Self {
                let (mut result, mut square, mut left): (Self, Self, u64) = (1, self, magnitude);
                if negative {
                    let minus_one = (0 as Self).wrapping_sub(1);
                    // Only 1 and, for signed types, −1 have powers with a negative exponent that do not round to zero.
                    let unit = self == 1 || <$type>::MIN != 0 && self == minus_one;
                    if !unit {
                        return 0;
                    }
                }
                while left != 0 {
                    if left & 1 == 1 {
                        result = result.wrapping_mul(square);
                    }
                    square = square.wrapping_mul(square);
                    left >>= 1;
                }
                result
            }

            #[inline(always)]
            #[allow(unused_comparisons)]
            fn sign(self) -> Self {
                if self < 0 { (0 as Self).wrapping_sub(1) } else { Self::from(self > 0) }
            }
        })*
    };
}
integer_numbers!(i8, i16, i32, i64, u8, u16, u32, u64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_wrap_and_division_is_total() {
        assert_eq!((<i8 as Number>::add(127, 1), <u16 as Number>::sub(0, 1), <i64 as Number>::mul(i64::MAX, 2)), (-128, 65535, -2));
        assert_eq!((<i32 as Number>::div(-7, 2), <i32 as Number>::div(i32::MIN, -1), <u8 as Number>::div(9, 0)), (-3, i32::MIN, 0));
    }

    #[test]
    fn integer_powers_are_exact_modulo_the_type() {
        assert_eq!(((-3i32).power(false, 3), 2u8.power(false, 9), 3u64.power(false, 40)), (-27, 0, 12_157_665_459_056_928_801));
        assert_eq!(((-1i8).power(true, 3), (-1i8).power(true, 128), 2i16.power(true, 1), 0i64.power(true, 1)), (-1, 1, 0, 0));
        assert_eq!((0u8.power(false, 0), u64::MAX.power(false, u64::MAX)), (1, u64::MAX));
    }

    #[test]
    fn the_larger_and_the_smaller_of_a_number_and_nan_is_nan() {
        for (a, b) in [(1.0, f32::NAN), (f32::NAN, 1.0)] {
            assert!(<f32 as Number>::max(a, b).is_nan() && <f32 as Number>::min(a, b).is_nan());
        }
    }
}
