//! Activation functions, from `e^(-|x|)` kept as a sum of two floats, but for [`silu`] and [`sigmoids`].

use super::exp::{Exponential, LOWERED, exp_nonpositive, exp_of, exp_of_sum, raised};
use super::hyperbolic::tanh;
use super::log::log1p_of_sum;
use super::{Real, clamp, fma, mantissa_reciprocal, polynomial, two_product, two_sum};

/// A weight in `[0, 1]`, `factor · (hi + lo)`.
#[derive(Clone, Copy)]
struct Weight<R> {
    hi: R,
    lo: R,
    factor: R,
}

impl<R: Real> Weight<R> {
    /// `e/(1 + e)` where `negative`, else `1/(1 + e)`, for `e <= 1`.
    #[inline(always)]
    fn logistic(e: Exponential<R>, negative: R::Mask) -> Self {
        let (one, lowered) = (R::of(1.0), R::of(LOWERED));
        let (e_hi, e_lo) = e.normalized().raised();
        let sum = fma(e_hi, lowered, one);
        let error = fma(e_lo, lowered, fma(e_hi, lowered, one - sum));
        let (n_hi, n_lo) = (R::choose(negative, e_hi, one), R::choose(negative, e_lo, R::of(0.0)));
        let inverse = mantissa_reciprocal(sum);
        let hi = n_hi * inverse;
        let remainder = fma(-hi, sum, n_hi) + fma(-hi, error, n_lo);
        Self { hi, lo: remainder * inverse, factor: R::choose(negative, lowered, one) }
    }

    /// `tail` where `negative`, else `1 - tail`, for `tail <= 1`.
    #[inline(always)]
    fn normal(tail: Exponential<R>, negative: R::Mask) -> Self {
        let (one, lowered) = (R::of(1.0), R::of(-LOWERED));
        let (hi, lo) = tail.raised();
        let rest = fma(hi, lowered, one);
        let error = fma(lo, lowered, fma(hi, lowered, one - rest));
        Self { hi: R::choose(negative, hi, rest), lo: R::choose(negative, lo, error), factor: R::choose(negative, R::of(LOWERED), one) }
    }

    /// `x > -∞` times the weight, rounded once but where the result is denormal.
    #[inline(always)]
    fn times(self, x: R) -> R {
        // Infinity times an error of another sign would be a NaN.
        fma(x, self.hi, x.at_most(150.0) * self.lo) * self.factor
    }
}

/// `1 / (1 + e^-x)`.
///
/// Error: at most 0.8 ulp.
#[inline(always)]
pub fn sigmoid<R: Real>(x: R) -> R {
    let value = Weight::logistic(exp_of((-x.abs()).at_least(-150.0)), x.is_below(0.0));
    (value.hi + value.lo) * value.factor
}

/// `1 / (1 + e^-x)` and `1 / (1 + e^x)`, for about half the work of [`sigmoid`]: what SwiGLU and its gradients multiply by.
///
/// Error: at most 3 ulp.
#[inline(always)]
pub fn sigmoids(x: f32) -> (f32, f32) {
    let e = exp_nonpositive(-x.abs());
    let larger = mantissa_reciprocal(1.0 + e);
    let smaller = e * larger;
    if x < 0.0 { (smaller, larger) } else { (larger, smaller) }
}

/// `x · sigmoid(alpha · x)` for about half the work of [`silu`]: the gate of SwiGLU; -0 at -∞.
///
/// Error: at most 4 ulp, for an `alpha` of one.
#[inline(always)]
pub fn gate(x: f32, alpha: f32) -> f32 {
    let finite = if x < f32::MIN { f32::MIN } else { x };
    finite * sigmoids(alpha * x).0
}

/// `numerator / (1 + e^-x)` by `e = e^-|x| / LOWERED`.
#[inline(always)]
pub(super) fn logistic_by<R: Real>(x: R, numerator: R, e: R) -> R {
    let (one, lowered, negative) = (R::of(1.0), R::of(LOWERED), x.is_below(0.0));
    R::choose(negative, numerator * e, numerator) / fma(e, lowered, one) * R::choose(negative, lowered, one)
}

/// `x · sigmoid(x)`; `silu(-∞) = -0`, the limit. Half the work that [`sigmoid`]'s error would take.
///
/// Error: at most 3.4 ulp.
#[inline(always)]
pub fn silu<R: Real>(x: R) -> R {
    logistic_by(x, x.at_least(-150.0), raised(x.abs().at_most(150.0)))
}

/// `ln(1 + e^x)`.
///
/// Error: at most 1.2 ulp.
#[inline(always)]
pub fn softplus(x: f32) -> f32 {
    let t = -x.abs();
    let e = exp_of(if t < -104.0 { -104.0 } else { t }).normalized();
    let (hi, lo) = e.parts();
    let log = log1p_of_sum(hi, lo);
    let below = if t < -20.0 { e.value() } else { log };
    if x > 0.0 { x + below } else { below }
}

/// `2·√(2/π)`, and what its rounding lost.
const TANH_LINEAR: (f32, f32) = (1.595_769_2, -4.534_068e-8);
/// `2·√(2/π)·0.044715`, and what its rounding lost.
const TANH_CUBIC: (f32, f32) = (7.135_481_4e-2, 2.398_832_5e-9);

