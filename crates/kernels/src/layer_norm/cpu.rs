//! The CPU kernel: a row is read from memory once, by the fold for the mean; the rest finds it in L1 or L2.

use elinvar_core::{DType, HostArguments, HostKernel, Result};

use super::{Params, operands::AT};
use crate::{
    elementwise::stream,
    float::{Float, widen, with_float},
    order,
    parallel::Shared,
    rows::{for_each_block, normalise},
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
    let is_large = stream::pays(size_of_val(y));
    for_each_block(n, x, y, |first, x, y| layer_norm(x, y, &norm, first, is_large));
    Ok(())
}

/// The rows from `first` on.
fn layer_norm<T: Float>(x: &[T], y: &mut [T], norm: &Norm<'_>, first: usize, is_large: bool) {
    let whole = |row: usize, x: &[f32]| {
        let known = mean_and_scale(x, norm.epsilon);
        if let Some([means, scales]) = norm.statistics {
            // SAFETY: one element for each row, and every row belongs to one task.
            unsafe {
                means.write(row, known[0]);
                scales.write(row, known[1]);
            }
        }
        known
    };
    let part = |known: &[f32; 2], start: usize, x: &[f32], y: &mut [f32]| {
        apply(x, y, norm.weight.map(|w| &w[start..]), norm.bias.map(|b| &b[start..]), *known);
    };
    normalise((norm.n, first), x, y, is_large, whole, part);
}

simd! {
    fn mean_and_scale(x: &[f32], epsilon: f32) -> [f32; 2] {
        let count = x.len() as f32;
        let mean = order::sum(x, order::add) / count;
        let variance = order::sum(x, |a, x: f32| (x - mean).mul_add(x - mean, a)) / count;
        [mean, 1.0 / (variance + epsilon).sqrt()]
    }
}

simd! {
    /// A part of a row.
    fn apply(x: &[f32], y: &mut [f32], weight: Option<&[f32]>, bias: Option<&[f32]>, known: [f32; 2]) {
        let (rows, [mean, scale]) = (y.iter_mut().zip(x), known);
        match (weight, bias) {
            (Some(weight), Some(bias)) => rows.zip(weight).zip(bias).for_each(|(((y, x), w), b)| *y = ((x - mean) * scale).mul_add(*w, *b)),
            (Some(weight), None) => rows.zip(weight).for_each(|((y, x), w)| *y = (x - mean) * scale * w),
            _ => rows.for_each(|(y, x)| *y = (x - mean) * scale),
        }
    }
}
