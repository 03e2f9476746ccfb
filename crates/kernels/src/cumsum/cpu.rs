//! The CPU kernel: rows in parallel; rows along other axes than the last as tiles of neighbours, in vectors across them.

use elinvar_core::{DType, HostArguments, HostKernel, Result};

use super::{Params, operands::AT};
use crate::{
    elementwise::{dispatch::for_integers, number::Number},
    float::{Float, with_float},
    parallel::{Shared, for_each},
    rows::{for_each_block, for_each_tile, in_f32},
    signature::no_kernel,
    simd,
};

/// Lanes of a simdgroup: elements of a segment, and segments of a block.
const LANES: usize = 32;

pub(super) fn kernel(dtype: DType) -> Result<HostKernel> {
    if dtype.is_float() {
        return Ok(with_float!(dtype, T => run::<T>));
    }
    let found = for_integers!(dtype, T => run_integers::<T> as HostKernel);
    found.ok_or_else(|| no_kernel(dtype))
}

fn run<T: Float>(arguments: &mut HostArguments<'_>) -> Result<()> {
    let params: Params = arguments.params()?;
    let (x, y) = (arguments.input::<T>(AT.x)?, arguments.output::<T>(AT.y)?);
    let n = params.rows.length as usize;
    if params.rows.inner > 1 {
        for_each_tile(params.rows, x, y, |width| (LANES + 1) * width, |lines, width, rest| scan_tile(lines, width, rest, params));
    } else {
        for_each_block(n, x, y, |_, x, y| in_f32(n, x, y, |_, x, y, _| scan_rows(x, y, params)));
    }
    Ok(())
}

/// Every row by itself: integers may be added in any order.
fn run_integers<T: Number>(arguments: &mut HostArguments<'_>) -> Result<()> {
    let Params { rows, exclusive, reverse, .. } = arguments.params()?;
    let (x, y) = (arguments.input::<T>(AT.x)?, Shared::new(arguments.output::<T>(AT.y)?));
    let (length, inner) = (rows.length as usize, rows.inner as usize);
    let work = |row: usize| {
        let start = row / inner * length * inner + row % inner;
        let mut sum = T::zeroed();
        for k in 0..length {
            let at = start + inner * if reverse == 0 { k } else { length - 1 - k };
            let before = sum;
            sum = T::add(sum, x[at]);
            // SAFETY: an element of this row, which belongs to this task.
            unsafe { y.write(at, if exclusive == 0 { sum } else { before }) };
        }
    };
    for_each(rows.count(), length, work);
    Ok(())
}

simd! {
    fn scan_rows(x: &[f32], y: &mut [f32], params: Params) {
        let n = params.rows.length as usize;
        for (x, y) in x.chunks_exact(n).zip(y.chunks_exact_mut(n)) {
            y.copy_from_slice(x);
            if params.reverse != 0 {
                y.reverse();
            }
            scan(y);
            if params.exclusive != 0 {
                y.copy_within(..n - 1, 1);
                y[0] = 0.0;
            }
            if params.reverse != 0 {
                y.reverse();
            }
        }
    }
}

#[inline(always)]
fn scan(row: &mut [f32]) {
    let mut carry = 0.0;
    for block in row.chunks_mut(LANES * LANES) {
        let mut totals = [0.0; LANES];
        for (total, segment) in totals.iter_mut().zip(block.chunks_mut(LANES)) {
            let mut lanes = [0.0; LANES];
            lanes[..segment.len()].copy_from_slice(segment);
            scan_lanes(&mut lanes);
            segment.copy_from_slice(&lanes[..segment.len()]);
            *total = lanes[LANES - 1];
        }
        scan_lanes(&mut totals);
        let (first, others) = block.split_at_mut(LANES.min(block.len()));
        first.iter_mut().for_each(|sum| *sum += carry);
        for (segment, before) in others.chunks_mut(LANES).zip(totals) {
            segment.iter_mut().for_each(|sum| *sum = carry + (before + *sum));
        }
        carry += totals[LANES - 1];
    }
}

/// Sums up to each lane, by doubling distances.
#[inline(always)]
fn scan_lanes(lanes: &mut [f32; LANES]) {
    for distance in [1, 2, 4, 8, 16] {
        let before = *lanes;
        for (sum, earlier) in lanes[distance..].iter_mut().zip(before) {
            *sum += earlier;
        }
    }
}

