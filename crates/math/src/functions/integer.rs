//! Arithmetic of integers, which is total: it wraps, division by zero gives zero, and shifts take their count modulo the width.

use elinvar_core::Element;

/// An integer type of Rust's.
pub trait Integer: Element + Ord {
    /// The sum's low bits.
    fn add(self, other: Self) -> Self;
    /// The difference's low bits.
    fn sub(self, other: Self) -> Self;
    /// The product's low bits.
    fn mul(self, other: Self) -> Self;
    /// Towards zero; by zero zero; the least by -1 itself.
    fn div(self, other: Self) -> Self;
    /// What [`Integer::div`] leaves; by zero the dividend.
    fn rem(self, other: Self) -> Self;
    /// Bits that both have.
    fn and(self, other: Self) -> Self;
    /// Bits that either has.
    fn or(self, other: Self) -> Self;
    /// Bits that differ.
    fn xor(self, other: Self) -> Self;
    /// Left by `other` modulo the width.
    fn shl(self, other: Self) -> Self;
    /// Right by `other` modulo the width, copying the sign of signed types.
    fn shr(self, other: Self) -> Self;
    /// The opposite's low bits.
    fn neg(self) -> Self;
    /// The magnitude; the least integer is its own.
    fn abs(self) -> Self;
    /// -1, 0 or 1.
    fn sign(self) -> Self;
    /// Every bit inverted.
    fn not(self) -> Self;
    /// How many bits are one.
    fn popcount(self) -> Self;
    /// The low bits of a power, its exponent given as sign and magnitude; to a negative exponent the exact power towards zero (of zero: zero).
    fn power(self, negative: bool, magnitude: u64) -> Self;
}

macro_rules! integers {
    ($($type:ident, |$x:ident| $abs:expr, $sign:expr;)*) => {$(
        impl Integer for $type {
            #[inline(always)]
            fn add(self, other: Self) -> Self { self.wrapping_add(other) }
            #[inline(always)]
            fn sub(self, other: Self) -> Self { self.wrapping_sub(other) }
            #[inline(always)]
            fn mul(self, other: Self) -> Self { self.wrapping_mul(other) }
            #[inline(always)]
            fn div(self, other: Self) -> Self { if other == 0 { 0 } else { self.wrapping_div(other) } }
            #[inline(always)]
            fn rem(self, other: Self) -> Self { if other == 0 { self } else { self.wrapping_rem(other) } }
            #[inline(always)]
            fn and(self, other: Self) -> Self { self & other }
            #[inline(always)]
            fn or(self, other: Self) -> Self { self | other }
            #[inline(always)]
            fn xor(self, other: Self) -> Self { self ^ other }
            #[inline(always)]
            fn shl(self, other: Self) -> Self { self << (other & ($type::BITS - 1) as $type) }
            #[inline(always)]
            fn shr(self, other: Self) -> Self { self >> (other & ($type::BITS - 1) as $type) }
            #[inline(always)]
            fn neg(self) -> Self { self.wrapping_neg() }
            #[inline(always)]
            fn abs(self) -> Self { let $x = self; $abs }
            #[inline(always)]
            fn sign(self) -> Self { let $x = self; $sign }
            #[inline(always)]
            fn not(self) -> Self { !self }
            #[inline(always)]
            fn popcount(self) -> Self { self.count_ones() as $type }
            #[inline(always)]
            fn power(self, negative: bool, magnitude: u64) -> Self {
                let minus_one = $type::MIN != 0 && self == (0 as $type).wrapping_sub(1);
                // Only 1 and -1 have powers with a negative exponent that do not round to zero.
                if negative && self != 1 && !minus_one {
                    return 0;
                }
                let (mut result, mut square, mut left): (Self, Self, u64) = (1, self, magnitude);
                while left != 0 {
                    if left & 1 == 1 {
                        result = result.wrapping_mul(square);
                    }
                    square = square.wrapping_mul(square);
                    left >>= 1;
                }
                result
            }
        }
    )*};
}
integers! {
    i8, |x| x.wrapping_abs(), x.signum();
    i16, |x| x.wrapping_abs(), x.signum();
    i32, |x| x.wrapping_abs(), x.signum();
    i64, |x| x.wrapping_abs(), x.signum();
    u8, |x| x, x.min(1);
    u16, |x| x, x.min(1);
    u32, |x| x, x.min(1);
    u64, |x| x, x.min(1);
}

#[cfg(test)]
mod tests {
    use super::Integer;

    #[test]
    fn integers_wrap_and_division_is_total() {
        assert_eq!((Integer::add(127i8, 1), Integer::sub(0u16, 1), Integer::mul(i64::MAX, 2)), (-128, 65535, -2));
        assert_eq!((Integer::div(-7, 2), Integer::div(i32::MIN, -1), Integer::div(9u8, 0)), (-3, i32::MIN, 0));
        assert_eq!((Integer::rem(-7, 2), Integer::rem(i32::MIN, -1), Integer::rem(9u8, 0)), (-1, 0, 9));
        assert_eq!((Integer::abs(i8::MIN), Integer::sign(i16::MIN), Integer::sign(0u8), Integer::sign(7u64)), (i8::MIN, -1, 0, 1));
    }

    #[test]
    fn integer_powers_are_exact_modulo_the_type() {
        assert_eq!(((-3i32).power(false, 3), 2u8.power(false, 9), 3u64.power(false, 40)), (-27, 0, 12_157_665_459_056_928_801));
        assert_eq!(((-1i8).power(true, 3), (-1i8).power(true, 128), 2i16.power(true, 1), 0i64.power(true, 1)), (-1, 1, 0, 0));
        assert_eq!((0u8.power(false, 0), u64::MAX.power(false, u64::MAX)), (1, u64::MAX));
    }
}
