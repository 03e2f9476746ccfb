//! `Y = X Wᵀ` for a few rows of `X` and row-major `W`: the linear layer while it decodes.
//!
//! Reads `W` once, eight rows at a time in short runs, so that the memory system has several streams to fetch ahead; everything else stays
//! in the first-level cache. Each output element is the strict dot product, whatever the number of rows or threads.

use rayon::prelude::*;

use super::{
    dot::{self, PARTIALS, Partials},
    operand::{Float, Matrix, Target, with_values},
    simd::{Level, Simd, Work},
};

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

/// Computes `target = x * weights^T` strictly. `x` is `[m, k]` contiguous with `m <= MAX_ROWS`, `weights` `[n, k]` with contiguous rows.
pub(crate) fn linear(level: Level, x: &[f32], weights: Matrix<'_>, target: &Target<'_>) {
    let (m, n, k) = (target.rows(), weights.rows(), weights.columns());
    debug_assert!(m <= MAX_ROWS && x.len() == m * k && target.columns() == n && weights.column_stride() == 1);
    with_values!(weights.values(), |values| tasks(level, x, values, weights.row_stride(), [m, n, k], target));
}

fn tasks<T: Float>(level: Level, x: &[f32], values: &[T], stride: usize, [m, n, k]: [usize; 3], target: &Target<'_>) {
    let task = |first: usize, count: usize| level.run(Task { x, values, stride, k, first, count, target });
    if m * n * k <= SERIAL {
        return task(0, n);
    }
    let rows = (TASK_BYTES / (k * size_of::<T>()).max(1)).clamp(1, 256).next_multiple_of(STREAMS);
    (0..n.div_ceil(rows)).into_par_iter().for_each(|i| task(i * rows, rows.min(n - i * rows)));
}

/// The outputs of `count` rows of `W`.
struct Task<'a, T> {
    x: &'a [f32],
    values: &'a [T],
    stride: usize,
    k: usize,
    first: usize,
    count: usize,
    target: &'a Target<'a>,
}

impl<T: Float> Work for Task<'_, T> {
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

impl<T: Float> Task<'_, T> {
    #[inline(always)]
    fn row(&self, index: usize) -> &[T] {
        &self.values[index * self.stride..][..self.k]
    }

    #[inline(always)]
    fn matvec<S: Simd>(&self, simd: S, first: usize, count: usize) {
        let mut partials = [Partials::ZERO; STREAMS];
        let whole = self.k - self.k % PARTIALS;
        for start in (0..whole).step_by(RUN) {
            let run = RUN.min(whole - start);
            for (i, partials) in partials.iter_mut().enumerate().take(count) {
                let (w, x) = (&self.row(first + i)[start..start + run], &self.x[start..start + run]);
                // SAFETY: both slices have `run` elements, a multiple of 256.
                unsafe { dot::fold(simd, partials, w.as_ptr(), x.as_ptr(), run / PARTIALS) };
            }
        }
        let mut sums = [0.0; STREAMS];
        for (i, (partials, sum)) in partials.iter_mut().zip(&mut sums).enumerate().take(count) {
            dot::fold_rest(partials, &self.row(first + i)[whole..], &self.x[whole..]);
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
        let whole = self.k - self.k % PARTIALS;
        for start in (0..whole).step_by(RUN) {
            let run = RUN.min(whole - start);
            for i in 0..count {
                let w = &self.row(first + i)[start..start + run];
                for at in (0..run).step_by(S::LANES) {
                    // SAFETY: `run` is a multiple of 256 and so of the lanes; `w` and `wide` have `run` elements.
                    unsafe { simd.store(wide.as_mut_ptr().add(at), T::load(simd, w.as_ptr().add(at))) };
                }
                for row in 0..m {
                    let x = &self.x[row * self.k + start..][..run];
                    // SAFETY: both slices have `run` elements, a multiple of 256.
                    unsafe { dot::fold(simd, &mut partials[i * m + row], wide.as_ptr(), x.as_ptr(), run / PARTIALS) };
                }
            }
        }
        for row in 0..m {
            let mut sums = [0.0; STREAMS];
            for (i, sum) in sums.iter_mut().enumerate().take(count) {
                let partials = &mut partials[i * m + row];
                dot::fold_rest(partials, &self.row(first + i)[whole..], &self.x[row * self.k + whole..][..self.k - whole]);
                *sum = dot::tree(partials);
            }
            // SAFETY: each task has columns of its own.
            unsafe { self.target.store(row, first, &mut sums[..count]) };
        }
    }
}
