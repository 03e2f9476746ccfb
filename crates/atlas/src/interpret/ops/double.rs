//! f64.

use super::{One, Op1, Op2, Op3, Three, Two, map1, map2, map3};
use crate::program::{Binary, Ternary, Unary};

float_operations! {
    f64:
    Op1 Unary One unary map1 {
        Neg |a| -a;
        Abs |a| a.abs();
        Floor |a| a.floor();
        Ceil |a| a.ceil();
        Trunc |a| a.trunc();
        Round |a| a.round_ties_even();
        Sqrt |a| a.sqrt();
        Rsqrt |a| 1.0 / a.sqrt();
    }
    Op2 Binary Two binary map2 {
        Add |a, b| a + b;
        Sub |a, b| a - b;
        Mul |a, b| a * b;
        Div |a, b| a / b;
        Rem |a, b| (-(a / b).trunc()).mul_add(b, a);
        Min |a, b| if a.is_nan() | (a < b) { a } else { b };
        Max |a, b| if a.is_nan() | (a > b) { a } else { b };
    }
}
