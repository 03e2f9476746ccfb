//! Sine, cosine and tangent from polynomials on `[-0.8, 0.8]` (a little over π/4), chosen and signed by the quadrant.

use super::reduce::{Angle, any, small};
use super::{fast_two_sum, fma, polynomial};

/// `(sin r - r)/r³` in `r²`, highest coefficient first; relative error of `sin`: 2^-31.
const SIN: [f32; 4] = [2.894_022_8e-6, -1.985_913_7e-4, 8.333_393e-3, -1.666_666_7e-1];
/// `(cos r - 1 + r²/2)/r⁴` in `r²`, highest coefficient first; relative error of `cos`: 2^-29.
const COS: [f32; 3] = [2.453_634e-5, -1.388_824_2e-3, 4.166_666_4e-2];
/// `(tan r - r)/r³` in `r²`, highest coefficient first; relative error of `tan`: 2^-27.
const TAN: [f32; 7] = [4.011_674_3e-3, 8.933_258_4e-4, 1.015_073_9e-2, 2.156_528_8e-2, 5.400_192_4e-2, 1.333_319_4e-1, 3.333_333_4e-1];

/// The sine of an angle whose quadrant counts from `turn` on.
#[inline(always)]
fn sine(angle: Angle, turn: u32) -> f32 {
    let Angle { quadrant, hi, lo } = angle;
    let quadrant = quadrant.wrapping_add(turn);
    let z = hi * hi;
    let half = 0.5 * hi;
    let w = fma(-half, hi, 1.0);
    let w_error = fma(-half, hi, 1.0 - w);
    let sin = hi + fma(z * hi, polynomial(z, SIN), lo * w);
    let cos = w + fma(z * z, polynomial(z, COS), fma(-hi, lo, w_error));
    let value = if quadrant & 1 == 0 { sin } else { cos };
    f32::from_bits(value.to_bits() ^ ((quadrant & 2) << 30))
}

/// `value` with the sign of `x` multiplied in; NaN where `x` is not finite.
#[inline(always)]
fn odd(x: f32, value: f32) -> f32 {
    let signed = f32::from_bits(value.to_bits() ^ (x.to_bits() & 0x8000_0000));
    if x.abs() < f32::INFINITY { signed } else { f32::NAN }
}

/// Sine of `x` radians, over the whole range; NaN at infinity.
///
/// Error: at most 0.8 ulp.
#[inline(always)]
pub fn sin(x: f32) -> f32 {
    odd(x, sine(any(x.abs()), 0))
}

/// Cosine of `x` radians, over the whole range; NaN at infinity.
///
/// Error: at most 0.8 ulp.
#[inline(always)]
pub fn cos(x: f32) -> f32 {
    let value = sine(any(x.abs()), 1);
    if x.abs() < f32::INFINITY { value } else { f32::NAN }
}

/// [`sin`] for `|x| <= FAST_TRIG_LIMIT`: the same bits without the reduction for large angles.
#[inline(always)]
pub fn sin_fast(x: f32) -> f32 {
    odd(x, sine(small(x.abs()), 0))
}

/// [`cos`] for `|x| <= FAST_TRIG_LIMIT`: the same bits without the reduction for large angles.
#[inline(always)]
pub fn cos_fast(x: f32) -> f32 {
    sine(small(x.abs()), 1)
}

/// Tangent of `x` radians, over the whole range; NaN at infinity.
///
/// Error: at most 1.2 ulp.
#[inline(always)]
pub fn tan(x: f32) -> f32 {
    let Angle { quadrant, hi, lo } = any(x.abs());
    let z = hi * hi;
    let (tan, error) = fast_two_sum(hi, z * hi * polynomial(z, TAN));
    let error = error + fma(tan * tan, lo, lo);
    let inverse = -1.0 / tan;
    let remainder = fma(inverse, tan, 1.0) + inverse * error;
    let cotangent = fma(inverse, remainder, inverse);
    odd(x, if quadrant & 1 == 0 { tan + error } else { cotangent })
}
