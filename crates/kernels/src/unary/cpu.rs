//! The CPU twin: one vectorised loop for each function and type.

use elinvar_core::{DType, Element, Error, HostArguments, HostKernel, Result};
use half::{bf16, f16};

use super::{Approximation, UnaryOp, UnaryParams};
use crate::{
    elementwise::{
        blocks::{Strided, map1},
        dispatch::for_integers,
        halves,
        number::Integer,
    },
    float::Float,
    math, simd,
};

/// A function of a number of type `T` and a parameter.
trait Function<T> {
    fn at(x: T, alpha: f32) -> T;
}

macro_rules! functions {
    ($($function:ident |$x:ident, $alpha:pat_param| $body:expr;)*) => {$(
        struct $function;
        impl Function<f32> for $function {
            #[inline(always)]
            fn at($x: f32, $alpha: f32) -> f32 {
                $body
            }
        }
    )*};
}

functions! {
    Abs |x, _| x.abs();
    Neg |x, _| -x;
    Sign |x, _| if x > 0.0 { 1.0 } else if x < 0.0 { -1.0 } else { x };
    Square |x, _| x * x;
    Relu |x, _| if x < 0.0 { 0.0 } else { x };
    Sqrt |x, _| x.sqrt();
    Rsqrt |x, _| math::rsqrt(x);
    Reciprocal |x, _| 1.0 / x;
    Floor |x, _| x.floor();
    Ceil |x, _| x.ceil();
    Round |x, _| x.round_ties_even();
    Exp |x, _| math::exp(x);
    Log |x, _| math::log(x);
    Sin |x, _| math::sin(x);
    Cos |x, _| math::cos(x);
    Tanh |x, _| math::tanh(x);
    Erf |x, _| math::erf(x);
    Sigmoid |x, _| math::sigmoid(x);
    Softplus |x, _| math::softplus(x);
    Silu |x, _| math::silu(x);
    HardSwish |x, _| x * hard_sigmoid(x);
    Gelu |x, _| math::gelu_erf(x);
    GeluTanh |x, _| math::gelu_tanh(x);
    LeakyRelu |x, alpha| if x < 0.0 { alpha * x } else { x };
    Elu |x, alpha| if x < 0.0 { alpha * exp_minus_one(x) } else { x };
}

/// clamp(x / 6 + 1/2, 0, 1).
#[inline(always)]
fn hard_sigmoid(x: f32) -> f32 {
    let y = x / 6.0 + 0.5;
    let y = if y < 0.0 { 0.0 } else { y };
    if y > 1.0 { 1.0 } else { y }
}

/// eˣ − 1 for x below zero: 2t / (1 − t) with t = tanh(x / 2) cancels nowhere.
#[inline(always)]
fn exp_minus_one(x: f32) -> f32 {
    let t = math::tanh(0.5 * x);
    (t + t) / (1.0 - t)
}

macro_rules! integer_functions {
    ($($function:ident |$x:ident| $body:expr;)*) => {$(
        struct $function;
        impl<T: Integer> Function<T> for $function {
            #[inline(always)]
            fn at($x: T, _alpha: f32) -> T {
                $body
            }
        }
    )*};
}

integer_functions! {
    IntegerAbs |x| if x < T::zeroed() { T::sub(T::zeroed(), x) } else { x };
    IntegerNeg |x| T::sub(T::zeroed(), x);
    IntegerSign |x| T::sign(x);
    IntegerSquare |x| T::mul(x, x);
    IntegerRelu |x| T::max(x, T::zeroed());
}

pub(super) fn twin(op: UnaryOp, dtype: DType) -> Result<HostKernel> {
    let kernel: Option<HostKernel> = match op {
        UnaryOp::Abs if dtype.is_integer() => for_integers!(dtype, T => run::<IntegerAbs, T>),
        UnaryOp::Neg if dtype.is_integer() => for_integers!(dtype, T => run::<IntegerNeg, T>),
        UnaryOp::Sign if dtype.is_integer() => for_integers!(dtype, T => run::<IntegerSign, T>),
        UnaryOp::Square if dtype.is_integer() => for_integers!(dtype, T => run::<IntegerSquare, T>),
        UnaryOp::Relu if dtype.is_integer() => for_integers!(dtype, T => run::<IntegerRelu, T>),
        UnaryOp::Abs => float::<Abs>(dtype),
        UnaryOp::Neg => float::<Neg>(dtype),
        UnaryOp::Sign => float::<Sign>(dtype),
        UnaryOp::Square => float::<Square>(dtype),
        UnaryOp::Relu => float::<Relu>(dtype),
        UnaryOp::Sqrt => float::<Sqrt>(dtype),
        UnaryOp::Rsqrt => float::<Rsqrt>(dtype),
        UnaryOp::Reciprocal => float::<Reciprocal>(dtype),
        UnaryOp::Floor => float::<Floor>(dtype),
        UnaryOp::Ceil => float::<Ceil>(dtype),
        UnaryOp::Round => float::<Round>(dtype),
        UnaryOp::Exp => float::<Exp>(dtype),
        UnaryOp::Log => float::<Log>(dtype),
        UnaryOp::Sin => float::<Sin>(dtype),
        UnaryOp::Cos => float::<Cos>(dtype),
        UnaryOp::Tanh => float::<Tanh>(dtype),
        UnaryOp::Erf => float::<Erf>(dtype),
        UnaryOp::Sigmoid => float::<Sigmoid>(dtype),
        UnaryOp::Softplus => float::<Softplus>(dtype),
        UnaryOp::Silu => float::<Silu>(dtype),
        UnaryOp::HardSwish => float::<HardSwish>(dtype),
        UnaryOp::Gelu(Approximation::None) => float::<Gelu>(dtype),
        UnaryOp::Gelu(Approximation::Tanh) => float::<GeluTanh>(dtype),
        UnaryOp::LeakyRelu(_) => float::<LeakyRelu>(dtype),
        UnaryOp::Elu(_) => float::<Elu>(dtype),
    };
    kernel.ok_or_else(|| Error::unsupported(format!("{op} of {dtype}")))
}

fn float<F: Function<f32>>(dtype: DType) -> Option<HostKernel> {
    match dtype {
        DType::F32 => Some(run::<F, f32>),
        DType::F16 => Some(run_halves::<F, f16>),
        DType::BF16 => Some(run_halves::<F, bf16>),
        _ => None,
    }
}

fn run<F: Function<T>, T: Element>(arguments: &mut HostArguments<'_>) -> Result<()> {
    let UnaryParams { space, x, alpha, .. } = arguments.params()?;
    let x = Strided::new(&space, &x, arguments.input::<T>(0)?)?;
    map1(x, arguments.output::<T>(1)?, &|x, y| block::<F, T>(x, y, alpha));
    Ok(())
}

fn run_halves<F: Function<f32>, T: Float>(arguments: &mut HostArguments<'_>) -> Result<()> {
    let UnaryParams { space, x, alpha, .. } = arguments.params()?;
    let x = Strided::new(&space, &x, arguments.input::<T>(0)?)?;
    map1(x, arguments.output::<T>(1)?, &|x, y| halves::map([x], y, |[x], y| block::<F, f32>(x, y, alpha)));
    Ok(())
}

simd! {
    fn block<F: Function<T>, T: Element>(x: &[T], y: &mut [T], alpha: f32) {
        for (y, x) in y.iter_mut().zip(x) {
            *y = F::at(*x, alpha);
        }
    }
}
