//! The CPU kernel: a row of pairs at a time, widened in cache.

use elinvar_core::{DType, HostArguments, HostKernel, Result};

use super::operands::AT;
use crate::{
    float::{Float, with_float},
    math, order,
    parallel::{Shared, for_each},
    rows::{Rows, rows_per_task},
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
        let mut pairs = vec![[0f32; 2]; n];
        for row in task * together..((task + 1) * together).min(count) {
            let place = |k: usize| (row / inner * n + k) * inner + row % inner;
            pairs.iter_mut().enumerate().for_each(|(k, pair)| *pair = [y[place(k)].to_f32(), dy[place(k)].to_f32()]);
            if LOG {
                of_logarithm(&mut pairs)
            } else {
                of_softmax(&mut pairs)
            }
            for (k, [x, _]) in pairs.iter().enumerate() {
                // SAFETY: this row belongs to this task.
                unsafe { dx.write(place(k), T::from_f32(*x)) };
            }
        }
    });
    Ok(())
}

simd! {
    /// The first of each pair becomes the gradient.
    fn of_softmax(pairs: &mut [[f32; 2]]) {
        let sum = order::sum(pairs, |a, [y, g]: [f32; 2]| y.mul_add(g, a));
        for [y, g] in pairs {
            *y *= *g - sum;
        }
    }
}

simd! {
    fn of_logarithm(pairs: &mut [[f32; 2]]) {
        let sum = order::sum(pairs, |a, [_, g]: [f32; 2]| a + g);
        for [y, g] in pairs {
            *y = *g - math::exp_nonpositive(*y) * sum;
        }
    }
}
