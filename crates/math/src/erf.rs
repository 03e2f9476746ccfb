//! The error function: `x + x·P(x²)` near zero, `1 - e^Q(|x|)` beyond.

use super::exp::exp_of;
use super::{fma, polynomial};

/// The middle of the values of `x²` for which [`SMALL`] holds: powers of the distance to it stay small, and so do their rounding errors.
const MIDDLE: f32 = 0.78125;
/// `erf(x)/x - 1` in `x² - MIDDLE` for `|x| <= 1.25`, highest coefficient first; relative error of `erf`: 2^-28.
const SMALL: [f32; 8] = [-7.677_65e-6, 6.264_567e-5, -4.436_927_3e-4, 2.776_446e-3, -1.477_968_2e-2, 6.551_697e-2, -2.404_499_7e-1, -1.076_873e-1];

/// `ln(1 - erf(t))` for `1.23 <= t <= 4`, highest coefficient first; relative error of `erf`: 2^-27.
const LARGE: [f32; 6] = [-9.402_382e-4, 1.297_501_6e-2, -8.256_036e-2, -6.645_403_5e-1, -1.109_258_7, -5.293_226_3e-3];

/// The error function `2/√π ∫₀ˣ e^(-t²) dt`.
///
/// Error: at most 1.5 ulp.
#[inline(always)]
pub fn erf(x: f32) -> f32 {
    let t = x.abs();
    let t = if t > 4.0 { 4.0 } else { t };
    let small = fma(t, polynomial(fma(t, t, -MIDDLE), SMALL), t);
    let (hi, lo) = exp_of(polynomial(t, LARGE)).parts();
    let large = (1.0 - hi) - lo;
    let value = if t < 1.25 { small } else { large };
    value.copysign(x)
}
