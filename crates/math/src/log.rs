//! Logarithms: `x = 2^n · (1 + f)` with `1 + f` in `[√½, √2)`, and a polynomial for `ln(1 + f)`.

use super::exp::{LN2_HI, LN2_LO};
use super::{fast_two_sum, fma, polynomial, two_product};

const LOG2_E: f32 = std::f32::consts::LOG2_E;
const LOG2_E_TAIL: f32 = 1.925_963e-8;
const SQRT_HALF_BITS: u32 = 0x3f35_04f3;

/// `(ln(1 + f) - f + f²/2) / f³`, highest coefficient first; relative error of `ln(1 + f)`: 2^-28.
const LOG: [f32; 9] =
    [7.037_888e-2, -1.151_056_4e-1, 1.167_477_7e-1, -1.242_064_5e-1, 1.424_966_9e-1, -1.666_804_3e-1, 2.000_07e-1, -2.499_999_4e-1, 3.333_333e-1];

/// `(n, f)` with `x = 2^n · (1 + f)`, exactly, for `0 < x < ∞`.
#[inline(always)]
pub(super) fn split(x: f32) -> (f32, f32) {
    let denormal = x < f32::MIN_POSITIVE;
    let normal = if denormal { x * 8_388_608.0 } else { x };
    let shift = if denormal { 23.0 } else { 0.0 };
    let bits = normal.to_bits().wrapping_sub(SQRT_HALF_BITS);
    let n = ((bits as i32) >> 23) as f32 - shift;
    let m = f32::from_bits((bits & 0x007f_ffff).wrapping_add(SQRT_HALF_BITS));
    (n, m - 1.0)
}

/// `ln(1 + f)` as a sum of two floats.
#[inline(always)]
fn log_of_mantissa(f: f32) -> (f32, f32) {
    let (square, square_error) = two_product(f, f);
    let (hi, lo) = fast_two_sum(f, -0.5 * square);
    (hi, fma(f * square, polynomial(f, LOG), fma(-0.5, square_error, lo)))
}

/// `ln(x) + tail` for `0 < x < ∞`.
#[inline(always)]
fn log_plus(x: f32, tail: f32) -> f32 {
    let (n, f) = split(x);
    let (log, rest) = log_of_mantissa(f);
    let (hi, lo) = fast_two_sum(n * LN2_HI, log);
    hi + (fma(n, LN2_LO, lo) + (rest + tail))
}

/// `value`, the logarithm of a positive finite `x`, or what the logarithm is elsewhere.
#[inline(always)]
fn with_special_cases(x: f32, value: f32) -> f32 {
    let value = if x < f32::INFINITY { value } else { x };
    let value = if x < 0.0 { f32::NAN } else { value };
    if x == 0.0 { f32::NEG_INFINITY } else { value }
}

/// Natural logarithm; `log(±0) = -∞`, NaN below zero.
///
/// Error: at most 0.7 ulp.
#[inline(always)]
pub fn log(x: f32) -> f32 {
    with_special_cases(x, log_plus(x, 0.0))
}

/// Logarithm to base 2; `log2(±0) = -∞`, NaN below zero.
///
/// Error: at most 0.8 ulp.
#[inline(always)]
pub fn log2(x: f32) -> f32 {
    let (n, f) = split(x);
    let (log, log_rest) = log_of_mantissa(f);
    let (product, error) = two_product(log, LOG2_E);
    let rest = fma(log_rest, LOG2_E, fma(log, LOG2_E_TAIL, error));
    let (hi, lo) = fast_two_sum(n, product);
    with_special_cases(x, hi + (lo + rest))
}

/// `ln(1 + x + tail)` for `x > -1` and a tail far below `x`.
#[inline(always)]
pub(super) fn log1p_of_sum(x: f32, tail: f32) -> f32 {
    let u = 1.0 + x;
    let lost = if x < 1.0 { x - (u - 1.0) } else { 1.0 - (u - x) };
    log_plus(u, (lost + tail) / u)
}

/// `ln(1 + x)`; `log1p(-1) = -∞`, NaN below -1.
///
/// Error: at most 0.8 ulp.
#[inline(always)]
pub fn log1p(x: f32) -> f32 {
    let value = with_special_cases(1.0 + x, log1p_of_sum(x, 0.0));
    if x == 0.0 { x } else { value }
}

/// Logarithm to base 10: `log2(x) · log10(2)`, both rounded.
///
/// Error: at most 2.2 ulp.
#[inline(always)]
pub fn log10(x: f32) -> f32 {
    log2(x) * std::f32::consts::LOG10_2
}
