//! f32, by the library's strict functions.

use std::marker::PhantomData;

use elinvar_math as math;

use super::{One, Op1, Op2, Op3, Three, Two, integer, map1, map2, map3};
use crate::program::{Binary, Compare, Ternary, Unary};

/// `log10(2)`.
pub(crate) const LOG10_2: f32 = std::f32::consts::LOG10_2;

float_operations! {
    f32:
    unary {
        Rsqrt |a| math::rsqrt(a);
        Exp |a| math::exp(a);
        Exp2 |a| math::exp2(a);
        Log |a| math::log(a);
        Log2 |a| math::log2(a);
        Log10 |a| math::log2(a) * LOG10_2;
        Sin |a| math::sin(a);
        Cos |a| math::cos(a);
        Tan |a| math::tan(a);
        Tanh |a| math::tanh(a);
        Sigmoid |a| math::sigmoid(a);
        Silu |a| math::silu(a);
        Erf |a| math::erf(a);
        Gelu |a| math::gelu_erf(a);
        GeluTanh |a| math::gelu_tanh(a);
    }
    binary {
        Pow |a, b| math::pow(a, b);
    }
}

/// The functions that take less work for a bfloat.
pub(super) mod bfloat {
    use super::*;

    operations! { f32: Op1 Unary One unary map1 {
        Silu |a| math::silu_bfloat(a);
        Sigmoid |a| math::sigmoid_bfloat(a);
    } }
}

/// The larger of the first two, and of it and the third the smaller.
struct Clamp;
impl Op3 for Clamp {
    type A = f32;
    #[inline(always)]
    fn at(a: f32, low: f32, high: f32) -> f32 {
        let larger = if a > low { a } else { low };
        let clamped = if larger < high { larger } else { high };
        // One test of both, where `Max` and `Min` would make two.
        if a.is_nan() | low.is_nan() { f32::NAN } else { clamped }
    }
}

/// A function's value times the second operand, and that plus a third, each rounded.
struct Times<O>(PhantomData<O>);
impl<O: Op1<A = f32, R = f32>> Op2 for Times<O> {
    type A = f32;
    type R = f32;
    #[inline(always)]
    fn at(a: f32, b: f32) -> f32 {
        O::at(a) * b
    }
}
impl<O: Op1<A = f32, R = f32>> Op3 for Times<O> {
    type A = f32;
    #[inline(always)]
    fn at(a: f32, b: f32, c: f32) -> f32 {
        O::at(a) * b + c
    }
}

/// A function and the product with its value, without and with a sum after, as one loop: for those that gate.
pub(in crate::interpret) fn times(op: Unary) -> Option<(Two, Three)> {
    match op {
        Unary::Exp => Some((map2::<Times<Exp>>, map3::<Times<Exp>>)),
        Unary::Tanh => Some((map2::<Times<Tanh>>, map3::<Times<Tanh>>)),
        Unary::Sigmoid => Some((map2::<Times<Sigmoid>>, map3::<Times<Sigmoid>>)),
        Unary::Silu => Some((map2::<Times<Silu>>, map3::<Times<Silu>>)),
        Unary::Erf => Some((map2::<Times<Erf>>, map3::<Times<Erf>>)),
        Unary::Gelu => Some((map2::<Times<Gelu>>, map3::<Times<Gelu>>)),
        Unary::GeluTanh => Some((map2::<Times<GeluTanh>>, map3::<Times<GeluTanh>>)),
        _ => None,
    }
}

/// Two operations as one loop, where there is one: the second takes the first's result as its first operand.
pub(in crate::interpret) fn fused(first: Binary, second: Binary) -> Option<Three> {
    match (first, second) {
        (Binary::Mul, Binary::Add) => Some(map3::<Mad>),
        (Binary::Max, Binary::Min) => Some(map3::<Clamp>),
        _ => None,
    }
}

pub(super) fn compare(op: Compare) -> Two {
    integer::compare::<f32>(op)
}
