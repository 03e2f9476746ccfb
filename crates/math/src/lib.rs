//! The strict transcendental functions: one `f32` definition for every device. Beside them [`float`], conversions between the floating-point types,
//! and [`mod@simd`], which compiles a loop for several instruction sets.
//!
//! Each function is a fixed sequence of IEEE-754 operations: `+ - * / sqrt`, explicit [`f32::mul_add`], comparisons,
//! selects, bit casts and 32/64-bit integer arithmetic. Nothing is contracted or reassociated, no library function is
//! called and no `f64` is used, so any device that rounds these operations correctly and keeps denormals returns the
//! same bits. (A NaN result is a NaN; its sign and payload are not specified.)
//!
//! Long functions are generic ([`Real`]): one definition computes one number or a [`packet`] of them.
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
pub mod packet;
pub mod reference;
pub mod simd;

mod activation;
mod bfloat;
mod erf;
mod exp;
mod hyperbolic;
mod log;
mod pow;
mod real;
mod reduce;
mod trig;

#[cfg(test)]
mod tests;

pub use activation::{elu, gate, gelu, gelu_tanh, hard_sigmoid, hard_swish, mish, selu, sigmoid, sigmoids, silu, softplus};
pub use bfloat::{sigmoid_bfloat, silu_bfloat};
pub use erf::erf;
pub use exp::{exp, exp_nonpositive, exp2};
pub use hyperbolic::tanh;
pub use log::{log, log1p, log2, log10};
pub use pow::{pow, powi};
pub use real::Real;
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
fn fma<R: Real>(a: R, b: R, c: R) -> R {
    a.fma(b, c)
}

/// Horner's rule, highest coefficient first.
#[inline(always)]
fn polynomial<const N: usize, R: Real>(x: R, coefficients: [f32; N]) -> R {
    let mut sum = R::of(coefficients[0]);
    for &c in &coefficients[1..] {
        sum = fma(sum, x, R::of(c));
    }
    sum
}

/// `2^k` for `-126 <= k <= 127`.
#[inline(always)]
fn pow2<R: Real>(k: R::Int) -> R {
    R::from_bits(R::exponents(R::plus(k, 127)))
}

/// `m·2^k` for `m` of ordinary size and `-252 <= k <= 254`, rounded once also where the result is denormal.
#[inline(always)]
fn scale<R: Real>(m: R, k: R::Int) -> R {
    let half = R::halved(k);
    m * pow2(half) * pow2(R::minus(k, half))
}

/// `a + b` as an exact sum of two floats, for `|a| >= |b|` or `a == 0`.
#[inline(always)]
fn fast_two_sum<R: Real>(a: R, b: R) -> (R, R) {
    let sum = a + b;
    (sum, b - (sum - a))
}

/// `a + b` as an exact sum of two floats.
#[inline(always)]
fn two_sum<R: Real>(a: R, b: R) -> (R, R) {
    let sum = a + b;
    let b_part = sum - a;
    (sum, (a - (sum - b_part)) + (b - b_part))
}

/// `a·b` as an exact sum of two floats.
#[inline(always)]
fn two_product<R: Real>(a: R, b: R) -> (R, R) {
    let product = a * b;
    (product, fma(a, b, -product))
}

/// `(n.0 + n.1) / (d.0 + d.1)` as a sum of two floats.
#[inline(always)]
fn divide<R: Real>(n: (R, R), d: (R, R)) -> (R, R) {
    let inverse = R::of(1.0) / d.0;
    let quotient = n.0 * inverse;
    let remainder = fma(-quotient, d.0, n.0) + fma(-quotient, d.1, n.1);
    (quotient, remainder * inverse)
}

/// `1/x` for `1 <= x <= 2`, to an ulp: a polynomial and two steps of Newton's iteration, faster than a division wherever those are exact.
#[inline(always)]
fn mantissa_reciprocal<R: Real>(x: R) -> R {
    let one = R::of(1.0);
    let y = fma(fma(R::of(0.323_232_32), x, R::of(-1.454_545_5)), x, R::of(2.121_212_2));
    let y = fma(y, fma(-x, y, one), y);
    fma(y, fma(-x, y, one), y)
}

/// `x` held to `[low, high]`; NaN stays NaN.
#[inline(always)]
fn clamp<R: Real>(x: R, low: f32, high: f32) -> R {
    x.at_least(low).at_most(high)
}
