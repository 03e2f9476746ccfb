//! The strict product of 16-bit operands: blocks of integers, exact inside, added in f32 in one order.
//!
//! A strict dot product of which at least one side has 16-bit elements (f16, bf16) is defined so; of two f32 sides it has the order of
//! [`crate::order`].
//!
//! 1. Both sides are cut into blocks of [`BLOCK`] elements, from the first on; what the last block lacks is zeros.
//! 2. A block's elements become multiples of its unit, a power of two: of 16 bits on the left side, of 15 on the right ([`Side`]). The unit follows from the
//!    exponent field `e` of the block's largest magnitude, at least 17: `2^(e - 127 - (bits - 2))`. Each element is divided by it, rounded to the nearest
//!    integer, ties to even, and brought between `±(2^(bits - 1) - 1)`, which only f32 can exceed.
//! 3. The sum of the integers' products is exact, below 2^36, in any order. It is rounded once to f32, multiplied with the product of both units, and added
//!    to the sum of the blocks before, in ascending order from +0.0: each an operation of f32.
//!
//! Powers of two multiply exactly: so multiplying and adding is one rounding, unless a block's value leaves the range of f32. A block with an infinity or NaN
//! has the unit NaN, and so the product is NaN. Subnormal f32 and bf16 count as zero, those of f16 as what they are.
//!
//! An element within 2^7 of its block's largest loses nothing as bf16, 2^4 as f16 (on the right side half as far). Of others the integer is off by a half at
//! most: with `|x|` and `|w|` the largest magnitudes of a block's sides, the product of the block is off by less than
//! `BLOCK · (2^-15 + 2^-14 + 2^-30) · |x| · |w|`, and k / [`BLOCK`] blocks add `(k / BLOCK + 1) · 2^-24 · Σ|block|`. See docs/same-bits.md for what that is on
//! real data.

pub(crate) mod cpu;
pub(crate) mod hopper;
#[cfg(any(test, feature = "conformance"))]
pub(crate) mod oracle;

use elinvar_core::{DType, MetalFile};

use crate::metal::metal_file;

/// Sums of products of pairs of 16-bit integers with bytes, in Metal.
pub(crate) const PAIRS: MetalFile = metal_file!("dot/pairs.metal");

/// Blocks as integers, after [`PAIRS`].
pub(crate) const INTEGERS: MetalFile = metal_file!("dot/integers.metal");

/// A simdgroup's tile, after [`INTEGERS`] and [`crate::matmul::DOT`].
pub(crate) const TILE: MetalFile = metal_file!("dot/tile.metal");

/// A row that a threadgroup keeps, after [`INTEGERS`] and [`crate::matmul::SHARED_ROW`].
pub(crate) const ROW: MetalFile = metal_file!("dot/row.metal");

/// A threadgroup's block, after [`INTEGERS`] and [`crate::matmul::LINES`].
pub(crate) const BLOCKS: MetalFile = metal_file!("dot/block.metal");

/// Rows and columns of [`BLOCKS`], and bytes of threadgroup memory: of each line sixteen words of 16 bytes, one to spread them, and a unit.
pub(crate) const EDGE: usize = 32;
pub(crate) const BLOCKS_BYTES: usize = 2 * EDGE * (17 * 16 + 4);

/// Elements of a block.
pub const BLOCK: usize = 128;

/// Which operand of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Activations: the rows, of 16 bits.
    Left,
    /// Weights: the columns, of 15 bits.
    Right,
}

impl Side {
    /// Bits of an integer, with the sign.
    pub const fn bits(self) -> u32 {
        match self {
            Side::Left => 16,
            Side::Right => 15,
        }
    }

    /// The greatest integer.
    pub const fn limit(self) -> i16 {
        ((1 << (self.bits() - 1)) - 1) as i16
    }

    /// The unit of a block whose largest magnitude has this exponent field in f32, and its inverse, which is finite.
    pub const fn unit(self, field: u32) -> [f32; 2] {
        let exponent = if field < LEAST_FIELD {
            LEAST_FIELD
        } else if field > INFINITE {
            INFINITE
        } else {
            field
        };
        let below = self.bits() - 2;
        if exponent == INFINITE {
            return [f32::NAN, 0.0];
        }
        [f32::from_bits((exponent - below) << 23), f32::from_bits((254 + below - exponent) << 23)]
    }
}

/// The exponent field of infinities and NaN.
const INFINITE: u32 = 255;

/// The least exponent field that a unit is made for: units stay far enough from subnormal numbers for those to round to zero.
const LEAST_FIELD: u32 = 17;

/// Bytes of a row of `k` elements that a threadgroup keeps: whole visits of a simdgroup, in 16 bits, and units.
pub(crate) const fn row_bytes(k: usize) -> usize {
    let whole = k.next_multiple_of(8 * BLOCK);
    2 * whole + whole / BLOCK * 4
}

/// Whether a strict product of these types is defined here.
pub fn applies(left: DType, right: DType) -> bool {
    [left, right].contains(&DType::F16) || [left, right].contains(&DType::BF16)
}

/// A block of up to [`BLOCK`] widened elements: its integers, and its unit.
pub fn integers(side: Side, values: &[f32]) -> ([i32; BLOCK], f32) {
    let field = values.iter().fold(0, |largest, value| largest.max(value.to_bits() & 0x7fff_ffff)) >> 23;
    let ([unit, inverse], limit) = (side.unit(field), f32::from(side.limit()));
    let mut integers = [0; BLOCK];
    for (integer, value) in integers.iter_mut().zip(values) {
        // A conversion makes 0 of a NaN.
        *integer = (value * inverse).round_ties_even().clamp(-limit, limit) as i32;
    }
    (integers, unit)
}

