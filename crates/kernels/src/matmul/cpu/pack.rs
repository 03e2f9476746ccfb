//! Packing: panels of `width` rows of a matrix, widened to f32 and laid out along k in the order of a [`Plan`].
//!
//! Panel element `(k, r)` is at `position(k) * width + r`, so a register tile reads its operands front to back. Rows beyond the matrix repeat
//! the last one; their sums are never stored.

use super::{
    dot::LINE_BYTES,
    level::Level,
    operand::{Load, Matrix, with_values},
    plan::Plan,
    simd::{Simd, Work},
};
use crate::simd::prefetch;

/// Elements of k ahead of which strided lines are fetched.
const AHEAD: usize = 16;

/// Packs the rows `first..first + count` of `matrix` (columns are k) into `panel`, which has `width * k` elements.
pub(crate) fn pack(level: Level, plan: &Plan, matrix: Matrix<'_>, [first, count]: [usize; 2], width: usize, panel: &mut [f32]) {
    assert!(count >= 1 && first + count <= matrix.rows() && panel.len() >= width * plan.k() && matrix.columns() == plan.k());
    with_values!(matrix.values(), |values| level.run(Pack { plan, matrix, values, first, count, width, panel }));
}

struct Pack<'a, T> {
    plan: &'a Plan,
    matrix: Matrix<'a>,
    values: &'a [T],
    first: usize,
    count: usize,
    width: usize,
    panel: &'a mut [f32],
}

impl<T: Load> Work for Pack<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        let wide = self.width.is_multiple_of(S::LANES);
        if wide && self.matrix.has_contiguous_rows() {
            self.transpose(simd);
        } else if wide && self.matrix.has_contiguous_columns() {
            self.copy(simd);
        } else {
            (0..self.plan.k()).for_each(|k| self.gather(k, 0..self.width));
        }
    }
}

impl<T: Load> Pack<'_, T> {
    /// Index of element `(row, k)`, row clamped to those there are.
    #[inline(always)]
    fn index(&self, row: usize, k: usize) -> usize {
        self.matrix.index(self.first + row.min(self.count - 1), k)
    }

    #[inline(always)]
    fn gather(&mut self, k: usize, rows: std::ops::Range<usize>) {
        let target = self.plan.position(k) * self.width;
        for row in rows {
            self.panel[target + row] = self.values[self.index(row, k)].to_f32();
        }
    }

    /// Rows along k are contiguous: squares of `LANES` rows and `LANES` k are transposed in registers.
    #[inline(always)]
    fn transpose<S: Simd>(&mut self, simd: S) {
        let whole = self.plan.k() - self.plan.k() % S::LANES;
        for row in (0..self.width).step_by(S::LANES) {
            let mut sources = [0; 16];
            for (i, source) in sources.iter_mut().enumerate() {
                *source = self.index(row + i, 0);
            }
            for k in (0..whole).step_by(S::LANES) {
                let mut square = [simd.splat(0.0); 16];
                for i in 0..S::LANES {
                    // SAFETY: `k + LANES` elements of this row are in the matrix, whose elements are in bounds.
                    square[i] = unsafe { T::load(simd, self.values.as_ptr().add(sources[i] + k)) };
                }
                simd.transpose(&mut square[..S::LANES]);
                for i in 0..S::LANES {
                    let target = self.plan.position(k + i) * self.width + row;
                    // SAFETY: positions are below k and `row + LANES <= width`; the panel has `width * k` elements.
                    unsafe { simd.store(self.panel.as_mut_ptr().add(target), square[i]) };
                }
            }
        }
        (whole..self.plan.k()).for_each(|k| self.gather(k, 0..self.width));
    }

    /// Columns of rows are contiguous: vectors are widened and moved.
    #[inline(always)]
    fn copy<S: Simd>(&mut self, simd: S) {
        let inside = self.width.min(self.matrix.rows() - self.first);
        let whole = inside - inside % S::LANES;
        for k in 0..self.plan.k() {
            let (source, target) = (self.index(0, k), self.plan.position(k) * self.width);
            // Each k is on a page of its own or nearly so, where the processor does not look ahead.
            let ahead = self.values.as_ptr().wrapping_add(self.index(0, k + AHEAD));
            for line in (0..inside).step_by(LINE_BYTES / size_of::<T>()) {
                prefetch(ahead.wrapping_add(line));
            }
            for row in (0..whole).step_by(S::LANES) {
                // SAFETY: `row + LANES` rows of this column are in the matrix and in the panel.
                unsafe { simd.store(self.panel.as_mut_ptr().add(target + row), T::load(simd, self.values.as_ptr().add(source + row))) };
            }
            self.gather(k, whole..self.width);
        }
    }
}
