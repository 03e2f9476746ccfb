//! The CPU twin: a row is read from memory once, by the fold; the scaling finds it in L1 or L2.

use elinvar_core::{DType, HostArguments, HostKernel, Result};
use rayon::prelude::*;

use super::Params;
use crate::{
    float::{Float, widen, with_float},
    order,
    rows::rows_per_task,
    simd,
};

pub(super) fn twin(x: DType, weight: DType) -> Result<HostKernel> {
    Ok(with_float!(x, "rms_norm", T => with_float!(weight, "a weight", W => run::<T, W>)))
}

pub(super) fn add_twin(x: DType, weight: DType) -> Result<HostKernel> {
    Ok(with_float!(x, "add_rms_norm", T => with_float!(weight, "a weight", W => run_add::<T, W>)))
}

fn run<T: Float, W: Float>(arguments: &mut HostArguments<'_>) -> Result<()> {
    let Params { rows, epsilon, .. } = arguments.params()?;
    let (x, weight, y) = (arguments.input::<T>(0)?, arguments.optional::<W>(1)?.map(widen), arguments.output::<T>(2)?);
    let n = rows.length as usize;
    if x.is_empty() {
        return Ok(());
    }
    let size = n * rows_per_task(n, rows.count());
    let weight = weight.as_deref();
    if x.len() <= size {
        rms_norm(x, weight, y, n, epsilon);
    } else {
        x.par_chunks(size).zip(y.par_chunks_mut(size)).for_each(|(x, y)| rms_norm(x, weight, y, n, epsilon));
    }
    Ok(())
}

fn run_add<T: Float, W: Float>(arguments: &mut HostArguments<'_>) -> Result<()> {
    let Params { rows, epsilon, .. } = arguments.params()?;
    let (a, b, weight) = (arguments.input::<T>(0)?, arguments.input::<T>(1)?, arguments.optional::<W>(2)?.map(widen));
    let (sum, y) = (arguments.output::<T>(3)?, arguments.output::<T>(4)?);
    let n = rows.length as usize;
    if a.is_empty() {
        return Ok(());
    }
    let size = n * rows_per_task(n, rows.count());
    let weight = weight.as_deref();
    if a.len() <= size {
        add_rms_norm(a, b, weight, sum, y, n, epsilon);
    } else {
        let outputs = sum.par_chunks_mut(size).zip(y.par_chunks_mut(size));
        let work = a.par_chunks(size).zip(b.par_chunks(size)).zip(outputs);
        work.for_each(|((a, b), (sum, y))| add_rms_norm(a, b, weight, sum, y, n, epsilon));
    }
    Ok(())
}

simd! {
    fn rms_norm<T: Float>(x: &[T], weight: Option<&[f32]>, y: &mut [T], n: usize, epsilon: f32) {
        for (x, y) in x.chunks_exact(n).zip(y.chunks_exact_mut(n)) {
            normalise(x, weight, y, epsilon);
        }
    }
}

simd! {
    fn add_rms_norm<T: Float>(a: &[T], b: &[T], weight: Option<&[f32]>, sum: &mut [T], y: &mut [T], n: usize, epsilon: f32) {
        let inputs = a.chunks_exact(n).zip(b.chunks_exact(n));
        for ((a, b), (sum, y)) in inputs.zip(sum.chunks_exact_mut(n).zip(y.chunks_exact_mut(n))) {
            for ((sum, a), b) in sum.iter_mut().zip(a).zip(b) {
                *sum = T::from_f32(a.to_f32() + b.to_f32());
            }
            normalise(sum, weight, y, epsilon);
        }
    }
}

#[inline(always)]
fn normalise<T: Float>(x: &[T], weight: Option<&[f32]>, y: &mut [T], epsilon: f32) {
    let square = |a: f32, x: T| x.to_f32().mul_add(x.to_f32(), a);
    let mean = order::fold(x, 0.0, square, order::add) / x.len() as f32;
    let scale = 1.0 / (mean + epsilon).sqrt();
    match weight {
        None => {
            for (y, x) in y.iter_mut().zip(x) {
                *y = T::from_f32(x.to_f32() * scale);
            }
        }
        Some(weight) => {
            for ((y, x), w) in y.iter_mut().zip(x).zip(weight) {
                *y = T::from_f32(x.to_f32() * scale * w);
            }
        }
    }
}
