//! The CPU kernel: f32 rows where they lie, others widened in cache.

use elinvar_core::{DType, HostArguments, HostKernel, Result};

use super::operands::AT;
use crate::{
    float::{Float, as_f32, as_f32_mut, with_float},
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
    let differentiate = if LOG { of_logarithm } else { of_softmax };
    for_each(count.div_ceil(together), together * n, |task| {
        with_scratch(3 * n, |scratch| {
            let (wide_y, rest) = scratch.split_at_mut(n);
            let (wide_dy, wide_dx) = rest.split_at_mut(n);
            for at in task * together..((task + 1) * together).min(count) {
                if inner == 1 {
                    // SAFETY: this row belongs to this task.
                    let (y, dy, dx) = (&y[at * n..][..n], &dy[at * n..][..n], unsafe { dx.part(at * n, n) });
                    if let (Some(y), Some(dy), Some(dx)) = (as_f32(y), as_f32(dy), as_f32_mut(dx)) {
                        differentiate(y, dy, dx);
                    } else {
                        T::widen_into(y, wide_y);
                        T::widen_into(dy, wide_dy);
                        differentiate(wide_y, wide_dy, wide_dx);
                        T::narrow_into(wide_dx, dx);
                    }
                } else {
                    let place = |k: usize| (at / inner * n + k) * inner + at % inner;
                    for (k, (wide_y, wide_dy)) in wide_y.iter_mut().zip(&mut *wide_dy).enumerate() {
                        (*wide_y, *wide_dy) = (y[place(k)].to_f32(), dy[place(k)].to_f32());
                    }
                    differentiate(wide_y, wide_dy, wide_dx);
                    // SAFETY: as above.
                    wide_dx.iter().enumerate().for_each(|(k, x)| unsafe { dx.write(place(k), T::from_f32(*x)) });
                }
            }
        });
    });
    Ok(())
}

simd! {
    fn of_softmax(y: &[f32], dy: &[f32], dx: &mut [f32]) {
        let sum = order::sum([y, dy], |a, [y, g]: [f32; 2]| y.mul_add(g, a));
        dx.iter_mut().zip(y).zip(dy).for_each(|((x, y), g)| *x = y * (g - sum));
    }
}

simd! {
    fn of_logarithm(y: &[f32], dy: &[f32], dx: &mut [f32]) {
        let sum = order::sum(dy, |a, g: f32| a + g);
        dx.iter_mut().zip(y).zip(dy).for_each(|((x, y), g)| *x = g - math::exp_nonpositive(*y) * sum);
    }
}
