//! `Y = X Wᵀ` for a few rows of `X` and row-major `W`: the linear layer while it decodes.
//!
//! Reads `W` once, fetching ahead; everything else stays in the caches. Each output element is the strict dot product, whatever the number of rows or threads.

use std::ops::Range;

use super::{
    dot::{self, PARTIALS, Partials},
    level::Level,
    operand::{Load, Matrix, Target, with_values},
    plan::Summation,
    scratch::Scratch,
    several::{self, Halves, LANES, OUTPUTS},
    simd::{Simd, Work},
};
use crate::{float::Float, parallel::spread_weights, simd};

/// Rows of `X` at most; from here on packing `W` for a register tile pays, but for strict sums of rows as short as [`SHORT`]: there each run of a tile has few
/// elements.
pub(crate) const MAX_ROWS: usize = 8;
const MAX_SHORT_ROWS: usize = 32;
const SHORT: usize = 4 * PARTIALS;

/// Rows of `X` from which transposing `W` pays; less where the sum over lanes is most of the work.
const TRANSPOSING: usize = 4;

/// Elements of `W` that are transposed at a time for several rows of `X`.
const TRANSPOSED: usize = 1 << 14;

/// Elements of a row up to which a register tile is sooner done, unless the sums are strict.
const SHORTEST: usize = 64;

/// Whether [`linear`] is the way to sum a product of `m` rows of `k` elements.
pub(crate) fn are_few(summation: Summation, m: usize, k: usize) -> bool {
    let most = match summation {
        Summation::Strict if k <= SHORT => MAX_SHORT_ROWS,
        Summation::Fast if k <= SHORTEST => 0,
        Summation::Strict | Summation::Fast => MAX_ROWS,
    };
    m <= most
}

/// Computes `target = x * weights^T` strictly, for `x` `[m, k]` and `weights` `[n, k]` with contiguous rows.
pub(crate) fn linear(level: Level, x: Matrix<'_>, weights: Matrix<'_>, target: &Target<'_>) {
    let k = x.columns();
    let mut wide = Scratch::new(x.rows() * k);
    for row in 0..x.rows() {
        widen(x, row, &mut wide[row * k..][..k]);
    }
    if x.rows() < if k <= PARTIALS { 2 } else { TRANSPOSING } {
        return with_values!(weights.values(), |values| tasks(level, Rows { wide: &wide, stride: k, k, transposed: false }, values, weights, target));
    }
    let stride = k.next_multiple_of(PARTIALS);
    // Of rows shorter than a block, narrower vectors transpose and multiply less that is not there.
    let level = if k < PARTIALS { level.narrower() } else { level };
    let mut transposed = Scratch::new(x.rows() * stride);
    level.run(Transpose { rows: &wide, k, to: &mut transposed });
    with_values!(weights.values(), |values| tasks(level, Rows { wide: &transposed, stride, k, transposed: true }, values, weights, target));
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
    spread_weights([n, x.k * size_of::<T>(), OUTPUTS], target.rows() * n * x.k, &task);
}