simd! {
    /// `lines` holds element 0 of `width` rows, then their element 1, …
    fn scan_tile(lines: &mut [f32], width: usize, rest: &mut [f32], params: Params) {
        if params.reverse != 0 {
            reverse(lines, width);
        }
        let (carry, totals) = rest.split_at_mut(width);
        carry.fill(0.0);
        for block in lines.chunks_mut(LANES * LANES * width) {
            for (segment, total) in block.chunks_mut(LANES * width).zip(totals.chunks_exact_mut(width)) {
                scan_lines(segment, width);
                total.copy_from_slice(&segment[segment.len() - width..]);
            }
            scan_lines(totals, width);
            for (g, segment) in block.chunks_mut(LANES * width).enumerate() {
                for line in segment.chunks_exact_mut(width) {
                    if g > 0 {
                        add_to(line, &totals[(g - 1) * width..][..width]);
                    }
                    add_to(line, carry);
                }
            }
            add_to(carry, &totals[(LANES - 1) * width..]);
        }
        if params.exclusive != 0 {
            lines.copy_within(..lines.len() - width, width);
            lines[..width].fill(0.0);
        }
        if params.reverse != 0 {
            reverse(lines, width);
        }
    }
}

/// [`scan_lanes`] with a line for each lane.
#[inline(always)]
fn scan_lines(lines: &mut [f32], width: usize) {
    for distance in [1, 2, 4, 8, 16] {
        for lane in (distance..lines.len() / width).rev() {
            let (before, line) = lines.split_at_mut(lane * width);
            add_to(&mut line[..width], &before[(lane - distance) * width..]);
        }
    }
}

#[inline(always)]
fn add_to(sums: &mut [f32], addends: &[f32]) {
    for (sum, addend) in sums.iter_mut().zip(addends) {
        *sum += addend;
    }
}

/// Lines in the opposite order.
fn reverse(lines: &mut [f32], width: usize) {
    let count = lines.len() / width;
    for k in 0..count / 2 {
        let (low, high) = lines.split_at_mut((count - 1 - k) * width);
        low[k * width..][..width].swap_with_slice(&mut high[..width]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Element by element, as the documentation says it.
    fn by_the_book(x: &[f32]) -> Vec<f32> {
        let scan = |lanes: Vec<f32>| {
            [1, 2, 4, 8, 16].iter().fold(lanes, |t, &d| (0..32).map(|l| if l >= d { t[l - d] + t[l] } else { t[l] }).collect::<Vec<f32>>())
        };
        let mut carry = 0.0;
        let mut sums = Vec::new();
        for block in x.chunks(1024) {
            let at = |k: usize| block.get(k).copied().unwrap_or(0.0);
            let t: Vec<Vec<f32>> = (0..32).map(|g| scan((0..32).map(|l| at(32 * g + l)).collect())).collect();
            let u = scan(t.iter().map(|t| t[31]).collect());
            sums.extend((0..block.len()).map(|k| if k < 32 { carry + t[0][k] } else { carry + (u[k / 32 - 1] + t[k / 32][k % 32]) }));
            carry += u[31];
        }
        sums
    }

    #[test]
    fn rows_and_tiles_follow_the_documented_order() {
        for n in [1, 2, 31, 32, 33, 100, 1024, 1025, 3000] {
            let x: Vec<f32> = (0..n).map(|i| ((i * 7919 % 1013) as f32 - 500.0) * 1.37e-3).collect();
            let bits = |sums: &[f32]| sums.iter().map(|s| s.to_bits()).collect::<Vec<_>>();
            let expected = bits(&by_the_book(&x));
            let mut row = x.clone();
            scan(&mut row);
            assert_eq!(bits(&row), expected, "n = {n}");
            let mut lines: Vec<f32> = x.iter().flat_map(|&x| [x, 2.0 * x, x]).collect();
            let params =
                Params { rows: crate::rows::Rows { outer: 1, length: n as u64, inner: 3 }, exclusive: 0, reverse: 0, simdgroups: 1, reserved: 0 };
            scan_tile(&mut lines, 3, &mut [0.0; 33 * 3], params);
            assert_eq!(bits(&lines.iter().skip(2).step_by(3).copied().collect::<Vec<_>>()), expected, "tile, n = {n}");
        }
    }
}