/// GELU in its tanh form, `x/2 · (1 + tanh(√(2/π)(x + 0.044715x³)))`; `gelu_tanh(-∞) = -0`, the limit.
///
/// Evaluated as `x · sigmoid(v)` with `v = x·(a + b·x²)` to twice the precision, since `e^v` magnifies its error.
///
/// Error: at most 0.8 ulp.
#[inline(always)]
pub fn gelu_tanh<R: Real>(x: R) -> R {
    let t = clamp(x, -12.0, 12.0);
    let (square, square_error) = two_product(t, t);
    let (cubic, cubic_error) = two_product(R::of(TANH_CUBIC.0), square);
    let cubic_tail = fma(R::of(TANH_CUBIC.0), square_error, fma(R::of(TANH_CUBIC.1), square, cubic_error));
    let (slope, slope_error) = two_sum(R::of(TANH_LINEAR.0), cubic);
    let slope_tail = slope_error + (cubic_tail + R::of(TANH_LINEAR.1));
    let (v, v_error) = two_product(t, slope);
    let tail = fma(t, slope_tail, v_error);
    let negative = x.is_below(0.0);
    let e = exp_of_sum(R::choose(negative, v, -v), R::choose(negative, tail, -tail));
    Weight::logistic(e, negative).times(x.at_least(-12.0))
}

/// `1/√(2π)`.
const DENSITY_AT_ZERO: f32 = 0.398_942_3;

/// The middle of the values of `v = 1/(1 + t/4)` for which [`TAIL`] holds.
const MIDDLE: f32 = 0.5625;
/// `Φ(-t)·e^(t²/2) / v` in `v - MIDDLE` for `0 <= t <= 14.6`, highest coefficient first; relative error 2^-25.7.
const TAIL: [f32; 10] = [
    1.695_147_5e-2,
    2.095_097_5e-2,
    -4.213_518e-2,
    -7.657_126e-2,
    3.519_605_5e-2,
    2.567_200_4e-1,
    4.355_017_8e-1,
    4.628_791_8e-1,
    3.569_522_5e-1,
    2.094_251_2e-1,
];

/// `Φ(-t)·e^(t²/2)` for `0 <= t <= 14.6` as a sum of two floats, `Φ` the normal distribution function.
#[inline(always)]
fn scaled_normal_tail(t: f32) -> (f32, f32) {
    let (a, a_error) = two_sum(1.0, 0.25 * t);
    let v = 1.0 / a;
    let [upper @ .., constant] = TAIL;
    let distance = v - MIDDLE;
    let (product, product_error) = two_product(distance, polynomial::<9, _>(distance, upper));
    let (sum, sum_error) = two_sum(constant, product);
    let (value, error) = two_product(v, sum);
    // The rounded v stands for a slightly different t; the derivative is t·value - 1/√(2π).
    let difference = -4.0 * a * (fma(-v, a, 1.0) - v * a_error);
    let shift = difference * fma(t, value, -DENSITY_AT_ZERO);
    (value, fma(v, sum_error + product_error, error) + shift)
}

/// GELU, `x · Φ(x)` with `Φ` the normal distribution function; `gelu(-∞) = -0`, the limit.
///
/// Evaluated from `x · Φ(-|x|)`, so that nothing cancels in the negative tail.
///
/// Error: at most 1.6 ulp.
#[inline(always)]
pub fn gelu(x: f32) -> f32 {
    let c = clamp(x, -14.6, 14.6);
    let (square, square_error) = two_product(c, c);
    let e = exp_of_sum(-0.5 * square, -0.5 * square_error).normalized();
    let (tail, tail_error) = scaled_normal_tail(c.abs());
    let (hi, error) = two_product(e.hi, tail);
    let lo = fma(e.hi, tail_error, fma(e.lo, tail, error));
    let product = Weight::normal(Exponential { hi, lo, k: e.k }, x < 0.0).times(x.at_least(-14.6));
    // Of both signs of zero the product would be the positive one.
    if x == 0.0 { x } else { product }
}

/// `x · tanh(softplus(x))`; `mish(-∞) = -0`, the limit.
///
/// Error: at most 2.6 ulp.
#[inline(always)]
pub fn mish(x: f32) -> f32 {
    // Far below zero both weights are e^x, which may be too small for a float while the product is not.
    if x < -20.0 { silu(x) } else { x * tanh(softplus(x)) }
}

/// `x · clamp(x/6 + 1/2, 0, 1)`.
///
/// Error: at most 2.5 ulp and 4e-7: the sum cancels near -3.
#[inline(always)]
pub fn hard_swish(x: f32) -> f32 {
    x * clamp(x / 6.0 + 0.5, 0.0, 1.0)
}

/// The self-normalising unit: `1.0507010 · x` where positive, else `1.7580993 · (e^x - 1)`.
///
/// Error: at most 4.8 ulp.
#[inline(always)]
pub fn selu(x: f32) -> f32 {
    if x < 0.0 { elu(x, 1.758_099_3) } else { 1.050_701 * x }
}

/// `clamp(slope · x + 1/2, 0, 1)`, rounded once.
#[inline(always)]
pub fn hard_sigmoid(x: f32, slope: f32) -> f32 {
    clamp(fma(slope, x, 0.5), 0.0, 1.0)
}

/// `x` where positive, else `scale · (e^x - 1)`.
///
/// `e^x - 1 = 2t / (1 - t)` with `t = tanh(x / 2)` cancels nowhere.
///
/// Error: at most 4.2 ulp.
#[inline(always)]
pub fn elu(x: f32, scale: f32) -> f32 {
    let t = tanh(0.5 * x);
    if x < 0.0 { scale * ((t + t) / (1.0 - t)) } else { x }
}
