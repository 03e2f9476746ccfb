//! Loops of two or three functions on floats, where one loop is faster than several. Each function's value is rounded to the elements' type.

use std::marker::PhantomData;

use bytemuck::Pod;
use elinvar_core::DType;
use elinvar_math::{
    float::Float,
    functions::{Function1, types},
    packet::{Packed, Packet, in_packets},
    simd,
};
use half::{bf16, f16};

use super::loops::{Gate, Three, Two, elements, elements_mut};
use crate::program::{Binary, Unary};

/// A value as elements hold it.
#[inline(always)]
fn rounded<S: Float>(value: f32) -> f32 {
    S::from_f32(value).to_f32()
}

/// A function of three elements.
trait OfThree<S> {
    fn at(a: S, b: S, c: S) -> S;
}

simd! {
    fn three<F: OfThree<S>, S: Pod>(a: &[u8], b: &[u8], c: &[u8], out: &mut [u8]) {
        let lanes = elements_mut::<S>(out).iter_mut().zip(elements::<S>(a));
        match (elements::<S>(b), elements::<S>(c)) {
            ([b], [c]) => lanes.for_each(|(out, a)| *out = F::at(*a, *b, *c)),
            (b, c) => lanes.zip(b).zip(c).for_each(|(((out, a), b), c)| *out = F::at(*a, *b, *c)),
        }
    }
}

/// The product and the sum.
struct Mad;
impl<S: Float> OfThree<S> for Mad {
    #[inline(always)]
    fn at(a: S, b: S, c: S) -> S {
        S::from_f32(rounded::<S>(a.to_f32() * b.to_f32()) + c.to_f32())
    }
}

/// The larger of the first two, and of it and the third the smaller.
struct Clamp;
impl<S: Float> OfThree<S> for Clamp {
    #[inline(always)]
    fn at(a: S, low: S, high: S) -> S {
        let (a, low, high) = (a.to_f32(), low.to_f32(), high.to_f32());
        let larger = if a > low { a } else { low };
        let clamped = if larger < high { larger } else { high };
        // One test of both, where `Max` and `Min` would make two.
        S::from_f32(if a.is_nan() | low.is_nan() { f32::NAN } else { clamped })
    }
}

/// A function's value times the second operand.
struct Times<F, S>(PhantomData<(F, S)>);

impl<F: Function1<f32>, S: Float> Times<F, S> {
    #[inline(always)]
    fn of(a: S, b: S) -> f32 {
        rounded::<S>(rounded::<S>(F::at(a.to_f32())) * b.to_f32())
    }
}

impl<F: Function1<f32>, S: Float> Packed<2> for Times<F, S> {
    const STAGED: bool = size_of::<S>() < size_of::<f32>();

    #[inline(always)]
    fn at<P: Packet>(&self, [a, _]: [P; 2]) -> Option<P> {
        F::of_packet(a)
    }

    #[inline(always)]
    fn finish<P: Packet>(&self, value: P, [_, b]: [P; 2]) -> P {
        (value.rounded::<S>() * b).rounded::<S>()
    }
}

simd! {
    fn times_loop[P]<F: Function1<f32>, S: Float>(a: &[u8], b: &[u8], out: &mut [u8]) {
        let (a, out) = (elements::<S>(a), elements_mut::<S>(out));
        match elements::<S>(b) {
            [b] => out.iter_mut().zip(a).for_each(|(out, a)| *out = S::from_f32(Times::<F, S>::of(*a, *b))),
            b => {
                let done = in_packets::<P, S, _, 2>([a, b], out, &Times::<F, S>(PhantomData));
                let rest = out[done..].iter_mut().zip(&a[done..]).zip(&b[done..]);
                rest.for_each(|((out, a), b)| *out = S::from_f32(Times::<F, S>::of(*a, *b)));
            }
        }
    }
}

/// The same with a sum, kept between bounds that are neither NaN nor zero. Infinite ones change nothing.
struct Gated<F, S> {
    bounds: [f32; 2],
    of: PhantomData<(F, S)>,
}

impl<F: Function1<f32>, S: Float> Gated<F, S> {
    #[inline(always)]
    fn of(&self, a: S, b: S, c: S) -> S {
        let [low, high] = self.bounds;
        let value = rounded::<S>(Times::<F, S>::of(a, b) + c.to_f32());
        let value = if low > value { low } else { value };
        S::from_f32(if high < value { high } else { value })
    }
}

