//! `x^y = 2^(y · log2 x)`. The power magnifies the logarithm's error up to 150-fold, so the logarithm is carried in two floats, from
//! `ln(1 + f) = 2·atanh(s)` with `s = f/(2 + f)`.

use super::exp::exp2_of_sum;
use super::log::split;
use super::{clamp, divide, fast_two_sum, fma, polynomial, two_product};

/// `1/3`, and what its rounding lost.
const THIRD: (f32, f32) = (0.333_333_34, -9.934_108e-9);
/// `2 / ln 2`, and what its rounding lost.
const TWO_LOG2_E: (f32, f32) = (2.885_39, 3.851_926e-8);
/// `(atanh(s)/s - 1 - s²/3) / s⁴` in `s²` for `|s| <= 0.172`, highest coefficient first; error 2^-28.
const ATANH: [f32; 4] = [9.433_317e-2, 0.111_089_15, 0.142_856_7, 0.2];

/// `a·b` for sums of two floats.
#[inline(always)]
fn product(a: (f32, f32), b: (f32, f32)) -> (f32, f32) {
    let (hi, error) = two_product(a.0, b.0);
    fast_two_sum(hi, fma(a.0, b.1, fma(a.1, b.0, error)))
}

/// `a + b` for sums of two floats, for `|a| >= |b|` or `a == 0`.
#[inline(always)]
fn sum(a: (f32, f32), b: (f32, f32)) -> (f32, f32) {
    let (hi, error) = fast_two_sum(a.0, b.0);
    fast_two_sum(hi, error + (a.1 + b.1))
}

/// `log2(x)` as a sum of two floats, for `0 < x < ∞`; relative error about 2^-43.
#[inline(always)]
fn log2_of(x: f32) -> (f32, f32) {
    let (n, f) = split(x);
    let (quotient, rest) = divide((f, 0.0), fast_two_sum(2.0, f));
    let s = fast_two_sum(quotient, rest);
    let square = product(s, s);
    let series = sum(THIRD, (square.0 * polynomial(square.0, ATANH), 0.0));
    let atanh = sum(s, product(s, product(square, series)));
    sum((n, 0.0), product(atanh, TWO_LOG2_E))
}

/// `x^y`, with the special cases of C's `pow`.
///
/// Error: at most 0.8 ulp.
#[inline(always)]
pub fn pow(x: f32, y: f32) -> f32 {
    let magnitude = x.abs();
    let (log, log_tail) = log2_of(magnitude);
    let log = if magnitude == 0.0 { f32::NEG_INFINITY } else { log };
    let log = if magnitude == f32::INFINITY { f32::INFINITY } else { log };
    let (exponent, error) = two_product(y, log);
    let tail = if exponent.abs() < 160.0 { fma(y, log_tail, error) } else { 0.0 };
    let value = exp2_of_sum(clamp(exponent, -160.0, 160.0), tail).value();

    let integer = y.round_ties_even() == y;
    let half = 0.5 * y;
    let odd = integer & (half.round_ties_even() != half);
    let signed = if odd { value.copysign(x) } else { value };
    let defined = (x >= 0.0) | ((x < 0.0) & (integer | (x == f32::NEG_INFINITY)));
    let value = if defined { signed } else { f32::NAN };
    let one = (x == 1.0) | (y == 0.0) | ((x == -1.0) & (y.abs() == f32::INFINITY));
    if one { 1.0 } else { value }
}

/// `base` to the power `exponent`, of the same bits everywhere.
pub fn powi(base: f64, exponent: u64) -> f64 {
    let (mut result, mut square, mut rest) = (1.0, base, exponent);
    while rest > 0 {
        if rest % 2 == 1 {
            result *= square;
        }
        square *= square;
        rest /= 2;
    }
    result
}