/// `X`, widened, and perhaps filled up and transposed.
#[derive(Clone, Copy)]
struct Rows<'a> {
    wide: &'a [f32],
    stride: usize,
    k: usize,
    transposed: bool,
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
        if self.x.transposed { self.several(simd) } else { self.one_by_one(simd) }
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
    fn one_by_one<S: Simd>(&self, simd: S) {
        let whole = self.x.k - self.x.k % PARTIALS;
        for (first, count) in self.groups() {
            let mut sums = [[0.0; OUTPUTS]; TRANSPOSING];
            for i in 0..count {
                let w = self.row(first + i);
                for row in 0..self.target.rows() {
                    let (x, mut partials) = (self.x.run(row, 0, self.x.k), Partials::ZERO);
                    // SAFETY: both slices have at least `whole` elements.
                    unsafe { dot::fold(simd, &mut partials, w.as_ptr(), x.as_ptr(), whole / PARTIALS) };
                    dot::fold_rest(&mut partials, &w[whole..], &x[whole..]);
                    sums[row][i] = dot::tree(simd, &partials);
                }
            }
            for (row, sums) in sums.iter_mut().enumerate().take(self.target.rows()) {
                // SAFETY: each task has columns of its own.
                unsafe { self.target.store(row, first, &mut sums[..count]) };
            }
        }
    }

    #[inline(always)]
    fn several<S: Simd>(&self, simd: S) {
        let (m, padded) = (self.target.rows(), self.x.stride);
        // As many rows of `W` as stay in a cache.
        let together = (TRANSPOSED / padded.max(1)).clamp(1, OUTPUTS);
        let mut weights = Scratch::new(together * padded);
        let mut halves: Vec<[Halves; OUTPUTS]> = vec![[[0.0; 2 * LANES]; OUTPUTS]; m];
        for (first, count) in self.groups() {
            for start in (0..count).step_by(together) {
                let taken = start..count.min(start + together);
                for (i, row) in taken.clone().enumerate() {
                    several::transpose(simd, self.row(first + row), 0.0, &mut weights[i * padded..][..padded]);
                }
                let mut row = 0;
                while row < m {
                    row += match m - row {
                        4.. => self.fold_rows::<S, 4>(simd, row, &weights, taken.clone(), &mut halves),
                        2.. => self.fold_rows::<S, 2>(simd, row, &weights, taken.clone(), &mut halves),
                        _ => self.fold_rows::<S, 1>(simd, row, &weights, taken.clone(), &mut halves),
                    };
                }
            }
            for (row, halves) in halves.iter().enumerate() {
                let mut sums = several::sum_lanes(simd, halves);
                // SAFETY: each task has columns of its own.
                unsafe { self.target.store(row, first, &mut sums[..count]) };
            }
        }
    }

    /// Some rows of `X`, from `first` on, with the rows of `W` that stand in `weights`.
    #[inline(always)]
    fn fold_rows<S: Simd, const COUNT: usize>(
        &self,
        simd: S,
        first: usize,
        weights: &[f32],
        outputs: Range<usize>,
        halves: &mut [[Halves; OUTPUTS]],
    ) -> usize {
        let part = self.x.stride / several::parts::<S>();
        if let Some(halves) = halves[first..].first_chunk_mut() {
            // A part of the rows of `X` stays in the first cache for all outputs.
            for number in 0..several::filled_parts::<S>(self.x.k) {
                let x: [_; COUNT] = std::array::from_fn(|row| self.x.run(first + row, number * part, part).as_ptr());
                let mut taken = 0;
                while taken < outputs.len() {
                    let at = [taken * self.x.stride + number * part, outputs.start + taken];
                    taken += match several::shared::<S>().min(outputs.len() - taken) {
                        2 => self.fold_outputs::<S, COUNT, 2>(simd, number, weights, x, at, halves),
                        _ => self.fold_outputs::<S, COUNT, 1>(simd, number, weights, x, at, halves),
                    };
                }
            }
        }
        COUNT
    }

    /// One part of these rows with some rows of `W`, the first of which stands at `start`, for outputs from `output` on.
    #[inline(always)]
    fn fold_outputs<S: Simd, const COUNT: usize, const SHARED: usize>(
        &self,
        simd: S,
        number: usize,
        weights: &[f32],
        x: [*const f32; COUNT],
        [start, output]: [usize; 2],
        halves: &mut [[Halves; OUTPUTS]; COUNT],
    ) -> usize {
        let (padded, part) = (self.x.stride, self.x.stride / several::parts::<S>());
        let weights: [_; SHARED] = std::array::from_fn(|i| weights[start + i * padded..][..part].as_ptr());
        let to = halves.each_mut().map(|halves| std::array::from_fn(|i| halves[output + i].as_mut_ptr()));
        // SAFETY: these are parts of rows with so many blocks, and each of `to` is a whole one.
        unsafe { several::fold::<S, COUNT, SHARED>(simd, number, weights, x, padded / PARTIALS, to) };
        SHARED
    }
}

/// Transposes the rows of `X`, which are widened.
struct Transpose<'a> {
    rows: &'a [f32],
    k: usize,
    to: &'a mut [f32],
}

impl Work for Transpose<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let padded = self.k.next_multiple_of(PARTIALS);
        for (row, to) in self.rows.chunks_exact(self.k.max(1)).zip(self.to.chunks_exact_mut(padded.max(1))) {
            several::transpose(simd, row, -0.0, to);
        }
    }
}
