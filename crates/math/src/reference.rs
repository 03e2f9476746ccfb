//! The functions in f64; for the tests, and for the program that tries every input, beside them the f32 functions.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI, PI};

#[cfg(any(test, feature = "reference"))]
pub use compiled::{Compiled, apply_pow, compiled, error_in_ulp};

#[cfg(any(test, feature = "reference"))]
mod compiled {
    use std::sync::Arc;

    use elinvar_core::DType;

    use crate::functions::{Function1, Integer, Unary, Visitor1};

    /// An f32 function, its reference and the largest error it may show.
    #[derive(Clone)]
    pub struct Compiled {
        /// Its name in the table or in this crate.
        pub name: &'static str,
        /// The function over a slice, compiled for this processor.
        pub apply: fn(&[f32], &mut [f32]),
        /// The function itself, compiled for the baseline target.
        pub scalar: fn(f32) -> f32,
        /// The inputs that it is for.
        pub domain: fn(f32) -> bool,
        /// The same function in f64.
        pub reference: Arc<dyn Fn(f64) -> f64 + Send + Sync>,
        /// In units in the last place of the exact result.
        pub bound: f64,
    }

    crate::simd! {
        fn over<F: Function1<f32>>(x: &[f32], y: &mut [f32]) {
            for (y, &x) in y.iter_mut().zip(x) {
                *y = F::at(x);
            }
        }
    }

    /// A row of the table; computed in f32.
    struct Row(Unary);

    impl Visitor1 for Row {
        type Output = Option<Compiled>;

        fn float<F: Function1<f32>>(self) -> Self::Output {
            let Row(op) = self;
            let reference = Arc::new(move |x| op.reference([x]));
            Some(Compiled { name: op.name(), apply: over::<F>, scalar: F::at, domain: |_| true, reference, bound: op.error().ulp })
        }

        fn double<F: Function1<f64>>(self) -> Self::Output {
            None
        }

        fn integer<T: Integer, F: Function1<T>>(self) -> Self::Output {
            None
        }

        fn truth<F: Function1<u8>>(self) -> Self::Output {
            None
        }
    }

    struct ExpNonpositive;

    impl Function1<f32> for ExpNonpositive {
        #[inline(always)]
        fn at(x: f32) -> f32 {
            crate::exp_nonpositive(x)
        }
    }

    /// Every function of one variable that approximates, and whose error is relative.
    pub fn compiled() -> Vec<Compiled> {
        let approximates = |op: &Unary| op.error().ulp > 0.0 && op.error().absolute == 0.0;
        let mut all: Vec<_> = Unary::ALL.iter().copied().filter(approximates).filter_map(|op| op.visit(DType::F32, Row(op)).flatten()).collect();
        all.push(Compiled {
            name: "exp_nonpositive",
            apply: over::<ExpNonpositive>,
            scalar: crate::exp_nonpositive,
            domain: |x| x <= 88.0 || x.is_nan(),
            reference: Arc::new(super::exp_nonpositive),
            bound: 0.9,
        });
        all
    }

    crate::simd! {
        /// `z = x^y` over slices of one length, compiled for this processor.
        pub fn apply_pow(x: &[f32], y: &[f32], z: &mut [f32]) {
            for ((z, &x), &y) in z.iter_mut().zip(x).zip(y) {
                *z = crate::pow(x, y);
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
}

/// Zero from where the power of two would be 2^-127.
#[cfg(any(test, feature = "reference"))]
fn exp_nonpositive(x: f64) -> f64 {
    if x < -87.683_12 { 0.0 } else { x.exp() }
}

pub(crate) fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

pub(crate) fn silu(x: f64) -> f64 {
    if x == f64::NEG_INFINITY { -0.0 } else { x * sigmoid(x) }
}

pub(crate) fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

pub(crate) fn gelu(x: f64) -> f64 {
    if x == f64::NEG_INFINITY { -0.0 } else { x * (0.5 * erfc(-x * FRAC_1_SQRT_2)) }
}

pub(crate) fn gelu_tanh(x: f64) -> f64 {
    if x == f64::NEG_INFINITY { -0.0 } else { x * sigmoid(2.0 * (2.0 / PI).sqrt() * (x + 0.044715 * x * x * x)) }
}

/// Taylor series about zero, the complement's continued fraction beyond 2.
pub(crate) fn erf(x: f64) -> f64 {
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
