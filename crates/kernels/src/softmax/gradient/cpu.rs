//! The CPU kernel: a row at a time, widened in cache.

use elinvar_core::{DType, HostArguments, HostKernel, Result};

use super::operands::AT;
use crate::{
    float::{Float, with_float},
    math, order,
    parallel::{Shared, for_each},
    rows::{Rows, rows_per_task, with_scratch},
    simd,
};

pub(super) fn kernel(dtype: DType, log: bool) -> Result<HostKernel> {
    Ok(with_float!(dtype, T => if log { run::<T, true> } else { run::<T, false> }))
}

fn run<T: Float, const LOG: bool>(arguments: &mut HostArguments<'_>) -> Result<()> {
    let rows: Rows = arguments.params()?;
    let (y, dy, dx) = (arguments.input::<T>(AT.y)?, arguments.input::<T>(AT.dy)?, Shared::new(arguments.output::<T>(AT.dx)?));
    let (n, inner, count) = (rows.length as usize, rows.inner as usize, if y.is_empty() { 0 } else { rows.count() });
    let together = rows_per_task(n, count);
    for_each(count.div_ceil(together), together * n, |task| {
        with_scratch(4 * n, |scratch| {
            let (row, rest) = scratch.split_at_mut(n);
            let (gradient, pairs) = rest.split_at_mut(n);
            let pairs = pairs.as_chunks_mut().0;
            for at in task * together..((task + 1) * together).min(count) {
                let (start, place) = (at * n, |k: usize| (at / inner * n + k) * inner + at % inner);
                if inner == 1 {
                    T::widen_into(&y[start..][..n], row);
                    T::widen_into(&dy[start..][..n], gradient);
                } else {
                    for (k, (y_, dy_)) in row.iter_mut().zip(&mut *gradient).enumerate() {
                        (*y_, *dy_) = (y[place(k)].to_f32(), dy[place(k)].to_f32());
                    }
                }
                if LOG {
                    of_logarithm(row, gradient);
                } else {
                    of_softmax(row, gradient, pairs);
                }
                // SAFETY: this row belongs to this task.
                unsafe {
                    if inner == 1 {
                        T::narrow_into(row, dx.part(start, n));
                    } else {
                        row.iter().enumerate().for_each(|(k, x)| dx.write(place(k), T::from_f32(*x)));
                    }
                }
            }
        });
    });
    Ok(())
}

simd! {
    /// The row becomes its gradient.
    fn of_softmax(row: &mut [f32], gradient: &[f32], pairs: &mut [[f32; 2]]) {
        pairs.iter_mut().zip(&*row).zip(gradient).for_each(|((pair, y), g)| *pair = [*y, *g]);
        let sum = order::sum(pairs, |a, [y, g]: [f32; 2]| y.mul_add(g, a));
        row.iter_mut().zip(gradient).for_each(|(y, g)| *y *= g - sum);
    }
}

simd! {
    fn of_logarithm(row: &mut [f32], gradient: &[f32]) {
        let sum = order::sum(gradient, |a, g: f32| a + g);
        row.iter_mut().zip(gradient).for_each(|(y, g)| *y = g - math::exp_nonpositive(*y) * sum);
    }
}
