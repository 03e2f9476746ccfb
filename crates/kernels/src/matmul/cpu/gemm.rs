//! `C = A B` of any size: `A` is packed into panels, then each task packs some columns of `B` and sums its register tiles.
//!
//! Packing reads each operand once for a few million elements of `A`; everything else comes from the caches: a task walks the panels of `A`
//! for a handful of panels of its own, slab by slab. An element's sum depends on its row, its column and k alone.

use std::ops::Range;

use super::{
    operand::{Matrix, Target},
    plan::{Plan, Summation},
    scratch::Scratch,
    tile::{HighStack, LowStack, Shape, Tile},
    unit::Unit,
};
use crate::parallel::{spread, spread_parts};

/// Packed elements of `A` at a time, at most (unless a few panels are more).
const LEFT: usize = 1 << 21;

/// Packed elements of `B` in a task, at most (unless one panel is more).
const RIGHT: usize = 1 << 20;

/// Panels of `B` in a task, at most: a slab of them stays in the second-level cache.
const PANELS: usize = 4;

/// Panels of `A` whose tiles are in the making at once where there are several slabs.
const GROUP: usize = 8;

/// Multiplications below which a second thread costs more than it gives.
const SERIAL: usize = 1 << 17;

/// Tasks for each thread: enough to balance.
const TASKS: usize = 4;

/// Computes `target = a * b^T`: `a` is `[m, k]`, `b` is `[n, k]`, `target` `[m, n]`.
pub(crate) fn gemm(unit: Unit, summation: Summation, a: Matrix<'_>, b: Matrix<'_>, target: &Target<'_>) {
    if a.rows() == 0 || b.rows() == 0 {
        return;
    }
    let shape = Shape::of(unit.level(), a.rows());
    let parallel = a.rows() * b.rows() * a.columns() > SERIAL;
    let plan = Plan::new(summation, unit.elements(a.columns()));
    let product = Product { unit, shape, plan: &plan, parallel, target };
    let rows = (LEFT / plan.k().max(1)).max(GROUP * shape.rows).next_multiple_of(shape.rows);
    for row in (0..a.rows()).step_by(rows) {
        product.block(a, [row, rows.min(a.rows() - row)], b);
    }
}

/// Rows of a matrix, packed into panels of `rows` rows, each `length` elements.
struct Panels {
    first: usize,
    count: usize,
    rows: usize,
    length: usize,
    data: Scratch,
}

impl Panels {
    fn count(&self) -> usize {
        self.count.div_ceil(self.rows)
    }

    fn panel(&self, index: usize) -> &[f32] {
        &self.data[index * self.length..][..self.length]
    }

    /// The rows of panel `index`: the first and how many.
    fn rows(&self, index: usize) -> [usize; 2] {
        [self.first + index * self.rows, self.rows.min(self.count - index * self.rows)]
    }
}

struct Product<'a> {
    unit: Unit,
    shape: Shape,
    plan: &'a Plan,
    parallel: bool,
    target: &'a Target<'a>,
}

impl Product<'_> {
    /// Packs `count` rows from `first` on: `rows` a panel, stored `width` wide.
    fn pack(&self, matrix: Matrix<'_>, [first, count]: [usize; 2], [rows, width]: [usize; 2], parallel: bool) -> Panels {
        let length = width * self.plan.k();
        let mut data = Scratch::new(count.div_ceil(rows) * length);
        let one = |i: usize, panel: &mut [f32]| {
            self.unit.pack(self.plan, matrix, [first + i * rows, rows.min(count - i * rows)], width, panel);
        };
        if length > 0 && parallel {
            spread_parts(&mut data, length, &one);
        } else if length > 0 {
            data.chunks_mut(length).enumerate().for_each(|(i, panel)| one(i, panel));
        }
        Panels { first, count, rows, length, data }
    }

    /// The rows `first..first + count` of the product.
    fn block(&self, a: Matrix<'_>, rows: [usize; 2], b: Matrix<'_>) {
        let Shape { rows: height, left: width, right } = self.shape;
        let left = self.pack(a, rows, [height, width], self.parallel);
        let wanted = if self.parallel { TASKS * rayon::current_num_threads() } else { 1 };
        let fitting = (RIGHT / (right * self.plan.k()).max(1)).clamp(1, PANELS);
        let columns = right * b.rows().div_ceil(right).div_ceil(wanted).min(fitting);
        // Where there are few columns, tasks share them and pack the same panels.
        let across = b.rows().div_ceil(columns);
        let down = wanted.div_ceil(across).clamp(1, left.count().div_ceil(GROUP));
        let height = left.count().div_ceil(down);
        let task = |index: usize| {
            let (first, column) = (index % down * height, index / down * columns);
            let right = self.pack(b, [column, columns.min(b.rows() - column)], [right, right], false);
            self.tiles(&left, first..(first + height).min(left.count()), &right);
        };
        if self.parallel {
            spread(across * down, 1, &task);
        } else {
            (0..across * down).for_each(task);
        }
    }

    /// The tiles of some panels of `A` and all panels of a task.
    fn tiles(&self, left: &Panels, range: Range<usize>, right: &Panels) {
        let mut low = LowStack::new();
        let group = if self.plan.slabs().len() > 1 { GROUP } else { 1 };
        let mut stacks = vec![HighStack::new(); group * right.count()];
        for first in range.clone().step_by(group) {
            let group = first..(first + group).min(range.end);
            for slab in self.plan.slabs() {
                let pairs = group.clone().flat_map(|i| (0..right.count()).map(move |j| (i, j)));
                for ((i, j), high) in pairs.zip(&mut stacks) {
                    self.unit.run(Tile::new(self.shape, self.plan, slab, [left.panel(i), right.panel(j)], &mut low, high));
                }
            }
            let pairs = group.clone().flat_map(|i| (0..right.count()).map(move |j| (i, j)));
            for ((i, j), high) in pairs.zip(&mut stacks) {
                self.store(left.rows(i), right.rows(j), high);
            }
        }
    }

    fn store(&self, [row, rows]: [usize; 2], [column, columns]: [usize; 2], stack: &mut HighStack) {
        if self.plan.k() == 0 {
            stack.result().fill(0.0);
        }
        for (r, sums) in stack.result().chunks_exact_mut(self.shape.right).enumerate().take(rows) {
            // SAFETY: each tile has elements of its own.
            unsafe { self.target.store(row + r, column, &mut sums[..columns]) };
        }
    }
}
