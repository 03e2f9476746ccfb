//! `tanh|x| = (1 - e) / (1 + e)` with `e = e^(-2|x|)`, numerator and denominator each a sum of two floats.

use super::exp::exp_of;
use super::{Real, divide, fast_two_sum};

/// Hyperbolic tangent.
///
/// Error: at most 0.8 ulp.
#[inline(always)]
pub fn tanh<R: Real>(x: R) -> R {
    let t = x.abs().at_most(10.0);
    let one = R::of(1.0);
    let (hi, lo) = exp_of(R::of(-2.0) * t).normalized().parts();
    let (below, below_error) = fast_two_sum(one, -hi);
    let (above, above_error) = fast_two_sum(one, hi);
    let numerator = fast_two_sum(below, below_error - lo);
    let (quotient, rest) = divide(numerator, (above, above_error + lo));
    (quotient + rest).copysign(x)
}
