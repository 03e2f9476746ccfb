//! The CPU kernel: a row is read from memory once, by the fold; the scaling finds it in L1 or L2. The blocks of a sum do too.

use elinvar_core::{DType, HostArguments, HostKernel, Result};

use super::{Params, added, operands::AT};
use crate::{
    elementwise::stream,
    float::{Float, widen, with_float},
    order,
    parallel::Shared,
    rows::{for_each_block, normalise},
    simd,
};

pub(super) fn kernel(x: DType, weight: DType) -> Result<HostKernel> {
    Ok(with_float!(x, T => with_float!(weight, W => run::<T, W>)))
}

pub(super) fn add_kernel(x: DType, weight: DType) -> Result<HostKernel> {
    Ok(with_float!(x, T => with_float!(weight, W => run_add::<T, W>)))
}

fn run<T: Float, W: Float>(arguments: &mut HostArguments<'_>) -> Result<()> {
    let Params { rows, epsilon, .. } = arguments.params()?;
    let (x, weight, y) = (arguments.input::<T>(AT.x)?, arguments.optional::<W>(AT.weight)?.map(widen), arguments.output::<T>(AT.y)?);
    let (n, weight) = (rows.length as usize, weight.as_deref());
    let is_large = stream::pays(size_of_val(y));
    for_each_block(n, x, y, |_, x, y| rms_norm(x, weight, y, n, epsilon, is_large));
    Ok(())
}

fn run_add<T: Float, W: Float>(arguments: &mut HostArguments<'_>) -> Result<()> {
    let Params { rows, epsilon, .. } = arguments.params()?;
    const AT: added::Places = added::AT;
    let (a, b, weight) = (arguments.input::<T>(AT.a)?, arguments.input::<T>(AT.b)?, arguments.optional::<W>(AT.weight)?.map(widen));
    let (sum, y) = (Shared::new(arguments.output::<T>(AT.sum)?), arguments.output::<T>(AT.y)?);
    let (n, weight) = (rows.length as usize, weight.as_deref());
    let is_large = stream::pays(size_of_val(y));
    for_each_block(n, a, y, |first, a, y| {
        // SAFETY: the rows of this block, which belong to one task.
        let sum = unsafe { sum.part(first * n, a.len()) };
        add(a, &b[first * n..][..a.len()], sum);
        rms_norm(sum, weight, y, n, epsilon, is_large);
    });
    Ok(())
}

simd! {
    fn add<T: Float>(a: &[T], b: &[T], sum: &mut [T]) {
        for ((sum, a), b) in sum.iter_mut().zip(a).zip(b) {
            *sum = T::from_f32(a.to_f32() + b.to_f32());
        }
    }
}

fn rms_norm<T: Float>(x: &[T], weight: Option<&[f32]>, y: &mut [T], n: usize, epsilon: f32, is_large: bool) {
    let apply = |scale: &f32, start: usize, x: &[f32], y: &mut [f32]| apply(x, weight.map(|weight| &weight[start..]), y, *scale);
    normalise((n, 0), x, y, is_large, |_, x| scale(x, epsilon), apply);
}

simd! {
    fn scale(x: &[f32], epsilon: f32) -> f32 {
        let mean = order::sum(x, |a, x: f32| x.mul_add(x, a)) / x.len() as f32;
        1.0 / (mean + epsilon).sqrt()
    }
}

simd! {
    fn apply(x: &[f32], weight: Option<&[f32]>, y: &mut [f32], scale: f32) {
        match weight {
            None => y.iter_mut().zip(x).for_each(|(y, x)| *y = x * scale),
            Some(weight) => y.iter_mut().zip(x).zip(weight).for_each(|((y, x), w)| *y = x * scale * w),
        }
    }
}
