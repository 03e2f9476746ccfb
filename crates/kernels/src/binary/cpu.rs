//! The CPU twin: one vectorised loop for each operation and type; halves are widened block by block.

use elinvar_core::{DType, Element, Error, HostArguments, HostKernel, Result};
use half::{bf16, f16};

use super::{BinaryOp, BinaryParams};
use crate::{
    elementwise::{
        blocks::{Strided, map2},
        dispatch::for_integers,
        halves,
        number::{Integer, Number},
    },
    float::Float,
    math, simd,
};

/// A function of two numbers of type `T`.
trait Operation<T> {
    fn at(a: T, b: T) -> T;
}

macro_rules! operations {
    ($($op:ident $method:ident),*) => {$(
        struct $op;
        impl<T: Number> Operation<T> for $op {
            #[inline(always)]
            fn at(a: T, b: T) -> T {
                T::$method(a, b)
            }
        }
    )*};
}
operations!(Add add, Sub sub, Mul mul, Div div, Min min, Max max);

struct Pow;
impl Operation<f32> for Pow {
    #[inline(always)]
    fn at(a: f32, b: f32) -> f32 {
        math::pow(a, b)
    }
}

pub(super) fn twin(op: BinaryOp, a: DType, b: DType) -> Result<HostKernel> {
    let kernel = match op {
        BinaryOp::Add => number::<Add>(a),
        BinaryOp::Sub => number::<Sub>(a),
        BinaryOp::Mul => number::<Mul>(a),
        BinaryOp::Div => number::<Div>(a),
        BinaryOp::Min => number::<Min>(a),
        BinaryOp::Max => number::<Max>(a),
        BinaryOp::Pow if b == DType::I64 => for_integers!(a, T => run_power::<T, i64> as HostKernel),
        BinaryOp::Pow if b == DType::U64 => for_integers!(a, T => run_power::<T, u64> as HostKernel),
        BinaryOp::Pow => float::<Pow>(a),
    };
    kernel.ok_or_else(|| Error::unsupported(format!("{op} of {a} and {b}")))
}

fn float<O: Operation<f32>>(dtype: DType) -> Option<HostKernel> {
    match dtype {
        DType::F32 => Some(run::<O, f32>),
        DType::F16 => Some(run_halves::<O, f16>),
        DType::BF16 => Some(run_halves::<O, bf16>),
        _ => None,
    }
}

macro_rules! every_number {
    ($($type:ty),*) => {
        trait EveryNumber: Operation<f32> $(+ Operation<$type>)* {}
        impl<O: Operation<f32> $(+ Operation<$type>)*> EveryNumber for O {}
    };
}
every_number!(i8, i16, i32, i64, u8, u16, u32, u64);

fn number<O: EveryNumber>(dtype: DType) -> Option<HostKernel> {
    for_integers!(dtype, T => run::<O, T> as HostKernel).or_else(|| float::<O>(dtype))
}

fn run<O: Operation<T>, T: Element>(arguments: &mut HostArguments<'_>) -> Result<()> {
    let BinaryParams { space, a, b } = arguments.params()?;
    let a = Strided::new(&space, &a, arguments.input::<T>(0)?)?;
    let b = Strided::new(&space, &b, arguments.input::<T>(1)?)?;
    map2(a, b, arguments.output::<T>(2)?, block::<O, T>);
    Ok(())
}

fn run_halves<O: Operation<f32>, T: Float>(arguments: &mut HostArguments<'_>) -> Result<()> {
    let BinaryParams { space, a, b } = arguments.params()?;
    let a = Strided::new(&space, &a, arguments.input::<T>(0)?)?;
    let b = Strided::new(&space, &b, arguments.input::<T>(1)?)?;
    map2(a, b, arguments.output::<T>(2)?, |a, b, y| halves::map([a, b], y, |[a, b], y| block::<O, f32>(a, b, y)));
    Ok(())
}

simd! {
    fn block<O: Operation<T>, T: Element>(a: &[T], b: &[T], y: &mut [T]) {
        for ((y, a), b) in y.iter_mut().zip(a).zip(b) {
            *y = O::at(*a, *b);
        }
    }
}

/// An integer power's exponent: whether it is negative, and its magnitude.
trait Exponent: Element {
    fn parts(self) -> (bool, u64);
}

impl Exponent for i64 {
    fn parts(self) -> (bool, u64) {
        (self < 0, self.unsigned_abs())
    }
}

impl Exponent for u64 {
    fn parts(self) -> (bool, u64) {
        (false, self)
    }
}

fn run_power<T: Integer, E: Exponent>(arguments: &mut HostArguments<'_>) -> Result<()> {
    let BinaryParams { space, a, b } = arguments.params()?;
    let a = Strided::new(&space, &a, arguments.input::<T>(0)?)?;
    let b = Strided::new(&space, &b, arguments.input::<E>(1)?)?;
    map2(a, b, arguments.output::<T>(2)?, |a, b, y| {
        for ((y, base), exponent) in y.iter_mut().zip(a).zip(b) {
            let (negative, magnitude) = exponent.parts();
            *y = base.power(negative, magnitude);
        }
    });
    Ok(())
}
