//! Functions of a bfloat to a bfloat's precision, with a third of the work. Rounded to bfloat they have the bits that the functions themselves,
//! rounded, have: the tests compare all of them.

use super::{
    ROUND,
    exp::{LOWERED, RAISE},
    fma, pow2,
};

/// `e^r` on `|r| <= 0.347`, highest coefficient first; relative error 2^-21.2.
const EXP_BFLOAT: [f32; 6] = [8.357_201e-3, 4.183_381e-2, 1.666_663e-1, 4.999_975e-1, 1.0, 1.0];

/// [`EXP_BFLOAT`] of `r`, by pairs: what the next operation waits for is half as much as by Horner's rule.
#[inline(always)]
fn exp_reduced(r: f32) -> f32 {
    let [a, b, c, d, e, f] = EXP_BFLOAT;
    let square = r * r;
    fma(fma(fma(a, r, b), square, fma(c, r, d)), square, fma(e, r, f))
}

/// `numerator / (1 + e^-x)` for `x` a bfloat, and what is near it.
#[inline(always)]
fn logistic(x: f32, numerator: f32) -> f32 {
    let t = x.abs();
    let t = if t > 100.0 { 100.0 } else { t };
    let rounded = fma(t, -std::f32::consts::LOG2_E, ROUND);
    let r = fma(rounded - ROUND, -std::f32::consts::LN_2, -t);
    let power = pow2(rounded.to_bits().wrapping_sub(ROUND.to_bits()) as i32 + RAISE);
    let e = exp_reduced(r) * power;
    let (numerator, factor) = if x < 0.0 { (numerator * e, LOWERED) } else { (numerator, 1.0) };
    numerator / fma(e, LOWERED, 1.0) * factor
}

/// `1 / (1 + e^-x)` for `x` a bfloat: rounded to bfloat, it is [`sigmoid`](super::sigmoid) rounded to bfloat.
#[inline(always)]
pub fn sigmoid_bfloat(x: f32) -> f32 {
    logistic(x, 1.0)
}

/// `x · sigmoid(x)` for `x` a bfloat: rounded to bfloat, it is [`silu`](super::silu) rounded to bfloat.
#[inline(always)]
pub fn silu_bfloat(x: f32) -> f32 {
    logistic(x, if x < -100.0 { -100.0 } else { x })
}
