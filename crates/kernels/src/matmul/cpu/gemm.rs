//! `C = A B` of any size: both operands are packed into panels, then every register tile of C is summed over the whole of k at once.
//!
//! Packing reads each operand once; tiles read the panels from the caches. A column block of B and a row block of A are packed at a time, so
//! the workspace is bounded. An element's sum depends on its row, its column and k alone.

use rayon::prelude::*;

use super::{
    operand::{Matrix, Target},
    pack::pack,
    plan::{Plan, Summation},
    scratch::Scratch,
    simd::Level,
    tile::{self, Shape, Stack},
};

/// Packed elements of one operand at most (beyond, k alone decides).
const BLOCK: usize = 1 << 22;

/// Multiplications below which a second thread costs more than it gives.
const SERIAL: usize = 1 << 17;

/// Packed elements of the left operand that a task keeps in its cache.
const CACHE: usize = 1 << 18;

/// Tasks for each thread: few enough to be cheap, enough to balance.
const TASKS: usize = 4;

/// Computes `target = a * b^T`: `a` is `[m, k]`, `b` is `[n, k]`, `target` `[m, n]`.
pub(crate) fn gemm(level: Level, summation: Summation, a: Matrix<'_>, b: Matrix<'_>, target: &Target<'_>) {
    let plan = Plan::new(summation, a.columns());
    let shape = Shape::of(level);
    let block = |width: usize| (BLOCK / plan.k().max(1)).max(8 * width).next_multiple_of(width);
    let (rows, columns) = (block(shape.rows), block(shape.right));
    for column in (0..b.rows()).step_by(columns) {
        let count = columns.min(b.rows() - column);
        let right = Panels::pack(level, &plan, b, [column, count], [shape.right, shape.right]);
        for row in (0..a.rows()).step_by(rows) {
            let left = Panels::pack(level, &plan, a, [row, rows.min(a.rows() - row)], [shape.rows, shape.left]);
            multiply(level, &plan, &left, &right, target);
        }
    }
}

/// Rows of a matrix, packed.
struct Panels {
    first: usize,
    count: usize,
    rows: usize,
    length: usize,
    data: Scratch,
}

impl Panels {
    /// Packs `count` rows from `first` on, `rows` a panel, stored `width` wide.
    fn pack(level: Level, plan: &Plan, matrix: Matrix<'_>, [first, count]: [usize; 2], [rows, width]: [usize; 2]) -> Self {
        let length = width * plan.k();
        let mut data = Scratch::new(count.div_ceil(rows) * length);
        let one = |(i, panel): (usize, &mut [f32])| pack(level, plan, matrix, [first + i * rows, rows.min(count - i * rows)], width, panel);
        if length > 0 {
            if count * plan.k() <= SERIAL {
                data.chunks_mut(length).enumerate().for_each(one);
            } else {
                data.par_chunks_mut(length).enumerate().for_each(one);
            }
        }
        Self { first, count, rows, length, data }
    }

    fn panels(&self) -> usize {
        self.count.div_ceil(self.rows)
    }

    fn panel(&self, index: usize) -> &[f32] {
        &self.data[index * self.length..][..self.length]
    }
}

/// All tiles of a block of C. A task keeps a few left panels in the second-level cache and walks some of the right panels.
fn multiply(level: Level, plan: &Plan, left: &Panels, right: &Panels, target: &Target<'_>) {
    let group = (CACHE / left.length.max(1)).clamp(1, left.panels().max(1));
    let groups = left.panels().div_ceil(group);
    let walk = (right.panels() * groups).div_ceil(TASKS * rayon::current_num_threads()).max(1);
    let walks = right.panels().div_ceil(walk);
    let task = |index: usize| {
        let (rows, columns) = (index % groups * group, index / groups * walk);
        let mut stack = Stack::new();
        for j in columns..(columns + walk).min(right.panels()) {
            for i in rows..(rows + group).min(left.panels()) {
                tile::multiply(level, plan, left.panel(i), right.panel(j), &mut stack);
                store(target, left, right, [i, j], &mut stack);
            }
        }
    };
    if left.count * right.count * plan.k() <= SERIAL {
        (0..groups * walks).for_each(task);
    } else {
        (0..groups * walks).into_par_iter().for_each(task);
    }
}

fn store(target: &Target<'_>, left: &Panels, right: &Panels, [i, j]: [usize; 2], stack: &mut Stack) {
    let (row, column) = (left.first + i * left.rows, right.first + j * right.rows);
    let (rows, columns) = (left.rows.min(left.count - i * left.rows), right.rows.min(right.count - j * right.rows));
    for (r, sums) in stack.result().chunks_exact_mut(right.rows).enumerate().take(rows) {
        // SAFETY: each tile has elements of its own.
        unsafe { target.store(row + r, column, &mut sums[..columns]) };
    }
}
