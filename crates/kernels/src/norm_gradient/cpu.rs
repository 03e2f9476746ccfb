//! The CPU kernel: a row of pairs at a time, widened in cache.

use elinvar_core::{DType, HostArguments, HostKernel, Result};

use super::{Params, operands::AT};
use crate::{
    float::{Float, widen, with_float},
    order,
    parallel::{Shared, for_each},
    rows::rows_per_task,
    simd,
};

pub(super) fn kernel(x: DType, weight: DType) -> Result<HostKernel> {
    Ok(with_float!(x, T => with_float!(weight, W => run::<T, W>)))
}

fn run<T: Float, W: Float>(arguments: &mut HostArguments<'_>) -> Result<()> {
    let Params { rows, epsilon, .. } = arguments.params()?;
    let (x, weight, dy) = (arguments.input::<T>(AT.x)?, arguments.optional::<W>(AT.weight)?.map(widen), arguments.input::<T>(AT.dy)?);
    let addend = arguments.optional::<T>(AT.addend)?;
    let (dx, scales, means) =
        (arguments.output::<T>(AT.dx)?, arguments.output::<f32>(AT.scale)?, arguments.optional_output::<f32>(AT.mean)?.map(Shared::new));
    let (n, count) = (rows.length as usize, rows.count());
    let (dx, scales) = (Shared::new(dx), Shared::new(scales));
    let together = rows_per_task(n, count);
    for_each(count.div_ceil(together), together * n.max(1), |task| {
        // The row minus its mean, and its gradient times the weight.
        let mut pairs = vec![[0f32; 2]; n];
        for row in task * together..((task + 1) * together).min(count) {
            for (k, pair) in pairs.iter_mut().enumerate() {
                let gradient = dy[row * n + k].to_f32();
                *pair = [x[row * n + k].to_f32(), weight.as_ref().map_or(gradient, |weight| gradient * weight[k])];
            }
            let (scale, mean) = differentiate(&mut pairs, epsilon, means.is_some());
            // SAFETY: this row and its statistics belong to this task.
            unsafe {
                scales.write(row, scale);
                means.iter().for_each(|means| means.write(row, mean));
                pairs
                    .iter()
                    .enumerate()
                    .for_each(|(k, [x, _])| dx.write(row * n + k, sum(T::from_f32(*x), addend.map(|addend| addend[row * n + k]))));
            }
        }
    });
    Ok(())
}

/// What is written of a gradient.
fn sum<T: Float>(dx: T, addend: Option<T>) -> T {
    addend.map_or(dx, |addend| T::from_f32(addend.to_f32() + dx.to_f32()))
}

simd! {
    /// The first of each pair becomes the gradient; gives the inverse deviation and the mean.
    fn differentiate(pairs: &mut [[f32; 2]], epsilon: f32, centred: bool) -> (f32, f32) {
        let count = pairs.len() as f32;
        let mean = if centred { order::sum(pairs, |a, [x, _]: [f32; 2]| a + x) / count } else { 0.0 };
        for [x, _] in pairs.iter_mut() {
            *x -= mean;
        }
        let scale = 1.0 / (order::sum(pairs, |a, [c, _]: [f32; 2]| c.mul_add(c, a)) / count + epsilon).sqrt();
        let shift = if centred { order::sum(pairs, |a, [_, h]: [f32; 2]| a + h) / count } else { 0.0 };
        let slope = order::sum(pairs, |a, [c, h]: [f32; 2]| h.mul_add(c, a)) * scale / count;
        for [c, h] in pairs.iter_mut() {
            let normalised = *c * scale;
            *c = ((if centred { *h - shift } else { *h }) - normalised * slope) * scale;
        }
        (scale, mean)
    }
}
