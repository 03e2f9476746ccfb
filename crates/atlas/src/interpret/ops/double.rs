//! f64.

use super::{One, Op1, Op2, Op3, Three, Two, map1, map2, map3};
use crate::program::{Binary, Ternary, Unary};

float_operations! {
    f64:
    unary {
        Rsqrt |a| 1.0 / a.sqrt();
    }
    binary {}
}
