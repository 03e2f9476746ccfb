//! Exponentials: `e^x = 2^k · e^r` with `|r| <= ln 2 / 2`, and a polynomial for `e^r`.

use super::{ROUND, Real, clamp, fast_two_sum, fma, polynomial, pow2, scale, two_product};

const LOG2_E: f32 = std::f32::consts::LOG2_E;
/// `ln 2` in 16 bits, so that its product with a small integer is exact, and the rest.
pub(super) const LN2_HI: f32 = f32::from_bits(0x3f31_7200);
pub(super) const LN2_LO: f32 = f32::from_bits(0x35bf_be8e);
/// `ln 2` in 24 bits, and the rest.
const LN2: f32 = std::f32::consts::LN_2;
const LN2_TAIL: f32 = -1.904_654_2e-9;

/// `(e^r - 1 - r) / r²` on `|r| <= 0.347`, highest coefficient first; relative error of `e^r`: 2^-31.
const EXP: [f32; 6] = [1.995_280_3e-4, 1.393_088_3e-3, 8.333_198e-3, 4.166_650_8e-2, 1.666_666_7e-1, 0.5];

/// The power of two that keeps a small exponential an ordinary number.
const RAISE: i32 = 96;
/// What takes it back: `2^-RAISE`.
pub(super) const LOWERED: f32 = f32::from_bits((127 - RAISE as u32) << 23);

/// [`ROUND`] and what makes the low bits the exponent of a float: 0, a zero, at −127.
const ROUND_EXPONENT: f32 = ROUND + 127.0;
/// [`ROUND`] and what makes the low bits the exponent of a float that is [`RAISE`] powers of two greater.
const ROUND_RAISED: f32 = ROUND + (127 + RAISE) as f32;

/// `e^r` on `|r| <= 0.347`, highest coefficient first; relative error 2^-27.9.
const EXP_WHOLE: [f32; 7] = [1.381_460_2e-3, 8.368_716e-3, 4.166_839e-2, 0.166_665_21, 0.499_999_94, 1.0, 1.0];

/// `2^k · (hi + lo)`, `hi` in `[0.6, 1.4]` and `|lo| < 0.07`.
#[derive(Clone, Copy)]
pub(super) struct Exponential<R: Real> {
    pub(super) hi: R,
    pub(super) lo: R,
    pub(super) k: R::Int,
}

impl<R: Real> Exponential<R> {
    /// The same with `lo` below half an ulp of `hi`.
    #[inline(always)]
    pub(super) fn normalized(self) -> Self {
        let (hi, lo) = fast_two_sum(self.hi, self.lo);
        Self { hi, lo, ..self }
    }

    /// The value as a sum of two floats, short of what is below 2^-126.
    #[inline(always)]
    pub(super) fn parts(self) -> (R, R) {
        let power = pow2(R::larger(self.k, -126));
        (self.hi * power, self.lo * power)
    }

    /// The value times `1/LOWERED` as a sum of two floats, for `k <= 0`.
    #[inline(always)]
    pub(super) fn raised(self) -> (R, R) {
        let power = pow2(R::plus(self.k, RAISE));
        (self.hi * power, self.lo * power)
    }

    /// The value rounded to one float.
    #[inline(always)]
    pub(super) fn value(self) -> R {
        scale(self.hi + self.lo, self.k)
    }
}

/// `e^x` for `|x| < 200`.
#[inline(always)]
pub(super) fn exp_of<R: Real>(x: R) -> Exponential<R> {
    let (r, r_tail, k) = reduce(x);
    exp_reduced(r, r_tail, k)
}

/// `e^(x + tail)` for `|x| < 200` and a tail of an ulp or so of `x`.
#[inline(always)]
pub(super) fn exp_of_sum<R: Real>(x: R, tail: R) -> Exponential<R> {
    let (r, r_tail, k) = reduce(x);
    let (r, r_tail) = fast_two_sum(r, r_tail + tail);
    exp_reduced(r, r_tail, k)
}

