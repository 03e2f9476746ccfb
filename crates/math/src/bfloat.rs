//! Functions of a bfloat to a bfloat's precision, with a third of the work. Rounded to bfloat they have the bits that the functions themselves,
//! rounded, have: the tests compare all of them.

use std::f32::consts::LN_2;

use super::{
    Real,
    activation::logistic_by,
    exp::{power_of, raised_power},
    fma,
};

/// `e^-r` on `|r| <= 0.347`, highest coefficient first; relative error 2^-21.2.
const EXP_BFLOAT: [f32; 6] = [-8.357_201e-3, 4.183_381e-2, -1.666_663e-1, 4.999_975e-1, -1.0, 1.0];

/// Where `e^-x` is far from the largest float.
const NEAR: f32 = -80.0;

/// [`EXP_BFLOAT`] of `r`, by pairs: what the next operation waits for is half as much as by Horner's rule.
#[inline(always)]
fn exp_reduced<R: Real>(r: R) -> R {
    let [a, b, c, d, e, f] = EXP_BFLOAT;
    let pair = |a: f32, b: f32| fma(R::of(a), r, R::of(b));
    let square = r * r;
    fma(fma(pair(a, b), square, pair(c, d)), square, pair(e, f))
}

/// `numerator / (1 + e^-x)` for `x` a bfloat.
#[inline(always)]
fn logistic<R: Real>(x: R, numerator: R) -> R {
    if x.any_below(NEAR) { logistic_far(x, numerator) } else { logistic_near(x, numerator) }
}

/// [`logistic`] for `x` from [`NEAR`] on.
#[inline(always)]
fn logistic_near<R: Real>(x: R, numerator: R) -> R {
    let x = x.at_most(87.0);
    let (n, power) = power_of(x);
    numerator / fma(exp_reduced(fma(n, R::of(LN_2), x)), power, R::of(1.0))
}

/// [`logistic`] for any `x`.
#[inline(always)]
fn logistic_far<R: Real>(x: R, numerator: R) -> R {
    let t = x.abs().at_most(100.0);
    let (n, power) = raised_power(t);
    logistic_by(x, numerator, exp_reduced(fma(n, R::of(LN_2), t)) * power)
}

/// `1 / (1 + e^-x)` for `x` a bfloat: rounded to bfloat, it is [`sigmoid`](super::sigmoid) rounded to bfloat.
#[inline(always)]
pub fn sigmoid_bfloat<R: Real>(x: R) -> R {
    logistic(x, R::of(1.0))
}

/// `x · sigmoid(x)` for `x` a bfloat: rounded to bfloat, it is [`silu`](super::silu) rounded to bfloat.
#[inline(always)]
pub fn silu_bfloat<R: Real>(x: R) -> R {
    logistic(x, x.at_least(-100.0))
}

#[cfg(test)]
mod tests {
    use half::bf16;

    use super::*;

    /// A packet takes the way of its least number.
    #[test]
    fn near_and_far_functions_round_to_the_same_bfloat() {
        for x in (0..=u16::MAX).map(bf16::from_bits).filter(|x| x.to_f32() >= NEAR) {
            let of = |function: fn(f32, f32) -> f32, numerator| bf16::from_f32(function(x.to_f32(), numerator)).to_bits();
            for numerator in [1.0, x.to_f32()] {
                assert_eq!(of(logistic_near, numerator), of(logistic_far, numerator), "{x}");
            }
        }
    }
}
