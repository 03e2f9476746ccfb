//! The CPU kernels: one vectorised loop for each function and type; 16-bit floats are widened block by block.

use elinvar_core::{DType, Element, HostArguments, HostKernel, Result};
use half::{bf16, f16};

use super::{UnaryParams, operands::AT};
use crate::{
    elementwise::{
        blocks::{Strided, map1},
        halves,
    },
    float::Float,
    functions::{Function1, Function2, Integer, Visitor1, Visitor2},
    simd,
};

/// A function of an element and of a number that is the same for all.
trait WithScalar<T> {
    fn at(x: T, scalar: f32) -> T;
}

struct Alone<F>(F);

impl<T, F: Function1<T>> WithScalar<T> for Alone<F> {
    #[inline(always)]
    fn at(x: T, _scalar: f32) -> T {
        F::at(x)
    }
}

struct Scaled<F>(F);

impl<F: Function2<f32>> WithScalar<f32> for Scaled<F> {
    #[inline(always)]
    fn at(x: f32, scalar: f32) -> f32 {
        F::at(x, scalar)
    }
}

/// Makes the kernel for a data type that the function takes.
pub(super) struct Kernels(pub(super) DType);

impl Visitor1 for Kernels {
    type Output = Option<HostKernel>;

    fn float<F: Function1<f32>>(self) -> Self::Output {
        float::<Alone<F>>(self.0)
    }

    fn double<F: Function1<f64>>(self) -> Self::Output {
        None
    }

    fn integer<T: Integer, F: Function1<T>>(self) -> Self::Output {
        Some(run::<Alone<F>, T>)
    }

    fn truth<F: Function1<u8>>(self) -> Self::Output {
        None
    }
}

impl Visitor2 for Kernels {
    type Output = Option<HostKernel>;

    fn float<F: Function2<f32>>(self) -> Self::Output {
        float::<Scaled<F>>(self.0)
    }

    fn double<F: Function2<f64>>(self) -> Self::Output {
        None
    }

    fn integer<T: Integer, F: Function2<T>>(self) -> Self::Output {
        None
    }

    fn truth<F: Function2<u8>>(self) -> Self::Output {
        None
    }
}

fn float<F: WithScalar<f32>>(dtype: DType) -> Option<HostKernel> {
    match dtype {
        DType::F32 => Some(run::<F, f32>),
        DType::F16 => Some(run_halves::<F, f16>),
        DType::BF16 => Some(run_halves::<F, bf16>),
        DType::F64 | DType::Bool => None,
        DType::I8 | DType::I16 | DType::I32 | DType::I64 | DType::U8 | DType::U16 | DType::U32 | DType::U64 => None,
    }
}

fn run<F: WithScalar<T>, T: Element>(arguments: &mut HostArguments<'_>) -> Result<()> {
    let UnaryParams { space, x, scalar, .. } = arguments.params()?;
    let x = Strided::new(&space, &x, arguments.input::<T>(AT.x)?)?;
    map1(x, arguments.output::<T>(AT.y)?, &|x, y| block::<F, T>(x, y, scalar));
    Ok(())
}

fn run_halves<F: WithScalar<f32>, T: Float>(arguments: &mut HostArguments<'_>) -> Result<()> {
    let UnaryParams { space, x, scalar, .. } = arguments.params()?;
    let x = Strided::new(&space, &x, arguments.input::<T>(AT.x)?)?;
    map1(x, arguments.output::<T>(AT.y)?, &|x, y| halves::map([x], y, &|[x], y| block::<F, f32>(x, y, scalar)));
    Ok(())
}

simd! {
    fn block<F: WithScalar<T>, T: Element>(x: &[T], y: &mut [T], scalar: f32) {
        for (y, x) in y.iter_mut().zip(x) {
            *y = F::at(*x, scalar);
        }
    }
}
