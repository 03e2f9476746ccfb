//! The error function: `x + x·P(x²)` near zero, `1 - e^Q(|x|)` beyond.

use super::exp::exp_of;
use super::{fma, polynomial};

/// `erf(x)/x - 1` in `x²` for `|x| <= 1.25`, highest coefficient first; relative error of `erf`: 2^-29.
const SMALL: [f32; 8] =
    [-7.668_651e-6, 1.044_710_7e-4, -8.351_24e-4, 5.210_289_7e-3, -2.686_096_4e-2, 1.128_369_4e-1, -3.761_263_2e-1, 1.283_791_7e-1];

/// `ln(1 - erf(t))` for `1.23 <= t <= 4`, highest coefficient first; relative error of `erf`: 2^-27.
const LARGE: [f32; 6] = [-9.402_382e-4, 1.297_501_6e-2, -8.256_036e-2, -6.645_403_5e-1, -1.109_258_7, -5.293_226_3e-3];

/// The error function `2/√π ∫₀ˣ e^(-t²) dt`.
///
/// Error: at most 1.5 ulp.
#[inline(always)]
pub fn erf(x: f32) -> f32 {
    let t = x.abs();
    let t = if t > 4.0 { 4.0 } else { t };
    let small = fma(t, polynomial(t * t, SMALL), t);
    let (hi, lo) = exp_of(polynomial(t, LARGE)).parts();
    let large = (1.0 - hi) - lo;
    let value = if t < 1.25 { small } else { large };
    value.copysign(x)
}
