//! The `f64` oracles of the functions, for their tests and the program that tries every input.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI, PI};

/// A function, its oracle and the largest error it may show.
#[derive(Clone, Copy)]
pub struct Function {
    /// Its name in [`super`].
    pub name: &'static str,
    /// The function over a slice, compiled for this processor.
    pub apply: fn(&[f32], &mut [f32]),
    /// The function itself, compiled for the baseline target.
    pub scalar: fn(f32) -> f32,
    /// The inputs that it is for.
    pub domain: fn(f32) -> bool,
    /// The same function in `f64`.
    pub oracle: fn(f64) -> f64,
    /// In units in the last place of the exact result.
    pub bound: f64,
}

macro_rules! function {
    ($name:ident, $oracle:expr, $bound:expr) => {
        function!($name, $oracle, $bound, |_| true)
    };
    ($name:ident, $oracle:expr, $bound:expr, $domain:expr) => {{
        crate::simd! {
            fn apply(x: &[f32], y: &mut [f32]) {
                for (y, &x) in y.iter_mut().zip(x) {
                    *y = super::$name(x);
                }
            }
        }
        Function { name: stringify!($name), apply, scalar: |x| super::$name(x), domain: $domain, oracle: $oracle, bound: $bound }
    }};
}

/// Every function of one variable.
pub fn functions() -> Vec<Function> {
    vec![
        function!(exp, f64::exp, 0.8),
        function!(exp_nonpositive, exp_nonpositive, 0.9, |x| x <= 0.0 || x.is_nan()),
        function!(exp2, f64::exp2, 0.8),
        function!(log, f64::ln, 0.7),
        function!(log2, f64::log2, 0.8),
        function!(log1p, f64::ln_1p, 0.8),
        function!(sin, f64::sin, 0.8),
        function!(cos, f64::cos, 0.8),
        function!(tan, f64::tan, 1.2),
        function!(tanh, f64::tanh, 0.8),
        function!(sigmoid, sigmoid, 0.8),
        function!(silu, silu, 0.9),
        function!(softplus, softplus, 1.2),
        function!(erf, erf, 1.5),
        function!(gelu_erf, gelu_erf, 1.6),
        function!(gelu_tanh, gelu_tanh, 0.8),
        function!(rsqrt, |x| 1.0 / x.sqrt(), 1.5),
    ]
}

/// The largest error `pow` may show, in units in the last place.
pub const POW_BOUND: f64 = 0.8;

crate::simd! {
    /// `z = x^y` over slices of one length, compiled for this processor.
    pub fn apply_pow(x: &[f32], y: &[f32], z: &mut [f32]) {
        for ((z, &x), &y) in z.iter_mut().zip(x).zip(y) {
            *z = super::pow(x, y);
        }
    }
}

/// 2^128.
const OVERFLOW: f64 = 340_282_366_920_938_463_463_374_607_431_768_211_456.0;

/// The error of `value` in units in the last place of `exact`; infinite where one is NaN and the other not, where a
/// zero has the wrong sign, and where an exact zero or infinity is missed. An overflow counts as 2^128.
pub fn error_in_ulp(value: f32, exact: f64) -> f64 {
    if exact.is_nan() || value.is_nan() {
        return if exact.is_nan() && value.is_nan() { 0.0 } else { f64::INFINITY };
    }
    let sign_differs = value.is_sign_negative() != exact.is_sign_negative();
    if exact == 0.0 || exact.is_infinite() {
        return if f64::from(value) == exact && !sign_differs { 0.0 } else { f64::INFINITY };
    }
    if sign_differs {
        return f64::INFINITY;
    }
    let exact = exact.clamp(-OVERFLOW, OVERFLOW);
    let value = f64::from(value).clamp(-OVERFLOW, OVERFLOW);
    let exponent = ((exact.to_bits() >> 52) & 0x7ff).clamp(1023 - 126, 1023 + 127);
    let ulps_per_unit = f64::from_bits((2 * 1023 + 23 - exponent) << 52);
    (value - exact).abs() * ulps_per_unit
}

/// Zero from where the power of two would be 2^-127.
fn exp_nonpositive(x: f64) -> f64 {
    if x < -87.683_12 { 0.0 } else { x.exp() }
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn silu(x: f64) -> f64 {
    if x == f64::NEG_INFINITY { -0.0 } else { x * sigmoid(x) }
}

fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

fn gelu_erf(x: f64) -> f64 {
    if x == f64::NEG_INFINITY { -0.0 } else { x * (0.5 * erfc(-x * FRAC_1_SQRT_2)) }
}

fn gelu_tanh(x: f64) -> f64 {
    if x == f64::NEG_INFINITY { -0.0 } else { x * sigmoid(2.0 * (2.0 / PI).sqrt() * (x + 0.044715 * x * x * x)) }
}

/// Taylor series about zero, the complement's continued fraction beyond 2.
fn erf(x: f64) -> f64 {
    let t = x.abs();
    if t > 2.0 {
        return (1.0 - erfc_fraction(t)).copysign(x);
    }
    // erf x = 2/√π · x · e^(-x²) · Σ (2x²)^n / (1·3·…·(2n+1)): all terms positive.
    let (mut term, mut sum, mut odd) = (1.0, 1.0, 1.0);
    while term > sum * 1e-17 {
        odd += 2.0;
        term *= 2.0 * t * t / odd;
        sum += term;
    }
    FRAC_2_SQRT_PI * x * (-t * t).exp() * sum
}

fn erfc(x: f64) -> f64 {
    if x > 2.0 { erfc_fraction(x) } else { 1.0 - erf(x) }
}

/// `erfc x = e^(-x²)/√π · 1/(x + (1/2)/(x + (2/2)/(x + (3/2)/(x + …))))`, for `x > 2`.
fn erfc_fraction(x: f64) -> f64 {
    if x > 28.0 {
        return 0.0;
    }
    let depth = (40.0 + 400.0 / (x * x)).min(200.0) as u32;
    let tail = (1..=depth).rev().fold(x, |tail, n| x + 0.5 * f64::from(n) / tail);
    (-x * x).exp() / (PI.sqrt() * tail)
}
