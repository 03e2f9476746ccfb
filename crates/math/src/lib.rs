//! The strict transcendental functions: one `f32` definition for every device. Beside them [`float`], conversions between the floating-point types,
//! and [`mod@simd`], which compiles a loop for several instruction sets.
//!
//! Each function is a fixed sequence of IEEE-754 operations: `+ - * / sqrt`, explicit [`f32::mul_add`], comparisons,
//! selects, bit casts and 32/64-bit integer arithmetic. Nothing is contracted or reassociated, no library function is
//! called and no `f64` is used, so any device that rounds these operations correctly and keeps denormals returns the
//! same bits. (A NaN result is a NaN; its sign and payload are not specified.)
//!
//! There are no branches: special cases are selects, so a loop over a slice vectorises when it is compiled with FMA
//! (without it each `mul_add` becomes a call, with the same result).
//!
//! The idea throughout: results are kept as an unevaluated sum `hi + lo` of two floats until one last rounding, which
//! holds most errors near the half ulp that this rounding costs. Every bound quoted is above the largest error found
//! over all 2^32 inputs (`pow`: as many random pairs) against an `f64` reference, by `examples/exhaustive_math.rs`.

pub mod ceiling;
pub mod float;
pub mod functions;
pub mod reference;
pub mod simd;

mod activation;
mod bfloat;
mod erf;
mod exp;
mod hyperbolic;
mod log;
mod pow;
mod reduce;
mod trig;

#[cfg(test)]
mod tests;

pub use activation::{elu, gelu, gelu_tanh, hard_sigmoid, hard_swish, mish, selu, sigmoid, silu, softplus};
pub use bfloat::{sigmoid_bfloat, silu_bfloat};
pub use erf::erf;
pub use exp::{exp, exp_nonpositive, exp2};
pub use hyperbolic::tanh;
pub use log::{log, log1p, log2, log10};
pub use pow::{pow, powi};
pub use reduce::FAST_TRIG_LIMIT;
pub use trig::{cos, cos_fast, sin, sin_fast, tan};

/// The same functions in Metal.
pub const METAL: elinvar_core::MetalFile = elinvar_core::MetalFile { name: "math/math.metal", text: include_str!("math.metal") };

/// Adding this to `|x| < 2^22` leaves round-to-nearest-even of `x` in the low mantissa bits.
const ROUND: f32 = 12_582_912.0;

/// `1/√x`, both operations rounded.
///
/// Error: at most 1.5 ulp.
#[inline(always)]
pub fn rsqrt(x: f32) -> f32 {
    1.0 / x.sqrt()
}

/// `a·b + c`, rounded once.
#[inline(always)]
fn fma(a: f32, b: f32, c: f32) -> f32 {
    a.mul_add(b, c)
}

/// Horner's rule, highest coefficient first.
#[inline(always)]
fn polynomial<const N: usize>(x: f32, coefficients: [f32; N]) -> f32 {
    let mut sum = coefficients[0];
    for &c in &coefficients[1..] {
        sum = fma(sum, x, c);
    }
    sum
}

/// `2^k` for `-126 <= k <= 127`.
#[inline(always)]
fn pow2(k: i32) -> f32 {
    f32::from_bits((k.wrapping_add(127) as u32) << 23)
}

/// `m·2^k` for `m` of ordinary size and `-252 <= k <= 254`, rounded once also where the result is denormal.
#[inline(always)]
fn scale(m: f32, k: i32) -> f32 {
    let half = k >> 1;
    m * pow2(half) * pow2(k.wrapping_sub(half))
}

/// `a + b` as an exact sum of two floats, for `|a| >= |b|` or `a == 0`.
#[inline(always)]
fn fast_two_sum(a: f32, b: f32) -> (f32, f32) {
    let sum = a + b;
    (sum, b - (sum - a))
}

/// `a + b` as an exact sum of two floats.
#[inline(always)]
fn two_sum(a: f32, b: f32) -> (f32, f32) {
    let sum = a + b;
    let b_part = sum - a;
    (sum, (a - (sum - b_part)) + (b - b_part))
}

/// `a·b` as an exact sum of two floats.
#[inline(always)]
fn two_product(a: f32, b: f32) -> (f32, f32) {
    let product = a * b;
    (product, fma(a, b, -product))
}

/// `(n.0 + n.1) / (d.0 + d.1)` as a sum of two floats.
#[inline(always)]
fn divide(n: (f32, f32), d: (f32, f32)) -> (f32, f32) {
    let inverse = 1.0 / d.0;
    let quotient = n.0 * inverse;
    let remainder = fma(-quotient, d.0, n.0) + fma(-quotient, d.1, n.1);
    (quotient, remainder * inverse)
}

/// `1/x` for `1 <= x <= 2`, to an ulp: a polynomial and two steps of Newton's iteration, faster than a division wherever those are exact.
#[inline(always)]
fn mantissa_reciprocal(x: f32) -> f32 {
    let y = fma(fma(0.323_232_32, x, -1.454_545_5), x, 2.121_212_2);
    let y = fma(y, fma(-x, y, 1.0), y);
    fma(y, fma(-x, y, 1.0), y)
}

/// `x` held to `[low, high]`; NaN stays NaN.
#[inline(always)]
fn clamp(x: f32, low: f32, high: f32) -> f32 {
    let x = if x < low { low } else { x };
    if x > high { high } else { x }
}
