//! `Y = X Wᵀ` for a few rows of `X` and row-major `W`: the linear layer while it decodes.
//!
//! Reads `W` once, fetching ahead; everything else stays in the caches. Each output element is the strict dot product, whatever the number of rows or threads.

use super::{
    dot::{self, LINE_BYTES, PARTIALS, Partials},
    level::Level,
    operand::{Load, Matrix, Target, with_values},
    scratch::{LINE, Scratch},
    simd::{Simd, Work},
};
use crate::{float::Float, parallel::spread, simd};

/// Rows of `X` at most; from here on packing `W` for a register tile pays.
pub(crate) const MAX_ROWS: usize = 8;

/// Elements of a row of `W` widened at a time for several rows of `X`.
const RUN: usize = 8 * PARTIALS;

/// Outputs stored at a time.
const OUTPUTS: usize = 16;

/// Multiplications below which a second thread costs more than it gives.
const SERIAL: usize = 1 << 15;

/// Bytes of `W` that are worth a task of their own.
const TASK_BYTES: usize = 1 << 17;

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
    let rows = (TASK_BYTES / (x.k * size_of::<T>()).max(1)).clamp(1, 256).next_multiple_of(OUTPUTS);
    spread(n.div_ceil(rows), 1, &|i| task(i * rows, rows.min(n - i * rows)));
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
        if self.target.rows() == 1 { self.one(simd) } else { self.several(simd) }
    }
}

impl<T: Load> Task<'_, T> {
    #[inline(always)]
    fn row(&self, index: usize) -> &[T] {
        if self.x.k == 0 { &[] } else { &self.values[self.weights.index(index, 0)..][..self.x.k] }
    }

    /// The rows of `W` of this task by groups whose outputs are stored together.
    fn groups(&self) -> impl Iterator<Item = (usize, usize)> + use<T> {
        let (first, end) = (self.first, self.first + self.count);
        (first..end).step_by(OUTPUTS).map(move |first| (first, OUTPUTS.min(end - first)))
    }

    #[inline(always)]
    fn one<S: Simd>(&self, simd: S) {
        let x = self.x.run(0, 0, self.x.k);
        let whole = self.x.k - self.x.k % PARTIALS;
        for (first, count) in self.groups() {
            let mut sums = [0.0; OUTPUTS];
            for (i, sum) in sums.iter_mut().enumerate().take(count) {
                let w = self.row(first + i);
                let mut partials = [Partials::ZERO];
                // SAFETY: both slices have at least `whole` elements.
                unsafe { dot::fold::<_, _, 1, true>(simd, &mut partials, w.as_ptr(), [x.as_ptr()], whole / PARTIALS) };
                dot::fold_rest(&mut partials[0], &w[whole..], &x[whole..]);
                *sum = dot::tree(simd, &partials[0]);
            }
            // SAFETY: each task has columns of its own.
            unsafe { self.target.store(0, first, &mut sums[..count]) };
        }
    }

    #[inline(always)]
    fn several<S: Simd>(&self, simd: S) {
        let mut partials = [Partials::ZERO; MAX_ROWS];
        let mut sums = [[0.0; OUTPUTS]; MAX_ROWS];
        for (first, count) in self.groups() {
            for i in 0..count {
                self.row_of_several(simd, first + i, i, &mut partials, &mut sums);
            }
            for (row, sums) in sums.iter_mut().enumerate().take(self.target.rows()) {
                // SAFETY: each task has columns of its own.
                unsafe { self.target.store(row, first, &mut sums[..count]) };
            }
        }
    }

    /// One row of `W` with all rows of `X`; sum `i` of each is written.
    #[inline(always)]
    fn row_of_several<S: Simd>(&self, simd: S, row: usize, i: usize, partials: &mut [Partials; MAX_ROWS], sums: &mut [[f32; OUTPUTS]; MAX_ROWS]) {
        let (w, m) = (self.row(row), self.target.rows());
        let whole = w.len() - w.len() % PARTIALS;

        partials[..m].fill(Partials::ZERO);
        let mut wide = Wide([0.0; RUN]);
        for start in (0..whole).step_by(RUN) {
            let run = RUN.min(whole - start);
            for at in (0..run).step_by(S::LANES) {
                let source = w[start..start + run].as_ptr();
                // SAFETY: `run` is a multiple of 256 and so of the lanes; `w` has `run` elements from `start` on, as has `wide`.
                unsafe {
                    if (at * size_of::<T>()).is_multiple_of(LINE_BYTES) {
                        simd.prefetch_after(source.add(at));
                    }
                    simd.store(wide.0.as_mut_ptr().add(at), T::load(simd, source.add(at)));
                }
            }
            let mut rows = 0;
            while rows < m {
                rows += match m - rows {
                    4.. => self.fold_rows::<S, 4>(simd, rows, start, run, &wide, partials),
                    2.. => self.fold_rows::<S, 2>(simd, rows, start, run, &wide, partials),
                    _ => self.fold_rows::<S, 1>(simd, rows, start, run, &wide, partials),
                };
            }
        }
        for (row, (partials, sums)) in partials.iter_mut().zip(sums).enumerate().take(m) {
            dot::fold_rest(partials, &w[whole..], self.x.run(row, whole, self.x.k - whole));
            sums[i] = dot::tree(simd, partials);
        }
    }

    #[inline(always)]
    fn fold_rows<S: Simd, const ROWS: usize>(
        &self,
        simd: S,
        first: usize,
        start: usize,
        run: usize,
        wide: &Wide,
        partials: &mut [Partials; MAX_ROWS],
    ) -> usize {
        let x: [_; ROWS] = std::array::from_fn(|row| self.x.run(first + row, start, run).as_ptr());
        if let Some(partials) = partials[first..].first_chunk_mut() {
            // SAFETY: `wide` and the runs of `x` have `run` elements, a multiple of 256.
            unsafe { dot::fold::<_, _, ROWS, false>(simd, partials, wide.0.as_ptr(), x, run / PARTIALS) };
        }
        ROWS
    }
}

/// A widened run of a row of `W`.
#[repr(align(64))]
struct Wide([f32; RUN]);
