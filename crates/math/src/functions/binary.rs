//! Functions of two values of one type.

use elinvar_core::{DType, MetalFile};

use super::{Compare, ErrorBound, Expression, Function2, Integer, Unary, Visitor2, table::functions};
use crate as math;

/// The derivative of the larger or smaller of two: half of each where they are equal.
fn chosen(compare: Compare, a: &Expression, b: &Expression) -> Expression {
    compare.select(a, b, 1.0, Compare::Eq.select(a, b, 0.5, 0.0))
}

/// `slope` where `a * b` is between -1/2 and 1/2, else 0.
fn inside(a: &Expression, b: &Expression, slope: &Expression) -> Expression {
    let at = &(a * b);
    Compare::Gt.select(at, -0.5, Compare::Lt.select(at, 0.5, slope, 0.0), 0.0)
}

functions! {
    /// Functions of two values of one type.
    Binary: Function2 Visitor2 binary 2 {
        #[doc = "`a + b`; integers wrap."]
        Add "add" {
            float |a, b| a + b;
            integer |a, b| a.add(b);
            reference |a, b| a + b;
            derivative |_, _| _ => [1.0, 1.0];
        }
        #[doc = "`a - b`; integers wrap."]
        Sub "sub" {
            float |a, b| a - b;
            integer |a, b| a.sub(b);
            reference |a, b| a - b;
            derivative |_, _| _ => [1.0, -1.0];
        }
        #[doc = "`a * b`; integers wrap."]
        Mul "mul" {
            float |a, b| a * b;
            integer |a, b| a.mul(b);
            reference |a, b| a * b;
            derivative |a, b| _ => [b, a];
        }
        #[doc = "`a / b`; integers towards zero, by zero zero, the least by -1 itself."]
        Div "div" {
            float |a, b| a / b;
            integer |a, b| a.div(b);
            reference |a, b| a / b;
            derivative |_, b| y => [1.0 / b, -(y / b)];
        }
        #[doc = "`a - b * trunc(a / b)`; of integers by zero `a`; of floats `fma(-trunc(a / b), b, a)`."]
        Rem "rem" {
            float |a, b| (-(a / b).trunc()).mul_add(b, a);
            integer |a, b| a.rem(b);
            reference |a, b| (-(a / b).trunc()).mul_add(b, a);
            derivative |a, b| _ => [1.0, -Unary::Trunc.of(a / b)];
        }
        #[doc = "The smaller; NaN if either is."]
        Min "min" {
            float |a, b| if a.is_nan() | (a < b) { a } else { b };
            integer |a, b| if b < a { b } else { a };
            reference |a, b| if a.is_nan() || a < b { a } else { b };
            derivative |a, b| _ => [chosen(Compare::Lt, a, b), chosen(Compare::Lt, b, a)];
        }
        #[doc = "The larger; NaN if either is."]
        Max "max" {
            float |a, b| if a.is_nan() | (a > b) { a } else { b };
            integer |a, b| if b > a { b } else { a };
            reference |a, b| if a.is_nan() || a > b { a } else { b };
            derivative |a, b| _ => [chosen(Compare::Gt, a, b), chosen(Compare::Gt, b, a)];
        }
        #[doc = "`a` to the power `b`."]
        Pow "pow" {
            f32 |a, b| math::pow(a, b);
            reference |a, b| a.powf(b), within 0.8;
            derivative |a, b| y => [
                Compare::Eq.select(b, 0.0, 0.0, b * Binary::Pow.of(a, b - 1.0)),
                Compare::Eq.select(a, 0.0, 0.0, y * Unary::Log.of(a))
            ];
        }
        #[doc = "Bits that both have."]
        And "and" {
            integer |a, b| a.and(b);
            truth |a, b| a & b;
            reference |a, b| ((a as i64) & (b as i64)) as f64;
            metal "strict::bit_and";
        }
        #[doc = "Bits that either has."]
        Or "or" {
            integer |a, b| a.or(b);
            truth |a, b| a | b;
            reference |a, b| ((a as i64) | (b as i64)) as f64;
            metal "strict::bit_or";
        }
        #[doc = "Bits that differ."]
        Xor "xor" {
            integer |a, b| a.xor(b);
            truth |a, b| a ^ b;
            reference |a, b| ((a as i64) ^ (b as i64)) as f64;
            metal "strict::bit_xor";
        }
        #[doc = "`a` shifted left by `b` modulo the width."]
        Shl "shl" {
            integer |a, b| a.shl(b);
            reference |a, b| a * b.exp2();
        }
        #[doc = "`a` shifted right by `b` modulo the width, copying the sign of signed types."]
        Shr "shr" {
            integer |a, b| a.shr(b);
            reference |a, b| (a / b.exp2()).floor();
        }
        #[doc = "`a` where positive, else `b * a`."]
        LeakyRelu "leaky_relu" {
            float |a, b| if a < 0.0 { b * a } else { a };
            reference |a, b| if a < 0.0 { b * a } else { a };
            derivative |a, b| _ => [Compare::Gt.select(a, 0.0, 1.0, b), Compare::Lt.select(a, 0.0, a, 0.0)];
        }
        #[doc = "`a` where positive, else `b * (exp(a) - 1)`."]
        Elu "elu" {
            f32 |a, b| math::elu(a, b);
            reference |a, b| if a < 0.0 { b * a.exp_m1() } else { a }, within 4.2;
            derivative |a, b| y => [
                Compare::Gt.select(a, 0.0, 1.0, y + b),
                Compare::Lt.select(a, 0.0, Unary::Exp.of(a) - 1.0, 0.0)
            ];
        }
        #[doc = "`clamp(b * a + 1/2, 0, 1)`, rounded once."]
        HardSigmoid "hard_sigmoid" {
            f32 |a, b| math::hard_sigmoid(a, b);
            reference |a, b| b.mul_add(a, 0.5).clamp(0.0, 1.0), within 0.6;
            derivative |a, b| _ => [inside(a, b, b), inside(a, b, a)];
        }
    }
}

impl Binary {
    /// The operator that writes it in Rust and Metal, where there is one.
    pub const fn infix(self) -> Option<&'static str> {
        match self {
            Binary::Add => Some("+"),
            Binary::Sub => Some("-"),
            Binary::Mul => Some("*"),
            Binary::Div => Some("/"),
            Binary::And => Some("&"),
            Binary::Or => Some("|"),
            Binary::Xor => Some("^"),
            Binary::Rem | Binary::Min | Binary::Max | Binary::Pow | Binary::Shl | Binary::Shr => None,
            Binary::LeakyRelu | Binary::Elu | Binary::HardSigmoid => None,
        }
    }
}
