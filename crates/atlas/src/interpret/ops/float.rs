//! f32, by the library's strict functions.

use std::marker::PhantomData;

use elinvar_math::{self as math, simd};

use super::{Gate, One, Op1, Op2, Op3, Three, Two, elements, elements_mut, integer, map1, map2, map3};
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

/// A function's value times the second operand.
struct Times<O>(PhantomData<O>);
impl<O: Op1<A = f32, R = f32>> Op2 for Times<O> {
    type A = f32;
    type R = f32;
    #[inline(always)]
    fn at(a: f32, b: f32) -> f32 {
        O::at(a) * b
    }
}

/// `O(a) · b + c`, each rounded, kept between bounds that are neither NaN nor zero. Infinite ones change nothing.
#[inline(always)]
fn gated<O: Op1<A = f32, R = f32>>(a: f32, b: f32, c: f32, [low, high]: [f32; 2]) -> f32 {
    let value = O::at(a) * b + c;
    let value = if low > value { low } else { value };
    if high < value { high } else { value }
}

simd! {
    fn gate<O: Op1<A = f32, R = f32>>(a: &[u8], b: &[u8], c: &[u8], bounds: [f32; 2], out: &mut [u8]) {
        let lanes = elements_mut::<f32>(out).iter_mut().zip(elements::<f32>(a));
        match (elements::<f32>(b), elements::<f32>(c)) {
            ([b], [c]) => lanes.for_each(|(out, a)| *out = gated::<O>(*a, *b, *c, bounds)),
            // What is gated is often added again: a load less.
            (b, _) if std::ptr::eq(a, c) => lanes.zip(b).for_each(|((out, a), b)| *out = gated::<O>(*a, *b, *a, bounds)),
            (b, c) => lanes.zip(b).zip(c).for_each(|(((out, a), b), c)| *out = gated::<O>(*a, *b, *c, bounds)),
        }
    }
}

/// A function and the product with its value, without and with a sum after, as one loop: for those that gate.
pub(in crate::interpret) fn times(op: Unary) -> Option<(Two, Gate)> {
    match op {
        Unary::Exp => Some((map2::<Times<Exp>>, gate::<Exp>)),
        Unary::Tanh => Some((map2::<Times<Tanh>>, gate::<Tanh>)),
        Unary::Sigmoid => Some((map2::<Times<Sigmoid>>, gate::<Sigmoid>)),
        Unary::Silu => Some((map2::<Times<Silu>>, gate::<Silu>)),
        Unary::Erf => Some((map2::<Times<Erf>>, gate::<Erf>)),
        Unary::Gelu => Some((map2::<Times<Gelu>>, gate::<Gelu>)),
        Unary::GeluTanh => Some((map2::<Times<GeluTanh>>, gate::<GeluTanh>)),
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
