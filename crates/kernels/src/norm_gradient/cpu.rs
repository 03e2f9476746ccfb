//! The CPU kernels: a row at a time, widened in cache, and the sums of the shares' columns.

use elinvar_core::{DType, HostArguments, HostKernel, Result};

use super::{Params, Parts, operands::AT};
use crate::{
    float::{Float, widen, with_float},
    order::{self, Fold},
    parallel::{Shared, for_each},
    rows::{rows_per_task, with_scratch},
    simd,
};

/// The sums of the shares, behind `dx`.
const PARTS: usize = AT.dx + 1;

pub(super) fn kernel(x: DType, weight: DType) -> Result<HostKernel> {
    Ok(with_float!(x, T => with_float!(weight, W => run::<T, W>)))
}

fn run<T: Float, W: Float>(arguments: &mut HostArguments<'_>) -> Result<()> {
    let Params { rows, epsilon, centred, walkers, share, .. } = arguments.params()?;
    let (x, weight, dy) = (arguments.input::<T>(AT.x)?, arguments.optional::<W>(AT.weight)?.map(widen), arguments.input::<T>(AT.dy)?);
    let addend = arguments.optional::<T>(AT.addend)?;
    let dx = Shared::new(arguments.output::<T>(AT.dx)?);
    let parts = arguments.optional_output::<f32>(PARTS)?.map(Shared::new);
    let (n, count, walkers, centred) = (rows.length as usize, rows.count(), walkers as usize, centred != 0);
    let width = if centred { 2 * n } else { n };
    let together = if walkers > 0 { share as usize } else { rows_per_task(n, count) };
    for_each(count.div_ceil(together), together * n, |task| {
        let (mut x_row, mut dy_row, mut weighted, mut sums) = (vec![0f32; n], vec![0f32; n], vec![0f32; n], vec![0f32; walkers * width]);
        for (index, row) in (task * together..((task + 1) * together).min(count)).enumerate() {
            let range = row * n..(row + 1) * n;
            T::widen_into(&x[range.clone()], &mut x_row);
            T::widen_into(&dy[range.clone()], &mut dy_row);
            let weighted = match weight.as_deref() {
                None => &dy_row,
                Some(weight) => {
                    weigh(&dy_row, weight, &mut weighted);
                    &weighted
                }
            };
            let found = centre(&mut x_row, weighted, epsilon, centred);
            if walkers > 0 {
                let (weight, bias) = sums[index % walkers * width..][..width].split_at_mut(n);
                add_row(&x_row, &dy_row, found.scale, weight, bias);
            }
            differentiate(&mut x_row, weighted, found, centred);
            // SAFETY: this row belongs to this task.
            let to = unsafe { dx.part(row * n, n) };
            T::narrow_into(&x_row, to);
            if let Some(addend) = addend {
                to.iter_mut().zip(&addend[range]).for_each(|(dx, addend)| *dx = T::from_f32(addend.to_f32() + dx.to_f32()));
            }
        }
        if let Some(parts) = &parts {
            let (total, others) = sums.split_at_mut(width);
            others.chunks(width).for_each(|sums| total.iter_mut().zip(sums).for_each(|(total, sum)| *total += sum));
            // SAFETY: this share belongs to this task.
            unsafe { parts.part(task * width, width) }.copy_from_slice(total);
        }
    });
    Ok(())
}

/// What a row's gradient is made of, beside the row.
#[derive(Clone, Copy)]
struct Found {
    scale: f32,
    shift: f32,
    slope: f32,
}

simd! {
    /// The gradients times the weight.
    fn weigh(dy: &[f32], weight: &[f32], weighted: &mut [f32]) {
        weighted.iter_mut().zip(dy).zip(weight).for_each(|((h, dy), w)| *h = dy * w);
    }
}

simd! {
    /// Takes the mean from the elements.
    fn centre(x: &mut [f32], weighted: &[f32], epsilon: f32, centred: bool) -> Found {
        let count = x.len() as f32;
        if centred {
            let mean = order::sum(&*x, order::add) / count;
            x.iter_mut().for_each(|x| *x -= mean);
        }
        let scale = 1.0 / (order::sum(&*x, |a, c: f32| c.mul_add(c, a)) / count + epsilon).sqrt();
        let shift = if centred { order::sum(weighted, order::add) / count } else { 0.0 };
        let slope = order::sum([&*x, weighted], |a, [c, h]: [f32; 2]| h.mul_add(c, a)) * scale / count;
        Found { scale, shift, slope }
    }
}

simd! {
    /// Adds what a row has for the weight, and for the bias if there are sums for it.
    fn add_row(x: &[f32], dy: &[f32], scale: f32, weight: &mut [f32], bias: &mut [f32]) {
        weight.iter_mut().zip(x).zip(dy).for_each(|((sum, c), dy)| *sum = dy.mul_add(c * scale, *sum));
        bias.iter_mut().zip(dy).for_each(|(sum, dy)| *sum += dy);
    }
}

simd! {
    /// The row becomes its gradient.
    fn differentiate(x: &mut [f32], weighted: &[f32], found: Found, centred: bool) {
        let Found { scale, shift, slope } = found;
        for (x, h) in x.iter_mut().zip(weighted) {
            let normalised = *x * scale;
            *x = ((if centred { h - shift } else { *h }) - normalised * slope) * scale;
        }
    }
}

pub(super) fn last_kernel(weight: DType) -> Result<HostKernel> {
    Ok(with_float!(weight, W => run_last::<W>))
}

fn run_last<W: Float>(arguments: &mut HostArguments<'_>) -> Result<()> {
    let Parts { count, width, columns } = arguments.params()?;
    let parts = arguments.input::<f32>(0)?;
    let (dweight, dbias) = (Shared::new(arguments.output::<W>(1)?), arguments.optional_output::<W>(2)?.map(Shared::new));
    let (count, width, columns) = (count as usize, width as usize, columns as usize);
    // A tile's columns are the weight's or the bias'.
    let tiles = columns.div_ceil(order::TILE);
    for_each(width / columns.max(1) * tiles, order::TILE * count, |task| {
        let start = task % tiles * order::TILE;
        let tile = order::TILE.min(columns - start);
        with_scratch(tile + order::columns_scratch(tile), |scratch| {
            let (total, scratch) = scratch.split_at_mut(tile);
            fold(&parts[task / tiles * columns + start..], (count, width), scratch, total);
            let to = if task < tiles { Some(&dweight) } else { dbias.as_ref() };
            // SAFETY: these columns belong to this task.
            to.iter().for_each(|to| W::narrow_into(total, unsafe { to.part(start, tile) }));
        });
    });
    Ok(())
}

simd! {
    /// Adds up the lines that begin at each `width` numbers.
    fn fold(parts: &[f32], size: (usize, usize), scratch: &mut [f32], total: &mut [f32]) {
        let (count, width) = size;
        let (tile, sum) = (total.len(), Fold { identity: 0.0, step: |a, x, _| a + x, combine: order::add });
        order::fold_columns(|k: usize| &parts[k * width..][..tile], count, 0..order::row_groups(count), sum, scratch, total);
    }
}
