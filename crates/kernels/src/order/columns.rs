//! The canonical order for many rows side by side: row `c` is column `c` of a matrix whose lines lie in memory, so all of them are
//! folded a line at a time, in vectors across columns.

use super::{GROUP, row_threads};

/// Columns folded at once: few enough that the lanes of a simdgroup stay in L2 and its slots in L1.
pub const TILE: usize = 512;

/// Temporary memory of [`fold_columns`], in floats, for `width` columns.
pub const fn columns_scratch(width: usize) -> usize {
    (32 + 8) * width
}

/// Folds simdgroup `group` of `width` columns, each a row of `n` elements, into `out`: `line(k)` is element `k` of all of them, and
/// `step` also gets the column. `scratch` has [`columns_scratch`] floats.
///
/// `op(a, identity)` must be `a` for every `a` that accumulators can hold: accumulators beyond the row's end are left out.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
pub fn fold_columns_group<'a, T: Copy + 'a>(
    line: impl Fn(usize) -> &'a [T],
    n: usize,
    group: usize,
    identity: f32,
    step: impl Fn(f32, T, usize) -> f32 + Copy,
    op: impl Fn(f32, f32) -> f32 + Copy,
    scratch: &mut [f32],
    out: &mut [f32],
) {
    let width = out.len();
    let stride = 8 * row_threads(n);
    let (lanes, slots) = scratch[..columns_scratch(width)].split_at_mut(32 * width);
    let used = n.saturating_sub(group * GROUP).div_ceil(8).min(32);
    for (index, lane) in lanes.chunks_exact_mut(width).take(used).enumerate() {
        let first = group * GROUP + 8 * index;
        for (slot, values) in slots.chunks_exact_mut(width).enumerate() {
            fold_slot(&line, first + slot, n, stride, identity, step, values);
        }
        combine_slots(slots, op, lane);
    }
    let mut distance = 16;
    while distance > 0 {
        let (low, high) = lanes.split_at_mut(distance * width);
        let count = used.min(2 * distance).saturating_sub(distance) * width;
        for (a, b) in low[..count].iter_mut().zip(high) {
            *a = op(*a, *b);
        }
        distance /= 2;
    }
    if used == 0 { out.fill(identity) } else { out.copy_from_slice(&lanes[..width]) }
}

/// Accumulator `j` of every column.
#[inline(always)]
fn fold_slot<'a, T: Copy + 'a>(
    line: impl Fn(usize) -> &'a [T],
    j: usize,
    n: usize,
    stride: usize,
    identity: f32,
    step: impl Fn(f32, T, usize) -> f32 + Copy,
    values: &mut [f32],
) {
    let width = values.len();
    values.fill(identity);
    let mut k = j;
    while k + 3 * stride < n {
        let [a, b, c, d] = [0, 1, 2, 3].map(|i| &line(k + i * stride)[..width]);
        for (i, value) in values.iter_mut().enumerate() {
            *value = step(step(step(step(*value, a[i], i), b[i], i), c[i], i), d[i], i);
        }
        k += 4 * stride;
    }
    while k < n {
        for (i, (value, &x)) in values.iter_mut().zip(line(k)).enumerate() {
            *value = step(*value, x, i);
        }
        k += stride;
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
            let (mut scratch, mut part, mut total) = (vec![0.0; columns_scratch(width)], vec![0.0; width], vec![0.0; width]);
            for group in 0..row_groups(n) {
                let line = |k: usize| &data[k * width..][..width];
                fold_columns_group(line, n, group, 0.0, |a, x, _| a + x, add, &mut scratch, &mut part);
                for (total, part) in total.iter_mut().zip(&part) {
                    *total = if group == 0 { *part } else { *total + part };
                }
            }
            for (c, total) in total.iter().enumerate() {
                let row: Vec<f32> = data.iter().skip(c).step_by(width).copied().collect();
                assert_eq!(total.to_bits(), fold(&row, 0.0, add, add).to_bits(), "n = {n}, column {c}");
            }
        }
    }
}
