//! The CPU twin: a row is read from memory once, by the fold for the maximum; the exponentials are computed once, into a row of f32
//! that stays in cache, and scaled into the output.

use elinvar_core::{DType, HostArguments, HostKernel, Result};

use crate::{
    float::{Float, with_float},
    math, order,
    rows::{Rows, for_each_block, with_scratch},
    simd,
};

pub(super) fn twin(dtype: DType, log: bool) -> Result<HostKernel> {
    Ok(with_float!(dtype, "softmax", T => if log { run::<T, true> } else { run::<T, false> }))
}

fn run<T: Float + Default, const LOG: bool>(arguments: &mut HostArguments<'_>) -> Result<()> {
    let rows: Rows = arguments.params()?;
    let (x, y) = (arguments.input::<T>(0)?, arguments.output::<T>(1)?);
    let n = rows.length as usize;
    for_each_block(rows, x, y, |x, y| {
        with_scratch(n, |row| if LOG { log_softmax(x, y, row) } else { softmax(x, y, row) });
    });
    Ok(())
}

simd! {
    fn softmax<T: Float>(x: &[T], y: &mut [T], row: &mut [f32]) {
        for (x, y) in x.chunks_exact(row.len()).zip(y.chunks_exact_mut(row.len())) {
            exponentials(x, row);
            let scale = 1.0 / order::fold(row, 0.0, order::add, order::add);
            for (y, e) in y.iter_mut().zip(&*row) {
                *y = T::from_f32(e * scale);
            }
        }
    }
}

simd! {
    fn log_softmax<T: Float>(x: &[T], y: &mut [T], row: &mut [f32]) {
        for (x, y) in x.chunks_exact(row.len()).zip(y.chunks_exact_mut(row.len())) {
            let max = exponentials(x, row);
            let log = math::log(order::fold(row, 0.0, order::add, order::add));
            for (y, x) in y.iter_mut().zip(x) {
                *y = T::from_f32((x.to_f32() - max) - log);
            }
        }
    }
}

/// `row = exp(x − max x)`; gives the maximum.
#[inline(always)]
fn exponentials<T: Float>(x: &[T], row: &mut [f32]) -> f32 {
    let max = order::fold(x, f32::NEG_INFINITY, |a, x: T| order::max(a, x.to_f32()), order::max);
    for (e, x) in row.iter_mut().zip(x) {
        *e = math::exp(x.to_f32() - max);
    }
    max
}
