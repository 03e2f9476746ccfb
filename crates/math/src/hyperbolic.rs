//! `tanh|x| = (1 - e) / (1 + e)` with `e = e^(-2|x|)`, numerator and denominator each a sum of two floats.

use super::exp::exp_of;
use super::{divide, fast_two_sum};

/// Hyperbolic tangent.
///
/// Error: at most 0.8 ulp.
#[inline(always)]
pub fn tanh(x: f32) -> f32 {
    let t = x.abs();
    let t = if t > 10.0 { 10.0 } else { t };
    let (hi, lo) = exp_of(-2.0 * t).normalized().parts();
    let (below, below_error) = fast_two_sum(1.0, -hi);
    let (above, above_error) = fast_two_sum(1.0, hi);
    let numerator = fast_two_sum(below, below_error - lo);
    let (quotient, rest) = divide(numerator, (above, above_error + lo));
    (quotient + rest).copysign(x)
}
