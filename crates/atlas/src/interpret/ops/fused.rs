//! Loops of two or three functions on f32, where one loop is faster than several.

use elinvar_math::{
    functions::{Function1, Function2, Function3, types},
    simd,
};

use super::loops::{Gate, Three, Two, elements, elements_mut, map2, map3};
use crate::program::{Binary, Unary};

/// The product rounded, and the sum.
struct Mad;
impl Function3<f32> for Mad {
    #[inline(always)]
    fn at(a: f32, b: f32, c: f32) -> f32 {
        a * b + c
    }
}

/// The larger of the first two, and of it and the third the smaller.
struct Clamp;
impl Function3<f32> for Clamp {
    #[inline(always)]
    fn at(a: f32, low: f32, high: f32) -> f32 {
        let larger = if a > low { a } else { low };
        let clamped = if larger < high { larger } else { high };
        // One test of both, where `Max` and `Min` would make two.
        if a.is_nan() | low.is_nan() { f32::NAN } else { clamped }
    }
}

/// A function's value times the second operand.
struct Times<F>(std::marker::PhantomData<F>);
impl<F: Function1<f32>> Function2<f32> for Times<F> {
    #[inline(always)]
    fn at(a: f32, b: f32) -> f32 {
        F::at(a) * b
    }
}

/// `F(a) · b + c`, each rounded, kept between bounds that are neither NaN nor zero. Infinite ones change nothing.
#[inline(always)]
fn gated<F: Function1<f32>>(a: f32, b: f32, c: f32, [low, high]: [f32; 2]) -> f32 {
    let value = F::at(a) * b + c;
    let value = if low > value { low } else { value };
    if high < value { high } else { value }
}

simd! {
    fn gate<F: Function1<f32>>(a: &[u8], b: &[u8], c: &[u8], bounds: [f32; 2], out: &mut [u8]) {
        let lanes = elements_mut::<f32>(out).iter_mut().zip(elements::<f32>(a));
        match (elements::<f32>(b), elements::<f32>(c)) {
            ([b], [c]) => lanes.for_each(|(out, a)| *out = gated::<F>(*a, *b, *c, bounds)),
            // What is gated is often added again: a load less.
            (b, _) if std::ptr::eq(a, c) => lanes.zip(b).for_each(|((out, a), b)| *out = gated::<F>(*a, *b, *a, bounds)),
            (b, c) => lanes.zip(b).zip(c).for_each(|(((out, a), b), c)| *out = gated::<F>(*a, *b, *c, bounds)),
        }
    }
}

/// A function and the product with its value, without and with a sum after, as one loop: for those that gate.
pub(in crate::interpret) fn times(op: Unary) -> Option<(Two, Gate)> {
    fn loops<F: Function1<f32>>() -> Option<(Two, Gate)> {
        Some((map2::<Times<F>, f32>, gate::<F>))
    }
    match op {
        Unary::Exp => loops::<types::Exp>(),
        Unary::Tanh => loops::<types::Tanh>(),
        Unary::Sigmoid => loops::<types::Sigmoid>(),
        Unary::Silu => loops::<types::Silu>(),
        Unary::Erf => loops::<types::Erf>(),
        Unary::Gelu => loops::<types::Gelu>(),
        Unary::GeluTanh => loops::<types::GeluTanh>(),
        Unary::Neg
        | Unary::Abs
        | Unary::Sign
        | Unary::Square
        | Unary::Relu
        | Unary::Not
        | Unary::Popcount
        | Unary::Floor
        | Unary::Ceil
        | Unary::Trunc
        | Unary::Round
        | Unary::Sqrt
        | Unary::Rsqrt
        | Unary::Reciprocal
        | Unary::Exp2
        | Unary::Log
        | Unary::Log2
        | Unary::Log10
        | Unary::Log1p
        | Unary::Sin
        | Unary::Cos
        | Unary::Tan
        | Unary::Softplus
        | Unary::Mish
        | Unary::Softsign
        | Unary::Selu
        | Unary::HardSwish => None,
    }
}

/// Two functions as one loop, where there is one: the second takes the first's result as its first operand.
pub(in crate::interpret) fn pair(first: Binary, second: Binary) -> Option<Three> {
    if (first, second) == (Binary::Mul, Binary::Add) {
        return Some(map3::<Mad, f32>);
    }
    ((first, second) == (Binary::Max, Binary::Min)).then_some(map3::<Clamp, f32> as Three)
}