impl<F: Function1<f32>, S: Float> Packed<3> for Gated<F, S> {
    const STAGED: bool = size_of::<S>() < size_of::<f32>();

    #[inline(always)]
    fn at<P: Packet>(&self, [a, ..]: [P; 3]) -> Option<P> {
        F::of_packet(a)
    }

    /// Bounds are elements: rounded before or after, a value is between them.
    #[inline(always)]
    fn finish<P: Packet>(&self, value: P, [_, b, c]: [P; 3]) -> P {
        let product = (value.rounded::<S>() * b).rounded::<S>();
        (product + c).at_least(self.bounds[0]).at_most(self.bounds[1]).rounded::<S>()
    }
}

/// What is gated is often added again: a stream less.
impl<F: Function1<f32>, S: Float> Packed<2> for Gated<F, S> {
    const STAGED: bool = <Self as Packed<3>>::STAGED;

    #[inline(always)]
    fn at<P: Packet>(&self, [a, b]: [P; 2]) -> Option<P> {
        Packed::<3>::at(self, [a, b, a])
    }

    #[inline(always)]
    fn finish<P: Packet>(&self, value: P, [a, b]: [P; 2]) -> P {
        Packed::<3>::finish(self, value, [a, b, a])
    }
}

simd! {
    fn gate[P]<F: Function1<f32>, S: Float>(a: &[u8], b: &[u8], c: &[u8], bounds: [f32; 2], out: &mut [u8]) {
        let gate = Gated::<F, S> { bounds, of: PhantomData };
        let (is_added, a, out) = (std::ptr::eq(a, c), elements::<S>(a), elements_mut::<S>(out));
        match (elements::<S>(b), elements::<S>(c)) {
            ([b], [c]) => out.iter_mut().zip(a).for_each(|(out, a)| *out = gate.of(*a, *b, *c)),
            (b, c) => {
                let done =
                    if is_added { in_packets::<P, S, _, 2>([a, b], out, &gate) } else { in_packets::<P, S, _, 3>([a, b, c], out, &gate) };
                let rest = out[done..].iter_mut().zip(&a[done..]).zip(&b[done..]).zip(&c[done..]);
                rest.for_each(|(((out, a), b), c)| *out = gate.of(*a, *b, *c));
            }
        }
    }
}

/// A loop for the type of float; none for other types.
macro_rules! by_float {
    ($dtype:expr, $type:ident => $loops:expr) => {
        match $dtype {
            DType::F32 => {
                type $type = f32;
                Some($loops)
            }
            DType::F16 => {
                type $type = f16;
                Some($loops)
            }
            DType::BF16 => {
                type $type = bf16;
                Some($loops)
            }
            DType::F64 | DType::Bool => None,
            DType::I8 | DType::I16 | DType::I32 | DType::I64 | DType::U8 | DType::U16 | DType::U32 | DType::U64 => None,
        }
    };
}

/// A function and the product with its value, without and with a sum after, as one loop over elements of that type: for those that gate.
pub(in crate::interpret) fn times(op: Unary, dtype: DType) -> Option<(Two, Gate)> {
    fn loops<F: Function1<f32>>(dtype: DType) -> Option<(Two, Gate)> {
        by_float!(dtype, S => (times_loop::<F, S> as Two, gate::<F, S> as Gate))
    }
    match op {
        Unary::Sigmoid if dtype == DType::BF16 => loops::<types::bfloat::Sigmoid>(dtype),
        Unary::Silu if dtype == DType::BF16 => loops::<types::bfloat::Silu>(dtype),
        Unary::Exp => loops::<types::Exp>(dtype),
        Unary::Tanh => loops::<types::Tanh>(dtype),
        Unary::Sigmoid => loops::<types::Sigmoid>(dtype),
        Unary::Silu => loops::<types::Silu>(dtype),
        Unary::Erf => loops::<types::Erf>(dtype),
        Unary::Gelu => loops::<types::Gelu>(dtype),
        Unary::GeluTanh => loops::<types::GeluTanh>(dtype),
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

/// Two functions as one loop over elements of that type, where there is one: the second takes the first's result as its first operand.
pub(in crate::interpret) fn pair(first: Binary, second: Binary, dtype: DType) -> Option<Three> {
    match (first, second) {
        (Binary::Mul, Binary::Add) => by_float!(dtype, S => three::<Mad, S> as Three),
        (Binary::Max, Binary::Min) => by_float!(dtype, S => three::<Clamp, S> as Three),
        _ => None,
    }
}
