//! The CPU kernel: a row is read from memory once, by the fold for the mean; the rest finds it in L1 or L2.

use elinvar_core::{DType, HostArguments, HostKernel, Result};

use super::{Params, operands::AT};
use crate::{
    float::{Float, widen, with_float},
    order,
    parallel::Shared,
    rows::{Ahead, PIECE, for_each_block, in_f32},
    simd,
};

/// What all rows share.
#[derive(Clone, Copy)]
struct Norm<'a> {
    n: usize,
    epsilon: f32,
    weight: Option<&'a [f32]>,
    bias: Option<&'a [f32]>,
    /// Mean and inverse standard deviation of every row, where wanted.
    statistics: Option<[Shared<'a, f32>; 2]>,
}

pub(super) fn kernel(x: DType, weight: DType) -> Result<HostKernel> {
    Ok(with_float!(x, T => with_float!(weight, W => run::<T, W>)))
}

fn run<T: Float, W: Float>(arguments: &mut HostArguments<'_>) -> Result<()> {
    let Params { rows, epsilon, .. } = arguments.params()?;
    let n = rows.length as usize;
    let (x, weight, bias) =
        (arguments.input::<T>(AT.x)?, arguments.optional::<W>(AT.weight)?.map(widen), arguments.optional::<W>(AT.bias)?.map(widen));
    let (y, mean, inv_std) =
        (arguments.output::<T>(AT.y)?, arguments.optional_output::<f32>(AT.mean)?, arguments.optional_output::<f32>(AT.inv_std)?);
    if n == 0 {
        // Rows without elements still have statistics: 0 / 0, as for any mean of nothing.
        mean.into_iter().chain(inv_std).for_each(|s| s.fill(f32::NAN));
        return Ok(());
    }
    let weight = weight.or_else(|| bias.as_ref().map(|_| vec![1.0; n].into()));
    let statistics = mean.zip(inv_std).map(|(mean, inv_std)| [mean, inv_std].map(Shared::new));
    let norm = Norm { n, epsilon, weight: weight.as_deref(), bias: bias.as_deref(), statistics };
    for_each_block(n, x, y, |first, x, y| in_f32(n, x, y, |row, x, y, ahead| layer_norm(x, y, &norm, first + row, ahead)));
    Ok(())
}

simd! {
    /// The rows from `first` on.
    fn layer_norm(x: &[f32], y: &mut [f32], norm: &Norm<'_>, first: usize, ahead: Option<Ahead>) {
        for (index, (x, y)) in x.chunks_exact(norm.n).zip(y.chunks_exact_mut(norm.n)).enumerate() {
            let ahead = ahead.unwrap_or(Ahead::after(x, y));
            let count = norm.n as f32;
            let mean = order::sum(x, order::add) / count;
            let variance = order::sum(x, |a, x: f32| (x - mean).mul_add(x - mean, a)) / count;
            let scale = 1.0 / (variance + norm.epsilon).sqrt();
            if let Some([means, scales]) = norm.statistics {
                // SAFETY: one element for each row, and every row belongs to one task.
                unsafe {
                    means.write(first + index, mean);
                    scales.write(first + index, scale);
                }
            }
            for (piece, (x, y)) in x.chunks(PIECE).zip(y.chunks_mut(PIECE)).enumerate() {
                ahead.fetch(piece);
                apply(x, y, norm, piece * PIECE, mean, scale);
            }
        }
    }
}

/// The part of a row from `start` on.
#[inline(always)]
fn apply(x: &[f32], y: &mut [f32], norm: &Norm<'_>, start: usize, mean: f32, scale: f32) {
    let rows = y.iter_mut().zip(x);
    match (norm.weight.map(|w| &w[start..]), norm.bias.map(|b| &b[start..])) {
        (Some(weight), Some(bias)) => rows.zip(weight).zip(bias).for_each(|(((y, x), w), b)| *y = ((x - mean) * scale).mul_add(*w, *b)),
        (Some(weight), None) => rows.zip(weight).for_each(|((y, x), w)| *y = (x - mean) * scale * w),
        _ => rows.for_each(|(y, x)| *y = (x - mean) * scale),
    }
}
