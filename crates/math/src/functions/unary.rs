//! Functions of one value.

use std::f64::consts::{FRAC_2_SQRT_PI, LN_2, LN_10, PI};

use elinvar_core::{DType, MetalFile};

use super::{Compare, ErrorBound, Expression, Function1, Integer, Visitor1, table::functions};
use crate::{self as math, Real, reference};

/// What makes the mean 0 and the variance 1 a fixed point of `selu`.
const SELU_ALPHA: f64 = 1.673_263_242_354_377_2;
const SELU_SCALE: f64 = 1.050_700_987_355_480_5;

functions! {
    /// Functions of one value.
    Unary: Function1 Visitor1 unary 1 {
        #[doc = "`-a`; integers wrap."]
        Neg "neg" {
            float |a| -a;
            integer |a| a.neg();
            reference |a| -a;
            derivative |_| _ => [-1.0];
        }
        #[doc = "The magnitude; the least integer is its own."]
        Abs "abs" {
            float |a| a.abs();
            integer |a| Integer::abs(a);
            reference |a| a.abs();
            derivative |a| _ => [Unary::Sign.of(a)];
        }
        #[doc = "-1, 0 or 1 by the sign of `a`; of a NaN that NaN, of a zero that zero."]
        Sign "sign" {
            float |a| if a > 0.0 { 1.0 } else if a < 0.0 { -1.0 } else { a };
            integer |a| a.sign();
            reference |a| if a > 0.0 { 1.0 } else if a < 0.0 { -1.0 } else { a };
            derivative |_| _ => [0.0];
        }
        #[doc = "`a * a`."]
        Square "square" {
            float |a| a * a;
            integer |a| a.mul(a);
            reference |a| a * a;
            derivative |a| _ => [2.0 * a];
        }
        #[doc = "`a` where positive, else 0."]
        Relu "relu" {
            float |a| if a < 0.0 { 0.0 } else { a };
            integer |a| a.max(T::zeroed());
            reference |a| if a < 0.0 { 0.0 } else { a };
            derivative |a| _ => [Compare::Gt.select(a, 0.0, 1.0, 0.0)];
        }
        #[doc = "Every bit inverted; of a bool its opposite."]
        Not "not" {
            integer |a| Integer::not(a);
            truth |a| a ^ 1;
            reference |a| -1.0 - a;
            metal "strict::bit_not";
        }
        #[doc = "How many bits are one."]
        Popcount "popcount" {
            integer |a| a.popcount();
            reference |a| f64::from((a as i64).count_ones());
        }
        #[doc = "Rounded down to a whole number."]
        Floor "floor" {
            float |a| a.floor();
            reference |a| a.floor();
            derivative |_| _ => [0.0];
            metal "metal::floor";
        }
        #[doc = "Rounded up to a whole number."]
        Ceil "ceil" {
            float |a| a.ceil();
            reference |a| a.ceil();
            derivative |_| _ => [0.0];
            metal "metal::ceil";
        }
        #[doc = "Rounded to a whole number, towards zero."]
        Trunc "trunc" {
            float |a| a.trunc();
            reference |a| a.trunc();
            derivative |_| _ => [0.0];
            metal "metal::trunc";
        }
        #[doc = "Rounded to the nearest whole number, ties to even."]
        Round "round" {
            float |a| a.round_ties_even();
            reference |a| a.round_ties_even();
            derivative |_| _ => [0.0];
            metal "metal::rint";
        }
        #[doc = "The square root, correctly rounded."]
        Sqrt "sqrt" {
            float |a| a.sqrt();
            reference |a| a.sqrt();
            derivative |_| y => [0.5 / y];
            metal "metal::sqrt";
        }
        #[doc = "`1 / sqrt(a)`, both operations rounded."]
        Rsqrt "rsqrt" {
            float |a| 1.0 / a.sqrt();
            reference |a| 1.0 / a.sqrt(), within 1.5;
            derivative |_| y => [-0.5 * y * y * y];
        }
        #[doc = "`1 / a`."]
        Reciprocal "reciprocal" {
            float |a| 1.0 / a;
            reference |a| 1.0 / a;
            derivative |_| y => [-(y * y)];
        }
        #[doc = "`e` to the power `a`."]
        Exp "exp" {
            f32 |a| math::exp(a), packets;
            reference |a| a.exp(), within 0.8;
            derivative |_| y => [y];
        }
        #[doc = "2 to the power `a`."]
        Exp2 "exp2" {
            f32 |a| math::exp2(a), packets;
            reference |a| a.exp2(), within 0.8;
            derivative |_| y => [LN_2 * y];
        }
        #[doc = "The natural logarithm."]
        Log "log" {
            f32 |a| math::log(a);
            reference |a| a.ln(), within 0.7;
            derivative |a| _ => [1.0 / a];
        }
        #[doc = "The logarithm to base 2."]
        Log2 "log2" {
            f32 |a| math::log2(a);
            reference |a| a.log2(), within 0.8;
            derivative |a| _ => [1.0 / LN_2 / a];
        }
        #[doc = "The logarithm to base 10: `log2(a) * log10(2)`, both rounded."]
        Log10 "log10" {
            f32 |a| math::log10(a);
            reference |a| a.log10(), within 2.2;
            derivative |a| _ => [1.0 / LN_10 / a];
        }
        #[doc = "`log(1 + a)`, also where `a` is small."]
        Log1p "log1p" {
            f32 |a| math::log1p(a);
            reference |a| a.ln_1p(), within 0.8;
            derivative |a| _ => [1.0 / (1.0 + a)];
        }
        #[doc = "The sine of `a` radians."]
        Sin "sin" {
            f32 |a| math::sin(a);
            reference |a| a.sin(), within 0.8;
            derivative |a| _ => [Unary::Cos.of(a)];
        }
        #[doc = "The cosine of `a` radians."]
        Cos "cos" {
            f32 |a| math::cos(a);
            reference |a| a.cos(), within 0.8;
            derivative |a| _ => [-Unary::Sin.of(a)];
        }
        #[doc = "The tangent of `a` radians."]
        Tan "tan" {
            f32 |a| math::tan(a);
            reference |a| a.tan(), within 1.2;
            derivative |_| y => [1.0 + y * y];
        }
        #[doc = "The hyperbolic tangent."]
        Tanh "tanh" {
            f32 |a| math::tanh(a), packets;
            reference |a| a.tanh(), within 0.8;
            derivative |_| y => [1.0 - y * y];
        }
        #[doc = "`1 / (1 + exp(-a))`."]
        Sigmoid "sigmoid" {
            f32 |a| math::sigmoid(a), packets;
            bfloat |a| math::sigmoid_bfloat(a), packets;
            reference |a| reference::sigmoid(a), within 0.8;
            derivative |_| y => [y * (1.0 - y)];
        }
        #[doc = "`log(1 + exp(a))`."]
        Softplus "softplus" {
            f32 |a| math::softplus(a);
            reference |a| reference::softplus(a), within 1.2;
            derivative |a| _ => [Unary::Sigmoid.of(a)];
        }
        #[doc = "`a * sigmoid(a)`, also called swish."]
        Silu "silu" {
            f32 |a| math::silu(a), packets;
            bfloat |a| math::silu_bfloat(a), packets;
            reference |a| reference::silu(a), within 3.4;
            derivative |a| y => [y + Unary::Sigmoid.of(a) * (1.0 - y)];
        }
        #[doc = "`a * tanh(log(1 + exp(a)))`."]
        Mish "mish" {
            f32 |a| math::mish(a);
            reference |a| if a == f64::NEG_INFINITY { -0.0 } else { a * reference::softplus(a).tanh() }, within 2.6;
            derivative |a| _ => [{
                let t = &Unary::Tanh.of(Unary::Softplus.of(a));
                t + a * Unary::Sigmoid.of(a) * (1.0 - t * t)
            }];
        }
        #[doc = "`a / (1 + |a|)`, each operation rounded."]
        Softsign "softsign" {
            f32 |a| a / (1.0 + a.abs());
            reference |a| a / (1.0 + a.abs()), within 1.5;
            derivative |a| _ => [{
                let slope = &Unary::Reciprocal.of(1.0 + Unary::Abs.of(a));
                slope * slope
            }];
        }
        #[doc = "`1.0507010 * a` where positive, else `1.7580993 * (exp(a) - 1)`, the self-normalising unit of Klambauer et al., 2017."]
        Selu "selu" {
            f32 |a| math::selu(a);
            reference |a| if a < 0.0 { SELU_SCALE * SELU_ALPHA * a.exp_m1() } else { SELU_SCALE * a }, within 4.8;
            derivative |a| y => [Compare::Gt.select(a, 0.0, SELU_SCALE, y + SELU_SCALE * SELU_ALPHA)];
        }
        #[doc = "`a * clamp(a / 6 + 1/2, 0, 1)`."]
        HardSwish "hard_swish" {
            f32 |a| math::hard_swish(a);
            reference |a| a * (a / 6.0 + 0.5).clamp(0.0, 1.0), within 2.5 plus 4e-7;
            derivative |a| _ => [Compare::Lt.select(a, -3.0, 0.0, Compare::Gt.select(a, 3.0, 1.0, a / 3.0 + 0.5))];
        }
        #[doc = "The error function."]
        Erf "erf" {
            f32 |a| math::erf(a);
            reference |a| reference::erf(a), within 1.5;
            derivative |a| _ => [FRAC_2_SQRT_PI * Unary::Exp.of(-(a * a))];
        }
        #[doc = "`a * Phi(a)`, the Gaussian error linear unit, `Phi` the normal distribution function."]
        Gelu "gelu" {
            f32 |a| math::gelu(a);
            reference |a| reference::gelu(a), within 1.6;
            derivative |a| _ => [
                0.5 + 0.5 * Unary::Erf.of(a * 0.5f64.sqrt()) + a * Unary::Exp.of(-0.5 * (a * a)) * (2.0 * PI).sqrt().recip()
            ];
        }
        #[doc = "The Gaussian error linear unit's approximation, `a / 2 * (1 + tanh(sqrt(2/pi) * (a + 0.044715 * a^3)))`."]
        GeluTanh "gelu_tanh" {
            f32 |a| math::gelu_tanh(a), packets;
            reference |a| reference::gelu_tanh(a), within 0.8;
            derivative |a| _ => [{
                let scale = 2.0 * (2.0 / PI).sqrt();
                let weight = &Unary::Sigmoid.of(scale * (a + 0.044715 * (a * a * a)));
                weight + a * weight * (1.0 - weight) * (scale * (1.0 + 3.0 * 0.044715 * (a * a)))
            }];
        }
    }
}
