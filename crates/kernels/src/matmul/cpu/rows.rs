//! `Y = X Wᵀ` for a few rows of `X` and row-major `W`: the linear layer while it decodes.
//!
//! Reads `W` once, eight rows at a time in short runs, so that the memory system has several streams to fetch ahead; everything else stays
//! in the first-level cache. Each output element is the strict dot product, whatever the number of rows or threads.

use rayon::prelude::*;

use super::{
    dot::{self, PARTIALS, Partials},
    operand::{Load, Matrix, Target, with_values},
    scratch::{LINE, Scratch},
    simd::{Level, Simd, Work},
};
use crate::{float::Float, simd};

/// Rows of `X` at most; from here on packing `W` for a register tile pays.
pub(crate) const MAX_ROWS: usize = 16;

/// Rows of `W` times rows of `X` in flight.
const SUMS: usize = 16;

/// Rows of `W` in flight at most.
const STREAMS: usize = 8;

/// Elements of a row folded before the next row has its turn.
const RUN: usize = 16 * PARTIALS;

/// Multiplications below which a second thread costs more than it gives.
const SERIAL: usize = 1 << 15;

/// Bytes of `W` that are worth a task of their own.
const TASK_BYTES: usize = 1 << 16;

/// Computes `target = x * weights^T` strictly, for `x` `[m, k]` with `m <= MAX_ROWS` and `weights` `[n, k]` with contiguous rows.
pub(crate) fn linear(level: Level, x: Matrix<'_>, weights: Matrix<'_>, target: &Target<'_>) {
    let k = x.columns();
    let stride = k.next_multiple_of(LINE);
    let mut wide = Scratch::new(x.rows() * stride);
    for row in 0..x.rows() {
        widen(x, row, &mut wide[row * stride..][..k]);
    }
    with_values!(weights.values(), |values| tasks(level, Rows { wide: &wide, stride, k }, values, weights, target));
}

fn widen(x: Matrix<'_>, row: usize, target: &mut [f32]) {
    with_values!(x.values(), |values| if x.has_contiguous_rows() && !target.is_empty() {
        convert(&values[x.index(row, 0)..][..target.len()], target);
    } else {
        target.iter_mut().enumerate().for_each(|(k, t)| *t = values[x.index(row, k)].to_f32());
    });
}

simd! {
    fn convert<T: Float>(values: &[T], target: &mut [f32]) {
        target.iter_mut().zip(values).for_each(|(t, v)| *t = v.to_f32());
    }
}

fn tasks<T: Load>(level: Level, x: Rows<'_>, values: &[T], weights: Matrix<'_>, target: &Target<'_>) {
    let n = weights.rows();
    let task = |first: usize, count: usize| level.run(Task { x, values, weights, first, count, target });
    if target.rows() * n * x.k <= SERIAL {
        return task(0, n);
    }
    let rows = (TASK_BYTES / (x.k * size_of::<T>()).max(1)).clamp(1, 256).next_multiple_of(STREAMS);
    (0..n.div_ceil(rows)).into_par_iter().for_each(|i| task(i * rows, rows.min(n - i * rows)));
}

/// `X`, widened, each row on cache lines of its own.
#[derive(Clone, Copy)]
struct Rows<'a> {
    wide: &'a [f32],
    stride: usize,
    k: usize,
}

impl Rows<'_> {
    #[inline(always)]
    fn run(&self, row: usize, start: usize, length: usize) -> &[f32] {
        &self.wide[row * self.stride + start..][..length]
    }
}

/// The outputs of `count` rows of `W`.
struct Task<'a, T> {
    x: Rows<'a>,
    values: &'a [T],
    weights: Matrix<'a>,
    first: usize,
    count: usize,
    target: &'a Target<'a>,
}

impl<T: Load> Work for Task<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let streams = (SUMS / self.target.rows().max(1)).clamp(1, STREAMS);
        for first in (self.first..self.first + self.count).step_by(streams) {
            let count = streams.min(self.first + self.count - first);
            if self.target.rows() == 1 { self.matvec(simd, first, count) } else { self.several(simd, first, count) }
        }
    }
}

impl<T: Load> Task<'_, T> {
    #[inline(always)]
    fn row(&self, index: usize) -> &[T] {
        if self.x.k == 0 { &[] } else { &self.values[self.weights.index(index, 0)..][..self.x.k] }
    }

    #[inline(always)]
    fn matvec<S: Simd>(&self, simd: S, first: usize, count: usize) {
        let mut partials = [Partials::ZERO; STREAMS];
        let whole = self.x.k - self.x.k % PARTIALS;
        for start in (0..whole).step_by(RUN) {
            let run = RUN.min(whole - start);
            for (i, partials) in partials.iter_mut().enumerate().take(count) {
                let (w, x) = (&self.row(first + i)[start..start + run], self.x.run(0, start, run));
                // SAFETY: both slices have `run` elements, a multiple of 256.
                unsafe { dot::fold(simd, partials, w.as_ptr(), x.as_ptr(), run / PARTIALS) };
            }
        }
        let mut sums = [0.0; STREAMS];
        for (i, (partials, sum)) in partials.iter_mut().zip(&mut sums).enumerate().take(count) {
            dot::fold_rest(partials, &self.row(first + i)[whole..], self.x.run(0, whole, self.x.k - whole));
            *sum = dot::tree(partials);
        }
        // SAFETY: each task has columns of its own.
        unsafe { self.target.store(0, first, &mut sums[..count]) };
    }

    /// As `matvec`, with each run of `W` widened once for all rows of `X`.
    #[inline(always)]
    fn several<S: Simd>(&self, simd: S, first: usize, count: usize) {
        let m = self.target.rows();
        let mut partials = [Partials::ZERO; SUMS];
        let mut wide = [0.0; RUN];
        let whole = self.x.k - self.x.k % PARTIALS;
        for start in (0..whole).step_by(RUN) {
            let run = RUN.min(whole - start);
            for i in 0..count {
                let w = &self.row(first + i)[start..start + run];
                for at in (0..run).step_by(S::LANES) {
                    // SAFETY: `run` is a multiple of 256 and so of the lanes; `w` and `wide` have `run` elements.
                    unsafe { simd.store(wide.as_mut_ptr().add(at), T::load(simd, w.as_ptr().add(at))) };
                }
                for row in 0..m {
                    let x = self.x.run(row, start, run);
                    // SAFETY: both slices have `run` elements, a multiple of 256.
                    unsafe { dot::fold(simd, &mut partials[i * m + row], wide.as_ptr(), x.as_ptr(), run / PARTIALS) };
                }
            }
        }
        for row in 0..m {
            let mut sums = [0.0; STREAMS];
            for (i, sum) in sums.iter_mut().enumerate().take(count) {
                let partials = &mut partials[i * m + row];
                dot::fold_rest(partials, &self.row(first + i)[whole..], self.x.run(row, whole, self.x.k - whole));
                *sum = dot::tree(partials);
            }
            // SAFETY: each task has columns of its own.
            unsafe { self.target.store(row, first, &mut sums[..count]) };
        }
    }
}
