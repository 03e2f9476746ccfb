//! The CPU kernel. Along the last axis a row is read from memory once, by the fold for the maximum, and its exponentials are scaled where they
//! were written, still in cache; along other axes a tile of neighbouring rows is worked on in L2, in vectors across them.

use elinvar_core::{DType, HostArguments, HostKernel, Result};

use super::operands::AT;
use crate::{
    float::{Float, with_float},
    math,
    order::{self, Fold},
    rows::{Ahead, PIECE, Rows, for_each_block, for_each_tile, in_f32},
    simd,
};

pub(super) fn kernel(dtype: DType, log: bool) -> Result<HostKernel> {
    Ok(with_float!(dtype, T => if log { run::<T, true> } else { run::<T, false> }))
}

fn run<T: Float, const LOG: bool>(arguments: &mut HostArguments<'_>) -> Result<()> {
    let rows: Rows = arguments.params()?;
    let (x, y) = (arguments.input::<T>(AT.x)?, arguments.output::<T>(AT.y)?);
    let n = rows.length as usize;
    if rows.inner > 1 {
        let scratch = |width: usize| 2 * width + order::columns_scratch(width);
        for_each_tile(rows, x, y, scratch, if LOG { log_softmax_tile } else { softmax_tile });
    } else {
        for_each_block(n, x, y, |_, x, y| in_f32(n, x, y, |_, x, y, ahead| if LOG { log_softmax(x, y, n, ahead) } else { softmax(x, y, n, ahead) }));
    }
    Ok(())
}

simd! {
    fn softmax(x: &[f32], y: &mut [f32], n: usize, ahead: Option<Ahead>) {
        for (x, y) in x.chunks_exact(n).zip(y.chunks_exact_mut(n)) {
            let ahead = ahead.unwrap_or(Ahead::after(x, y));
            let max = order::largest(x);
            for (piece, (x, y)) in x.chunks(PIECE).zip(y.chunks_mut(PIECE)).enumerate() {
                ahead.fetch(piece);
                for (y, x) in y.iter_mut().zip(x) {
                    *y = math::exp_nonpositive(x - max);
                }
            }
            let scale = 1.0 / order::sum(&*y, order::add);
            for y in y {
                *y *= scale;
            }
        }
    }
}

simd! {
    fn log_softmax(x: &[f32], y: &mut [f32], n: usize, ahead: Option<Ahead>) {
        for (x, y) in x.chunks_exact(n).zip(y.chunks_exact_mut(n)) {
            let ahead = ahead.unwrap_or(Ahead::after(x, y));
            let max = order::largest(x);
            let log = math::log(order::sum(x, |a, x| a + math::exp_nonpositive(x - max)));
            for (piece, (x, y)) in x.chunks(PIECE).zip(y.chunks_mut(PIECE)).enumerate() {
                ahead.fetch(piece);
                for (y, x) in y.iter_mut().zip(x) {
                    *y = (x - max) - log;
                }
            }
        }
    }
}

simd! {
    fn softmax_tile(lines: &mut [f32], width: usize, rest: &mut [f32]) {
        let (max, rest) = rest.split_at_mut(width);
        let (scale, scratch) = rest.split_at_mut(width);
        max_of_columns(lines, scratch, max);
        for line in lines.chunks_exact_mut(width) {
            for (y, max) in line.iter_mut().zip(&*max) {
                *y = math::exp_nonpositive(*y - max);
            }
        }
        let sum = Fold { identity: 0.0, step: |a, x, _| a + x, combine: order::add };
        fold_lines(lines, sum, scratch, scale);
        scale.iter_mut().for_each(|sum| *sum = 1.0 / *sum);
        for line in lines.chunks_exact_mut(width) {
            for (y, scale) in line.iter_mut().zip(&*scale) {
                *y *= scale;
            }
        }
    }
}

simd! {
    fn log_softmax_tile(lines: &mut [f32], width: usize, rest: &mut [f32]) {
        let (max, rest) = rest.split_at_mut(width);
        let (log, scratch) = rest.split_at_mut(width);
        max_of_columns(lines, scratch, max);
        let sum = Fold { identity: 0.0, step: |a, x, column: usize| a + math::exp_nonpositive(x - max[column]), combine: order::add };
        fold_lines(lines, sum, scratch, log);
        log.iter_mut().for_each(|sum| *sum = math::log(*sum));
        for line in lines.chunks_exact_mut(width) {
            for ((y, max), log) in line.iter_mut().zip(&*max).zip(&*log) {
                *y = (*y - max) - log;
            }
        }
    }
}

#[inline(always)]
fn max_of_columns(lines: &[f32], scratch: &mut [f32], max: &mut [f32]) {
    let larger = Fold { identity: f32::NEG_INFINITY, step: |a, x, _| order::larger(a, x), combine: order::larger };
    fold_lines(lines, larger, scratch, max);
}

#[inline(always)]
fn fold_lines(
    lines: &[f32],
    fold: Fold<impl Fn(f32, f32, usize) -> f32 + Copy, impl Fn(f32, f32) -> f32 + Copy>,
    scratch: &mut [f32],
    out: &mut [f32],
) {
    let (width, length) = (out.len(), lines.len() / out.len());
    order::fold_columns(|k| &lines[k * width..][..width], length, 0..order::row_groups(length), fold, scratch, out);
}
