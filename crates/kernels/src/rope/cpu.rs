//! The CPU kernel: tokens in parallel; a token's cosines and sines serve all its heads.

use elinvar_core::{DType, Error, HostArguments, HostKernel, Result};

use super::{Params, embedding, operands::AT};
use crate::{
    float::{Float, with_float},
    gather::index::{Index, for_indices},
    math,
    parallel::{Shared, for_each},
    rows::{rows_per_task, with_scratch},
    signature::no_kernel,
    simd,
};

pub(super) fn kernel(x: DType, positions: DType) -> Result<HostKernel> {
    with_float!(x, T => for_indices!(positions, P => run::<T, P> as HostKernel).ok_or_else(|| no_kernel(positions)))
}

pub(super) fn cached_kernel(x: DType, cache: DType, positions: DType) -> Result<HostKernel> {
    with_float!(x, T => with_float!(cache, C => {
        for_indices!(positions, P => run_cached::<T, C, P> as HostKernel).ok_or_else(|| no_kernel(positions))
    }))
}

fn run<T: Float + Default, P: Index>(arguments: &mut HostArguments<'_>) -> Result<()> {
    let params: Params = arguments.params()?;
    let (positions, frequencies) = (arguments.input::<P>(AT.positions)?, arguments.input::<f32>(AT.frequencies)?);
    let (x, y) = (arguments.input::<T>(AT.x)?, arguments.output::<T>(AT.y)?);
    for_each_token(&params, x, y, |batch, token, cos, sin| {
        let position = positions[batch * params.position_stride as usize + token];
        angles(frequencies, position.wide() as f32, cos, sin);
    });
    Ok(())
}

fn run_cached<T: Float + Default, C: Float, P: Index>(arguments: &mut HostArguments<'_>) -> Result<()> {
    const AT: embedding::operands::Places = embedding::operands::AT;
    let params: Params = arguments.params()?;
    let (cosines, sines, positions) =
        (arguments.input::<C>(AT.cos_cache)?, arguments.input::<C>(AT.sin_cache)?, arguments.optional::<P>(AT.position_ids)?);
    let outside = |(_, position): &(usize, i64)| !(0..params.cache_rows as i64).contains(position);
    if let Some((number, position)) = positions.and_then(|p| p.iter().map(|p| p.wide()).enumerate().find(outside)) {
        let rows = params.cache_rows;
        return Err(Error::invalid_argument(format!("position {position} (number {number}) is outside caches of {rows} rows: use caches with more")));
    }
    let (x, y) = (arguments.input::<T>(AT.x)?, arguments.output::<T>(AT.y)?);
    for_each_token(&params, x, y, |batch, token, cos, sin| {
        let position = match positions {
            Some(positions) => positions[batch * params.position_stride as usize + token].wide(),
            None => (batch * params.extents[1] as usize + token) as i64,
        };
        let row = position as usize * cos.len()..(position as usize + 1) * cos.len();
        for ((cos, sin), (c, s)) in cos.iter_mut().zip(sin).zip(cosines[row.clone()].iter().zip(&sines[row])) {
            (*cos, *sin) = (c.to_f32(), s.to_f32());
        }
    });
    Ok(())
}

/// Rotates every token's heads by the cosines and sines that `fill(batch, token, cos, sin)` gives.
fn for_each_token<T: Float + Default>(params: &Params, x: &[T], y: &mut [T], fill: impl Fn(usize, usize, &mut [f32], &mut [f32]) + Sync) {
    let [batches, tokens, heads, dim] = params.extents.map(|n| n as usize);
    if y.is_empty() {
        return;
    }
    let count = batches * tokens;
    let per_task = rows_per_task(heads * dim, count);
    let y = Shared::new(y);
    let task = |task: usize| {
        let half = params.half_dim as usize;
        with_scratch(2 * half, |table| {
            let (cos, sin) = table.split_at_mut(half);
            for index in task * per_task..count.min((task + 1) * per_task) {
                let (batch, token) = (index / tokens, index % tokens);
                fill(batch, token, cos, sin);
                rotate(params, x, y, batch, token, cos, sin);
            }
        });
    };
    for_each(count.div_ceil(per_task), per_task * heads * dim, task);
}

simd! {
    pub(crate) fn angles(frequencies: &[f32], position: f32, cos: &mut [f32], sin: &mut [f32]) {
        for ((cos, sin), f) in cos.iter_mut().zip(sin).zip(frequencies) {
            (*cos, *sin) = (math::cos(position * f), math::sin(position * f));
        }
    }
}

simd! {
    /// The heads of one token.
    fn rotate<T: Float>(params: &Params, x: &[T], y: Shared<'_, T>, batch: usize, token: usize, cos: &[f32], sin: &[f32]) {
        let [_, _, heads, dim] = params.extents.map(|n| n as usize);
        let from = params.x_origin as i64 + batch as i64 * params.x[0] + token as i64 * params.x[1];
        let to = batch * params.y[0] as usize + token * params.y[1] as usize;
        let stride = params.x[3];
        for head in 0..heads {
            let start = from + head as i64 * params.x[2];
            // SAFETY: the vector of this head of this token, which belongs to one task.
            let y = unsafe { y.part(to + head * params.y[2] as usize, dim) };
            if stride == 1 {
                y.copy_from_slice(&x[start as usize..][..dim]);
            } else {
                y.iter_mut().enumerate().for_each(|(e, y)| *y = x[(start + e as i64 * stride) as usize]);
            }
            if params.interleaved == 0 { half_split(y, cos, sin) } else { interleaved(y, cos, sin) }
        }
    }
}

#[inline(always)]
fn rotate_pair<T: Float>(u: &mut T, v: &mut T, cos: f32, sin: f32) {
    let (a, b) = (u.to_f32(), v.to_f32());
    (*u, *v) = (T::from_f32(a * cos - b * sin), T::from_f32(b * cos + a * sin));
}

#[inline(always)]
pub(crate) fn half_split<T: Float>(y: &mut [T], cos: &[f32], sin: &[f32]) {
    let (low, high) = y.split_at_mut(cos.len());
    for ((u, v), (cos, sin)) in low.iter_mut().zip(high).zip(cos.iter().zip(sin)) {
        rotate_pair(u, v, *cos, *sin);
    }
}

#[inline(always)]
pub(crate) fn interleaved<T: Float>(y: &mut [T], cos: &[f32], sin: &[f32]) {
    for (pair, (cos, sin)) in y.chunks_exact_mut(2).zip(cos.iter().zip(sin)) {
        let (u, v) = pair.split_at_mut(1);
        rotate_pair(&mut u[0], &mut v[0], *cos, *sin);
    }
}
