//! The CPU kernels: one vectorised loop for each function and type; 16-bit floats are widened block by block.

use elinvar_core::{DType, Element, HostArguments, HostKernel, Result};
use half::{bf16, f16};

use super::{BinaryOp, BinaryParams, operands::AT};
use crate::{
    elementwise::{
        blocks::{Strided, map2},
        dispatch::for_integers,
        halves,
    },
    float::Float,
    functions::{Function2, Integer, Visitor2},
    signature::no_kernel,
    simd,
};

/// Makes the kernel for a data type that the function takes.
struct Kernels(DType);

impl Visitor2 for Kernels {
    type Output = Option<HostKernel>;

    fn float<F: Function2<f32>>(self) -> Self::Output {
        match self.0 {
            DType::F32 => Some(run::<F, f32>),
            DType::F16 => Some(run_halves::<F, f16>),
            DType::BF16 => Some(run_halves::<F, bf16>),
            DType::F64 | DType::Bool => None,
            DType::I8 | DType::I16 | DType::I32 | DType::I64 | DType::U8 | DType::U16 | DType::U32 | DType::U64 => None,
        }
    }

    fn double<F: Function2<f64>>(self) -> Self::Output {
        None
    }

    fn integer<T: Integer, F: Function2<T>>(self) -> Self::Output {
        Some(run::<F, T>)
    }

    fn truth<F: Function2<u8>>(self) -> Self::Output {
        None
    }
}

pub(super) fn kernel(op: BinaryOp, dtype: DType) -> Result<HostKernel> {
    op.visit(dtype, Kernels(dtype)).flatten().ok_or_else(|| no_kernel(dtype))
}

/// Powers of integers.
pub(super) fn power(base: DType, exponent: DType) -> Result<HostKernel> {
    let kernel = if exponent == DType::I64 {
        for_integers!(base, T => run_power::<T, i64> as HostKernel)
    } else {
        for_integers!(base, T => run_power::<T, u64> as HostKernel)
    };
    kernel.ok_or_else(|| no_kernel(exponent))
}

fn run<F: Function2<T>, T: Element>(arguments: &mut HostArguments<'_>) -> Result<()> {
    let BinaryParams { space, a, b } = arguments.params()?;
    let a = Strided::new(&space, &a, arguments.input::<T>(AT.a)?)?;
    let b = Strided::new(&space, &b, arguments.input::<T>(AT.b)?)?;
    map2(a, b, arguments.output::<T>(AT.y)?, block::<F, T>);
    Ok(())
}

fn run_halves<F: Function2<f32>, T: Float>(arguments: &mut HostArguments<'_>) -> Result<()> {
    let BinaryParams { space, a, b } = arguments.params()?;
    let a = Strided::new(&space, &a, arguments.input::<T>(AT.a)?)?;
    let b = Strided::new(&space, &b, arguments.input::<T>(AT.b)?)?;
    map2(a, b, arguments.output::<T>(AT.y)?, |a, b, y| halves::map([a, b], y, &|[a, b], y| block::<F, f32>(a, b, y)));
    Ok(())
}

simd! {
    fn block<F: Function2<T>, T: Element>(a: &[T], b: &[T], y: &mut [T]) {
        for ((y, a), b) in y.iter_mut().zip(a).zip(b) {
            *y = F::at(*a, *b);
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
    let a = Strided::new(&space, &a, arguments.input::<T>(AT.a)?)?;
    let b = Strided::new(&space, &b, arguments.input::<E>(AT.b)?)?;
    map2(a, b, arguments.output::<T>(AT.y)?, |a, b, y| {
        for ((y, base), exponent) in y.iter_mut().zip(a).zip(b) {
            let (negative, magnitude) = exponent.parts();
            *y = base.power(negative, magnitude);
        }
    });
    Ok(())
}
