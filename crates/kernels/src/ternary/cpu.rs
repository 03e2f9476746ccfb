//! The CPU kernels: one vectorised loop for each type; 16-bit floats are widened block by block.

use elinvar_core::{DType, Element, HostArguments, HostKernel, Result};
use half::{bf16, f16};

use super::{ClampParams, TernaryParams, clamp::operands::AT, operands};
use crate::{
    elementwise::{
        blocks::{Strided, map3},
        dispatch::{Truth, for_integers, for_storage},
        halves,
        number::Number,
        scalar::low_bits,
    },
    float::Float,
    signature::no_kernel,
    simd,
};

pub(super) fn fma(dtype: DType) -> Result<HostKernel> {
    match dtype {
        DType::F32 => Ok(|arguments| ternary(arguments, fma_block)),
        DType::F16 => {
            Ok(|arguments| ternary::<f16, f16, f16>(arguments, |a, b, c, y| halves::map([a, b, c], y, &|[a, b, c], y| fma_block(a, b, c, y))))
        }
        DType::BF16 => {
            Ok(|arguments| ternary::<bf16, bf16, bf16>(arguments, |a, b, c, y| halves::map([a, b, c], y, &|[a, b, c], y| fma_block(a, b, c, y))))
        }
        DType::Bool | DType::U8 | DType::I8 | DType::U16 | DType::I16 | DType::U32 | DType::I32 | DType::U64 | DType::I64 | DType::F64 => {
            Err(no_kernel(dtype))
        }
    }
}

pub(super) fn select(bits: DType) -> HostKernel {
    for_storage!(bits, T => |arguments| ternary(arguments, select_block::<T>))
}

pub(super) fn clamp(dtype: DType) -> Result<HostKernel> {
    let kernel = match dtype {
        DType::F32 => Some(run_clamp::<f32> as HostKernel),
        DType::F16 => Some(run_clamp_halves::<f16> as HostKernel),
        DType::BF16 => Some(run_clamp_halves::<bf16> as HostKernel),
        _ => for_integers!(dtype, T => run_clamp::<T> as HostKernel),
    };
    kernel.ok_or_else(|| no_kernel(dtype))
}

type Block<A, B, Y> = fn(&[A], &[B], &[B], &mut [Y]);

fn ternary<A: Element, B: Element, Y: Element>(arguments: &mut HostArguments<'_>, block: Block<A, B, Y>) -> Result<()> {
    let TernaryParams { space, operands: [a, b, c] } = arguments.params()?;
    let a = Strided::new(&space, &a, arguments.input::<A>(operands::AT.a)?)?;
    let b = Strided::new(&space, &b, arguments.input::<B>(operands::AT.b)?)?;
    let c = Strided::new(&space, &c, arguments.input::<B>(operands::AT.c)?)?;
    map3(a, b, c, arguments.output::<Y>(operands::AT.y)?, block);
    Ok(())
}

fn run_clamp<T: Number>(arguments: &mut HostArguments<'_>) -> Result<()> {
    clamped(arguments, clamp_block::<T>)
}

fn run_clamp_halves<T: Float>(arguments: &mut HostArguments<'_>) -> Result<()> {
    clamped::<T>(arguments, |x, low, high, y| halves::map([x, low, high], y, &|[x, low, high], y| clamp_block(x, low, high, y)))
}

fn clamped<T: Element>(arguments: &mut HostArguments<'_>, block: Block<T, T, T>) -> Result<()> {
    let ClampParams { space, x, bounds, values, .. } = arguments.params()?;
    let [low, high] = values.map(|bits| [low_bits::<T>(bits)]);
    let x = Strided::new(&space, &x, arguments.input(AT.x)?)?;
    let low = Strided::new(&space, &bounds[0], arguments.optional(AT.min)?.unwrap_or(&low))?;
    let high = Strided::new(&space, &bounds[1], arguments.optional(AT.max)?.unwrap_or(&high))?;
    map3(x, low, high, arguments.output(AT.y)?, block);
    Ok(())
}

simd! {
    fn fma_block(a: &[f32], b: &[f32], c: &[f32], y: &mut [f32]) {
        for (((y, a), b), c) in y.iter_mut().zip(a).zip(b).zip(c) {
            *y = a.mul_add(*b, *c);
        }
    }
}

simd! {
    fn select_block<T: Element>(condition: &[Truth], a: &[T], b: &[T], y: &mut [T]) {
        for (((y, condition), a), b) in y.iter_mut().zip(condition).zip(a).zip(b) {
            *y = if condition.get() { *a } else { *b };
        }
    }
}

simd! {
    fn clamp_block<T: Number>(x: &[T], low: &[T], high: &[T], y: &mut [T]) {
        for (((y, x), low), high) in y.iter_mut().zip(x).zip(low).zip(high) {
            *y = T::min(T::max(*x, *low), *high);
        }
    }
}