/// `2^(x + tail)` for `|x| < 200` and a tail of an ulp or so of `x`.
#[inline(always)]
pub(super) fn exp2_of_sum<R: Real>(x: R, tail: R) -> Exponential<R> {
    let rounded = x + R::of(ROUND);
    let f = x - (rounded - R::of(ROUND));
    let (product, error) = two_product(f, R::of(LN2));
    let (r, r_tail) = fast_two_sum(product, fma(tail, R::of(LN2), fma(f, R::of(LN2_TAIL), error)));
    exp_reduced(r, r_tail, integer(rounded))
}

/// `x - k·ln 2` as a float and its error, and `k`.
#[inline(always)]
fn reduce<R: Real>(x: R) -> (R, R, R::Int) {
    let rounded = fma(x, R::of(LOG2_E), R::of(ROUND));
    let n = rounded - R::of(ROUND);
    let high = fma(n, R::of(-LN2_HI), x);
    let r = fma(n, R::of(-LN2_LO), high);
    (r, fma(n, R::of(-LN2_LO), high - r), integer(rounded))
}

/// The integer that adding [`ROUND`] left in the low bits.
#[inline(always)]
fn integer<R: Real>(rounded: R) -> R::Int {
    R::plus(rounded.bits(), -(ROUND.to_bits() as i32))
}

/// `2^k · e^(r + tail)` for a tail below an ulp of `r`.
#[inline(always)]
fn exp_reduced<R: Real>(r: R, tail: R, k: R::Int) -> Exponential<R> {
    let hi = R::of(1.0) + r;
    let lo = (R::of(1.0) - hi) + r;
    Exponential { hi, lo: lo + fma(r * r, polynomial(r, EXP), tail), k }
}

/// `e^x`.
///
/// Error: at most 0.8 ulp.
#[inline(always)]
pub fn exp<R: Real>(x: R) -> R {
    exp_of(clamp(x, -104.0, 89.0)).value()
}

/// `e^x` for `x <= 88` with little more than half the work of [`exp`]: the weights of a softmax, whose `x <= 0`.
///
/// Error: at most 0.9 ulp; 0 below −87.683, where the result would be below 2^-126.
#[inline(always)]
pub fn exp_nonpositive(x: f32) -> f32 {
    let x = if x < -88.0 { -88.0 } else { x };
    let rounded = fma(x, LOG2_E, ROUND_EXPONENT);
    let n = rounded - ROUND_EXPONENT;
    let r = fma(n, -LN2_LO, fma(n, -LN2_HI, x));
    polynomial(r, EXP_WHOLE) * f32::from_bits(rounded.to_bits() << 23)
}

/// `n` and `2^n` for `-80 <= x <= 87`, where `-x - n · ln 2` is at most 0.347 from zero.
#[inline(always)]
pub(super) fn power_of<R: Real>(x: R) -> (R, R) {
    power_by(x, ROUND_EXPONENT)
}

/// `n` and `2^n / LOWERED` for `0 <= t <= 150`, where `-t - n · ln 2` is at most 0.347 from zero.
#[inline(always)]
pub(super) fn raised_power<R: Real>(t: R) -> (R, R) {
    power_by(t, ROUND_RAISED)
}

#[inline(always)]
fn power_by<R: Real>(x: R, round: f32) -> (R, R) {
    let rounded = fma(x, R::of(-LOG2_E), R::of(round));
    (rounded - R::of(round), R::from_bits(R::exponents(rounded.bits())))
}

/// `e^-t / LOWERED` for `0 <= t <= 150`, in the order of [`exp_nonpositive`].
#[inline(always)]
pub(super) fn raised<R: Real>(t: R) -> R {
    let (n, power) = raised_power(t);
    polynomial(fma(n, R::of(-LN2_LO), fma(n, R::of(-LN2_HI), -t)), EXP_WHOLE) * power
}

/// `2^x`.
///
/// Error: at most 0.8 ulp.
#[inline(always)]
pub fn exp2<R: Real>(x: R) -> R {
    exp2_of_sum(clamp(x, -151.0, 129.0), R::of(0.0)).value()
}
