//! The canonical order for many rows side by side: row `c` is column `c` of a matrix whose lines lie in memory, so all of them are
//! folded a line at a time, in vectors across columns.

use std::ops::Range;

use elinvar_core::DType;

use super::layout::{GROUP, row_threads};
use crate::float::Float;

/// Columns folded at once: few enough that the lanes of a simdgroup stay in L2 and its slots in L1.
pub const TILE: usize = 512;

/// Lines taken at once: as many as a row of up to 32768 elements has for each accumulator.
const STEPS: usize = 4;

/// Temporary memory of [`fold_columns`], in floats, for `width` columns.
pub const fn columns_scratch(width: usize) -> usize {
    (1 + 32 + 8 + STEPS) * width
}

/// How columns are folded: the accumulators' first value, how an element of a column is taken into one, how two are combined.
///
/// `combine(a, identity)` must be `a` for every `a` that accumulators can hold: accumulators beyond the columns' end are left out.
#[derive(Clone, Copy)]
pub struct Fold<S, C> {
    /// The first value.
    pub identity: f32,
    /// `step(accumulator, element, column)`.
    pub step: S,
    /// `combine(a, b)`.
    pub combine: C,
}

/// Folds simdgroup `group` of as many columns as `out` has, each a row of `n` elements.
#[inline(always)]
fn fold_columns_group<'a, T: Float>(
    line: impl Fn(usize) -> &'a [T],
    n: usize,
    group: usize,
    fold: Fold<impl Fn(f32, f32, usize) -> f32 + Copy, impl Fn(f32, f32) -> f32 + Copy>,
    scratch: &mut [f32],
    out: &mut [f32],
) {
    let width = out.len();
    let (lanes, rest) = scratch.split_at_mut(32 * width);
    let (slots, wide) = rest.split_at_mut(8 * width);
    let used = n.saturating_sub(group * GROUP).div_ceil(8).min(32);
    for (index, lane) in lanes.chunks_exact_mut(width).take(used).enumerate() {
        let first = group * GROUP + 8 * index;
        for (slot, values) in slots.chunks_exact_mut(width).enumerate() {
            fold_slot(&line, first + slot, n, fold, wide, values);
        }
        combine_slots(slots, fold.combine, lane);
    }
    let mut distance = 16;
    while distance > 0 {
        let (low, high) = lanes.split_at_mut(distance * width);
        let count = used.min(2 * distance).saturating_sub(distance) * width;
        for (a, b) in low[..count].iter_mut().zip(high) {
            *a = (fold.combine)(*a, *b);
        }
        distance /= 2;
    }
    if used == 0 { out.fill(fold.identity) } else { out.copy_from_slice(&lanes[..width]) }
}

/// Folds the simdgroups `groups`, at least one, of as many columns as `out` has, each a row of `n` elements: `line(k)` is element `k` of all of them.
/// `scratch` has [`columns_scratch`] floats.
#[inline(always)]
pub fn fold_columns<'a, T: Float>(
    line: impl Fn(usize) -> &'a [T],
    n: usize,
    groups: Range<usize>,
    fold: Fold<impl Fn(f32, f32, usize) -> f32 + Copy, impl Fn(f32, f32) -> f32 + Copy>,
    scratch: &mut [f32],
    out: &mut [f32],
) {
    let (part, scratch) = scratch.split_at_mut(out.len());
    let first = groups.start;
    for group in groups {
        fold_columns_group(&line, n, group, fold, scratch, part);
        if group == first {
            out.copy_from_slice(part);
        } else {
            out.iter_mut().zip(&*part).for_each(|(out, part)| *out = (fold.combine)(*out, *part));
        }
    }
}

/// Accumulator `j` of every column.
#[inline(always)]
fn fold_slot<'a, T: Float>(
    line: impl Fn(usize) -> &'a [T],
    j: usize,
    n: usize,
    fold: Fold<impl Fn(f32, f32, usize) -> f32 + Copy, impl Fn(f32, f32) -> f32 + Copy>,
    wide: &mut [f32],
    values: &mut [f32],
) {
    let (width, stride) = (values.len(), 8 * row_threads(n));
    let mut first = true;
    let mut k = j;
    while k + (STEPS - 1) * stride < n {
        let lines: [&[T]; STEPS] = std::array::from_fn(|i| &line(k + i * stride)[..width]);
        if T::DTYPE == DType::F16 {
            // Widened by the instruction for it, which loops over single elements do not use.
            for (wide, line) in wide.chunks_exact_mut(width).zip(lines) {
                T::widen_into(line, wide);
            }
            fold_lines(std::array::from_fn::<_, STEPS, _>(|i| &wide[i * width..][..width]), fold, first, values);
        } else {
            fold_lines(lines, fold, first, values);
        }
        first = false;
        k += STEPS * stride;
    }
    while k < n {
        fold_lines([&line(k)[..width]], fold, first, values);
        first = false;
        k += stride;
    }
    if first {
        values.fill(fold.identity);
    }
}

/// Takes lines into accumulators, which begin with the identity if these are the first.
#[inline(always)]
fn fold_lines<T: Float, const N: usize>(
    lines: [&[T]; N],
    fold: Fold<impl Fn(f32, f32, usize) -> f32 + Copy, impl Fn(f32, f32) -> f32 + Copy>,
    first: bool,
    values: &mut [f32],
) {
    let lines = lines.map(|line| &line[..values.len()]);
    let take = |start: f32, i: usize| lines.iter().fold(start, |a, line| (fold.step)(a, line[i].to_f32(), i));
    if first {
        for (i, value) in values.iter_mut().enumerate() {
            *value = take(fold.identity, i);
        }
    } else {
        for (i, value) in values.iter_mut().enumerate() {
            *value = take(*value, i);
        }
    }
}

/// `lane = ((s0 + s1) + (s2 + s3)) + ((s4 + s5) + (s6 + s7))`, column by column.
#[inline(always)]
fn combine_slots(slots: &[f32], op: impl Fn(f32, f32) -> f32 + Copy, lane: &mut [f32]) {
    let width = lane.len();
    let s: [&[f32]; 8] = std::array::from_fn(|i| &slots[i * width..][..width]);
    for (i, lane) in lane.iter_mut().enumerate() {
        let (low, high) = (op(op(s[0][i], s[1][i]), op(s[2][i], s[3][i])), op(op(s[4][i], s[5][i]), op(s[6][i], s[7][i])));
        *lane = op(low, high);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::{add, fold, row_groups};

    #[test]
    fn columns_have_the_bits_of_rows() {
        for (n, width) in [(1, 3), (5, 1), (9, 17), (40, 33), (255, 5), (257, 20), (1025, 40), (2500, 7), (9000, 3)] {
            let data: Vec<f32> = (0..n * width).map(|i| ((i * 7919 % 1013) as f32 - 500.0) * 1.37e-3).collect();
            let (mut scratch, mut total) = (vec![0.0; columns_scratch(width)], vec![0.0; width]);
            let line = |k: usize| &data[k * width..][..width];
            let sum = Fold { identity: 0.0, step: |a, x, _| a + x, combine: add };
            fold_columns(line, n, 0..row_groups(n), sum, &mut scratch, &mut total);
            for (c, total) in total.iter().enumerate() {
                let row: Vec<f32> = data.iter().skip(c).step_by(width).copied().collect();
                assert_eq!(total.to_bits(), fold(&row[..], 0.0, add, add).to_bits(), "n = {n}, column {c}");
            }
        }
    }
}
