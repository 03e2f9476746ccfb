//! The CPU kernels.

use elinvar_core::{DType, Element, HostArguments, HostKernel, Result};
use half::{bf16, f16};

use super::{ArangeParams, FillParams, operands::AT};
use crate::{
    elementwise::{
        blocks::TASK,
        dispatch::{for_integers, for_storage},
        number::Number,
        scalar::low_bits,
    },
    float::Float,
    parallel::for_each_part,
    signature::no_kernel,
};

pub(super) fn fill(bits: DType) -> HostKernel {
    for_storage!(bits, T => run_fill::<T>)
}

fn run_fill<T: Element>(arguments: &mut HostArguments<'_>) -> Result<()> {
    let params: FillParams = arguments.params()?;
    let value = low_bits::<T>(params.bits);
    for_each_part(arguments.output::<T>(AT.y)?, TASK, |_, y| y.fill(value));
    Ok(())
}

pub(super) fn arange(dtype: DType) -> Result<HostKernel> {
    let kernel = match dtype {
        DType::F32 => Some(run_floats::<f32> as HostKernel),
        DType::F16 => Some(run_floats::<f16> as HostKernel),
        DType::BF16 => Some(run_floats::<bf16> as HostKernel),
        _ => for_integers!(dtype, T => run_integers::<T> as HostKernel),
    };
    kernel.ok_or_else(|| no_kernel(dtype))
}

fn run_floats<T: Float>(arguments: &mut HostArguments<'_>) -> Result<()> {
    let params: ArangeParams = arguments.params()?;
    let (start, step) = (f32::from_bits(params.start as u32), f32::from_bits(params.step as u32));
    for_each_part(arguments.output::<T>(AT.y)?, TASK, |part, y| {
        for (i, y) in (part * TASK..).zip(y) {
            *y = T::from_f32((i as f32).mul_add(step, start));
        }
    });
    Ok(())
}

fn run_integers<T: Number>(arguments: &mut HostArguments<'_>) -> Result<()> {
    let params: ArangeParams = arguments.params()?;
    let (start, step) = (low_bits::<T>(params.start), low_bits::<T>(params.step));
    for_each_part(arguments.output::<T>(AT.y)?, TASK, |part, y| {
        for (i, y) in (part * TASK..).zip(y) {
            *y = T::add(start, T::mul(low_bits(i as u64), step));
        }
    });
    Ok(())
}
