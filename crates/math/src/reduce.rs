//! Reduction of an angle to about `[-π/4, π/4]` and a quadrant: by a four-part π/2 for ordinary angles (Cody and Waite), by
//! an integer product with the needed 96 bits of 2/π for large ones (Payne and Hanek).

use super::{ROUND, fast_two_sum, fma, two_product, two_sum};

/// Up to this magnitude an angle is reduced by the short form, which is cheaper than the general one and gives the same bits.
pub const FAST_TRIG_LIMIT: f32 = 262_144.0;

const TWO_OVER_PI: f32 = std::f32::consts::FRAC_2_PI;
/// π/2 in three floats.
const PI_2: [f32; 3] = [std::f32::consts::FRAC_PI_2, -4.371_139e-8, -1.715_124_5e-15];

/// A word of zeros, then the bits of 2/π after the point.
const TWO_OVER_PI_BITS: [u32; 8] = [0, 0xa2f9_836e, 0x4e44_1529, 0xfc27_57d1, 0xf534_ddc0, 0xdb62_9599, 0x3c43_9041, 0xfe51_63ab];

/// `quadrant · π/2 + hi + lo`, the quadrant modulo 4.
#[derive(Clone, Copy)]
pub(super) struct Angle {
    pub(super) quadrant: u32,
    pub(super) hi: f32,
    pub(super) lo: f32,
}

/// Reduces `0 <= x <= FAST_TRIG_LIMIT`.
#[inline(always)]
pub(super) fn small(x: f32) -> Angle {
    let rounded = fma(x, TWO_OVER_PI, ROUND);
    let n = rounded - ROUND;
    let first = fma(n, -PI_2[0], x);
    let (product, product_error) = two_product(n, PI_2[1]);
    let (second, error) = two_sum(first, -product);
    let rest = fma(n, -PI_2[2], error - product_error);
    let (hi, lo) = fast_two_sum(second, rest);
    Angle { quadrant: rounded.to_bits(), hi, lo }
}

/// Reduces `FAST_TRIG_LIMIT < x < ∞`.
#[inline(always)]
fn large(x: f32) -> Angle {
    let bits = x.to_bits();
    let mantissa = (bits & 0x007f_ffff) | 0x0080_0000;
    // Of 2/π, the bits that meet the mantissa at 2^2 and above give whole turns; the first one kept is at `start`.
    let start = (bits >> 23).wrapping_sub(120);
    let word = |i: u32| TWO_OVER_PI_BITS[((start >> 5).wrapping_add(i) & 7) as usize];
    let shift = start & 31;
    let window = |high: u32, low: u32| (((u64::from(high) << 32 | u64::from(low)) << shift) >> 32) as u32;
    let (w0, w1, w2, w3) = (word(0), word(1), word(2), word(3));
    let m = u64::from(mantissa);
    let top = u64::from(mantissa.wrapping_mul(window(w0, w1))) << 32;
    let middle = m.wrapping_mul(u64::from(window(w1, w2)));
    let bottom = m.wrapping_mul(u64::from(window(w2, w3))) >> 32;
    // Quarter turns: two integer bits, 62 bits of fraction.
    let turns = top.wrapping_add(middle).wrapping_add(bottom);
    let quadrant = ((turns >> 61) as u32).wrapping_add(1) >> 1;
    let (hi, lo) = fraction(turns << 2);
    let (angle, error) = two_product(hi, PI_2[0]);
    Angle { quadrant, hi: angle, lo: fma(lo, PI_2[0], fma(hi, PI_2[1], error)) }
}

/// A signed 64-bit fraction as the sum of two floats.
#[inline(always)]
fn fraction(bits: u64) -> (f32, f32) {
    let high = ((bits as i64) >> 40) as i32 as f32 * (1.0 / 16_777_216.0);
    let middle = ((bits >> 16) as u32 & 0x00ff_ffff) as i32 as f32 * (1.0 / 281_474_976_710_656.0);
    let low = (bits as u32 & 0xffff) as i32 as f32 * (1.0 / 18_446_744_073_709_551_616.0);
    let (hi, lo) = fast_two_sum(high, middle);
    (hi, lo + low)
}

/// Reduces any `x >= 0`.
#[inline(always)]
pub(super) fn any(x: f32) -> Angle {
    let near = small(x);
    let far = large(x);
    let is_near = x <= FAST_TRIG_LIMIT;
    Angle {
        quadrant: if is_near { near.quadrant } else { far.quadrant },
        hi: if is_near { near.hi } else { far.hi },
        lo: if is_near { near.lo } else { far.lo },
    }
}
