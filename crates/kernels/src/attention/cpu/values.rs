//! Weighted sums of values: groups of 32 keys, each one chain of fma per output element, added in index order. Several rows share the loads.

use super::rows::{LANES, Rows, Span, padded, widen};
use crate::matmul::cpu::{
    level::Level,
    operand::{Load, Values, with_values},
    simd::{Simd, Work},
};

/// Keys of a group.
pub(crate) const GROUP: usize = 32;

/// Rows that share the loads of a value.
const ROWS: usize = 4;

/// Vectors of a value that are summed at once.
const COLUMNS: usize = 4;

/// Adds the sum of one group to each row of `out`, whose rows are as wide as padded values. The weights of row `r` are
/// `weights[r · stride..]`, one for each key of `span`. `wide` is memory to use.
pub(crate) fn add_group(level: Level, values: Values<'_>, span: Span, weights: &[f32], stride: usize, wide: &mut Vec<f32>, out: &mut [f32]) {
    let width = padded(span.width);
    if width == 0 {
        return;
    }
    let in_place = matches!(values, Values::F32(_)) || out.len() <= ROWS * width;
    if width == span.width && in_place {
        return with_values!(values, |values| level.run(AddGroup { values: Rows { values, span }, weights, stride, out }));
    }
    wide.resize(GROUP * width, 0.0);
    widen(level, values, span, 0.0, wide);
    let values = Rows { values: &wide[..], span: Span { start: 0, stride: width as i64, width, count: span.count } };
    level.run(AddGroup { values, weights, stride, out });
}

struct AddGroup<'a, T> {
    values: Rows<'a, T>,
    weights: &'a [f32],
    stride: usize,
    out: &'a mut [f32],
}

impl<T: Load> Work for AddGroup<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        let rows = self.out.len() / self.values.span.width;
        let mut row = 0;
        while row < rows {
            let count = if rows - row >= ROWS && S::LANES == LANES { ROWS } else { 2.min(rows - row) };
            match self.zeros(row, count) {
                0 if count == ROWS => self.columns::<S, ROWS, true>(simd, row),
                0 if count == 2 => self.columns::<S, 2, true>(simd, row),
                0 => self.columns::<S, 1, true>(simd, row),
                zeros if zeros == count * self.values.span.count => {}
                _ => {
                    for row in row..row + count {
                        self.columns::<S, 1, false>(simd, row);
                    }
                }
            }
            row += count;
        }
    }
}

impl<T: Load> AddGroup<'_, T> {
    /// How many weights of `count` rows are zero.
    #[inline(always)]
    fn zeros(&self, row: usize, count: usize) -> usize {
        let mut zeros = 0;
        for row in row..row + count {
            for weight in &self.weights[row * self.stride..][..self.values.span.count] {
                zeros += u32::from(*weight == 0.0);
            }
        }
        zeros as usize
    }

    #[inline(always)]
    fn columns<S: Simd, const R: usize, const DENSE: bool>(&mut self, simd: S, row: usize) {
        let (width, mut column) = (self.values.span.width, 0);
        while column < width {
            if width - column >= COLUMNS * S::LANES {
                self.tile::<S, R, COLUMNS, DENSE>(simd, row, column);
                column += COLUMNS * S::LANES;
            } else {
                self.tile::<S, R, 1, DENSE>(simd, row, column);
                column += S::LANES;
            }
        }
    }

    /// `R` rows by `C` vectors. If not `DENSE`, some weights are zero, and their values are passed over.
    #[inline(always)]
    fn tile<S: Simd, const R: usize, const C: usize, const DENSE: bool>(&mut self, simd: S, row: usize, column: usize) {
        let (values, stride) = (&self.values, self.stride);
        let weights = &self.weights[row * stride..][..(R - 1) * stride + values.span.count];
        let out = &mut self.out[row * values.span.width + column..][..(R - 1) * values.span.width + C * S::LANES];
        assert!(column + C * S::LANES <= values.span.width);
        let mut sums = [[simd.splat(0.0); C]; R];
        for key in 0..values.span.count {
            let start = values.start(key);
            let mut value = [simd.splat(0.0); C];
            for (c, value) in value.iter_mut().enumerate() {
                // SAFETY: asserted above.
                *value = unsafe { T::load(simd, values.announce(simd, start, column + c * S::LANES)) };
            }
            for (r, sums) in sums.iter_mut().enumerate() {
                // SAFETY: `weights` was sliced above.
                let weight = unsafe { *weights.as_ptr().add(r * stride + key) };
                if DENSE || weight != 0.0 {
                    for (sum, value) in sums.iter_mut().zip(value) {
                        *sum = simd.fma(simd.splat(weight), value, *sum);
                    }
                }
            }
        }
        for (r, sums) in sums.iter().enumerate() {
            for (c, sum) in sums.iter().enumerate() {
                // SAFETY: `out` was sliced above.
                unsafe {
                    let at = out.as_mut_ptr().add(r * values.span.width + c * S::LANES);
                    simd.store(at, simd.add(simd.load(at), *sum));
                }
            }
        }
    }
}