/// The definition: the product of two lines of widened elements.
pub fn product(left: &[f32], right: &[f32]) -> f32 {
    left.chunks(BLOCK).zip(right.chunks(BLOCK)).fold(0.0, |sum, (left, right)| {
        let ((left, left_unit), (right, right_unit)) = (integers(Side::Left, left), integers(Side::Right, right));
        let exact: i64 = left.iter().zip(&right).map(|(left, right)| i64::from(left * right)).sum();
        sum + exact as f32 * (left_unit * right_unit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_powers_of_two_that_leave_the_largest_in_range() {
        for side in [Side::Left, Side::Right] {
            for field in 0..255 {
                let [unit, inverse] = side.unit(field);
                assert!(unit.is_normal() && inverse.is_normal() && unit * inverse == 1.0, "{side:?} {field}: {unit} {inverse}");
                let largest = f32::from_bits(field << 23 | 0x7f_0000) * inverse;
                assert!(
                    largest <= f32::from(side.limit()) && (field < LEAST_FIELD || largest >= f32::from(side.limit() / 2)),
                    "{side:?} {field}: {largest}"
                );
            }
            assert!(side.unit(255)[0].is_nan());
        }
    }

    #[test]
    fn integers_are_rounded_to_even_and_kept_in_range() {
        let unit = f32::from_bits((127 - 14) << 23);
        let (found, found_unit) = integers(Side::Left, &[1.0, 0.5 * unit, 1.5 * unit, -2.5 * unit, -0.0, f32::MIN_POSITIVE / 2.0]);
        assert_eq!((&found[..7], found_unit), (&[1 << 14, 0, 2, -2, 0, 0, 0][..], unit));
        let almost = 2f32.next_down();
        assert_eq!(integers(Side::Left, &[almost, -almost]).0[..2], [32767, -32767]);
        assert_eq!(integers(Side::Right, &[almost, -almost]).0[..2], [16383, -16383]);
    }

    #[test]
    fn small_integers_have_exact_products() {
        let line = |seed: usize| -> Vec<f32> { (0..1000).map(|i| ((i * seed) % 17) as f32 - 8.0).collect() };
        let (left, right) = (line(7), line(11));
        let exact: f32 = left.iter().zip(&right).map(|(l, r)| l * r).sum();
        assert_eq!(product(&left, &right), exact);
        assert_eq!(product(&[], &[]).to_bits(), 0);
    }

    #[test]
    fn what_is_not_finite_makes_nan_and_what_is_extreme_does_not() {
        for value in [f32::INFINITY, f32::NEG_INFINITY, f32::NAN] {
            assert!(product(&[1.0, value], &[0.0, 0.0]).is_nan() && product(&[0.0, 0.0], &[value, 1.0]).is_nan());
        }
        assert_eq!(product(&[2f32.powi(120)], &[2f32.powi(-120)]), 1.0);
        assert_eq!(product(&[2f32.powi(120)], &[2f32.powi(10)]), f32::INFINITY);
        assert_eq!(product(&[2f32.powi(-60)], &[2f32.powi(-60)]), 2f32.powi(-120));
    }

    /// Normal numbers, by Box and Muller.
    fn normal(count: usize, seed: u64) -> Vec<f64> {
        let mut state = seed;
        let mut uniform = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 11) as f64 + 0.5) / 2f64.powi(53)
        };
        (0..count).map(|_| (-2.0 * uniform().ln()).sqrt() * (std::f64::consts::TAU * uniform()).cos()).collect()
    }

    /// The root mean square of the error relative to that of the products, for `ROWS` rows of elements made of normal numbers and their columns.
    fn error(narrow: impl Fn(f64) -> f32, element: impl Fn(usize, f64) -> f64) -> f64 {
        const K: usize = 4096;
        const ROWS: usize = 12;
        let left: Vec<f32> = normal(ROWS * K, 1).into_iter().enumerate().map(|(i, value)| narrow(element(i % K, value))).collect();
        let right: Vec<f32> = normal(ROWS * K, 2).into_iter().map(|value| narrow(0.02 * value)).collect();
        let (mut error, mut size) = (0.0, 0.0);
        for left in left.chunks(K) {
            for right in right.chunks(K) {
                let exact: f64 = left.iter().zip(right).map(|(l, r)| f64::from(*l) * f64::from(*r)).sum();
                error += (f64::from(product(left, right)) - exact).powi(2);
                size += exact * exact;
            }
        }
        (error / size).sqrt()
    }

    #[test]
    fn errors_are_a_tenth_of_what_a_result_in_bf16_loses() {
        let times = |every: usize, factor: f64| move |k: usize, value: f64| if k % every == every / 2 { factor * value } else { value };
        let log_normal = |_: usize, value: f64| (2.0 * value).exp().copysign(if (value * 1e6) as i64 % 2 == 0 { 1.0 } else { -1.0 });
        for narrow in [|value: f64| half::bf16::from_f64(value).to_f32(), |value: f64| half::f16::from_f64(value).to_f32()] {
            let found =
                [error(narrow, |_, value| value), error(narrow, times(100, 100.0)), error(narrow, times(1024, 1000.0)), error(narrow, log_normal)];
            assert!(found[0] <= 5e-5 && found.iter().all(|error| *error <= 1.6e-4), "{found:?}");
        }
    }
}
