//! `C = A B` of any size: `A` is packed into panels, then each task packs some columns of `B` and sums its register tiles. Fast sums read
//! f32 where it is, as far as that is no slower.
//!
//! Packing reads each operand once for a few million elements of `A`; everything else comes from the caches: a task walks the panels of `A`
//! for a handful of panels of its own, slab by slab. An element's sum depends on its row, its column and k alone.

use std::ops::Range;

use super::{
    level::Level,
    operand::{Matrix, Target},
    plan::{LEVELS, LOW_LEVELS, Plan, Summation},
    scratch::Scratch,
    tile::{self, HighStack, MAX_RIGHT, Shape, Side, Tile},
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

/// Elements apart at which the rows of a left operand would share few sets of the first-level cache.
const ALIASED: usize = 512;

/// Computes `target = Σ a * b^T` over the products `[a, b]`: each `a` is `[m, k]`, `b` is `[n, k]`, `target` `[m, n]`. A strict sum has one product.
pub(crate) fn gemm(level: Level, summation: Summation, products: &[[Matrix<'_>; 2]], target: &Target<'_>) {
    let [m, n] = [target.rows(), target.columns()];
    let shape = Shape::of(level, [m, n]);
    // A product of no terms adds nothing; where there is no other, its sums are zero.
    let products: Vec<_> = products.iter().filter(|[a, _]| a.columns() > 0 || products.len() == 1).collect();
    let terms: Vec<_> = products.iter().enumerate().map(|(i, &&[a, b])| Term::new(level, summation, i > 0, a, b)).collect();
    let most = terms.iter().map(|term| term.plan.k()).max().unwrap_or(0);
    let multiplications: usize = products.iter().map(|[a, _]| m * n * a.columns()).sum();
    let product = Product { shape, terms: &terms, most, parallel: multiplications > SERIAL, target };
    let rows = (LEFT / most.max(1)).max(GROUP * shape.rows).next_multiple_of(shape.rows);
    for row in (0..m).step_by(rows) {
        product.block([row, rows.min(m - row)]);
    }
}

/// One of the products.
struct Term<'a> {
    unit: Unit,
    plan: Plan,
    /// Whether operands may be read where they are.
    direct: bool,
    a: Matrix<'a>,
    b: Matrix<'a>,
}

impl<'a> Term<'a> {
    fn new(level: Level, summation: Summation, is_added: bool, a: Matrix<'a>, b: Matrix<'a>) -> Self {
        let unit = Unit::best(level, summation, a.values(), b.values());
        let k = unit.elements(a.columns());
        let plan = if is_added { Plan::after(k) } else { Plan::new(summation, k) };
        Self { unit, plan, direct: summation == Summation::Fast && matches!(unit, Unit::Vectors(_)), a, b }
    }

    /// The left operand where it is: rows of f32, or columns where few rows of the right operand read them.
    fn left(&self) -> Option<Side<'a>> {
        let few = self.b.rows() <= PANELS * MAX_RIGHT;
        self.a.side().filter(|side| self.direct && if side.step == 1 { !side.row.is_multiple_of(ALIASED) } else { side.row == 1 && few })
    }

    /// The right operand where it is: columns of f32 that few rows of the left operand read.
    fn right(&self, shape: Shape) -> Option<Side<'a>> {
        self.b.side().filter(|side| self.direct && side.row == 1 && self.a.rows() <= 2 * shape.rows)
    }
}

/// Rows of a matrix by panels of `rows` rows: where they are, as far as whole panels are, or packed, each `length` elements.
struct Panels<'a> {
    first: usize,
    count: usize,
    rows: usize,
    width: usize,
    length: usize,
    /// Row `first` and those after it.
    side: Option<Side<'a>>,
    data: Scratch,
}

impl<'a> Panels<'a> {
    fn count(&self) -> usize {
        self.count.div_ceil(self.rows)
    }

    fn panel(&self, index: usize) -> Side<'_> {
        match self.side {
            Some(side) if (index + 1) * self.rows <= self.count => Side { values: &side.values[index * self.rows * side.row..], ..side },
            Some(_) => self.packed(0),
            None => self.packed(index),
        }
    }

    fn packed(&self, index: usize) -> Side<'_> {
        Side { values: &self.data[index * self.length..][..self.length], row: 1, step: self.width }
    }

    /// The rows of panel `index`: the first and how many.
    fn rows(&self, index: usize) -> [usize; 2] {
        [self.first + index * self.rows, self.rows.min(self.count - index * self.rows)]
    }
}

struct Product<'a> {
    shape: Shape,
    terms: &'a [Term<'a>],
    /// The longest summed extent.
    most: usize,
    parallel: bool,
    target: &'a Target<'a>,
}

impl Product<'_> {
    /// `count` rows from `first` on: `rows` a panel, stored `width` wide where they are packed.
    fn panels<'a>(
        term: &Term<'a>,
        (matrix, side): (Matrix<'a>, Option<Side<'a>>),
        [first, count]: [usize; 2],
        [rows, width]: [usize; 2],
        parallel: bool,
    ) -> Panels<'a> {
        let length = width * term.plan.k();
        let side = side.filter(|_| length > 0).map(|side| Side { values: &side.values[first * side.row..], ..side });
        let whole = if side.is_some() { count / rows } else { 0 };
        let mut data = Scratch::new((count.div_ceil(rows) - whole) * length);
        let one = |i: usize, panel: &mut [f32]| {
            let from = (whole + i) * rows;
            term.unit.pack(&term.plan, matrix, [first + from, rows.min(count - from)], width, panel);
        };
        if length > 0 && parallel && whole == 0 {
            spread_parts(&mut data, length, &one);
        } else if length > 0 {
            data.chunks_mut(length).enumerate().for_each(|(i, panel)| one(i, panel));
        }
        Panels { first, count, rows, width, length, side, data }
    }

    /// These rows of the product: the first and how many.
    fn block(&self, rows: [usize; 2]) {
        let Shape { rows: height, left: width, right } = self.shape;
        let lefts: Vec<_> = self.terms.iter().map(|term| Self::panels(term, (term.a, term.left()), rows, [height, width], self.parallel)).collect();
        let wanted = if self.parallel { TASKS * rayon::current_num_threads() } else { 1 };
        let fitting = (RIGHT / (right * self.most).max(1)).clamp(1, PANELS);
        let n = self.target.columns();
        let columns = right * n.div_ceil(right).div_ceil(wanted).min(fitting);
        // Where there are few columns, tasks share them and pack the same panels.
        let (across, count) = (n.div_ceil(columns), rows[1].div_ceil(height));
        let down = wanted.div_ceil(across).clamp(1, count.div_ceil(GROUP));
        let height = count.div_ceil(down);
        let task = |index: usize| {
            let (first, column) = (index % down * height, index / down * columns);
            let part = [column, columns.min(n - column)];
            let rights: Vec<_> =
                self.terms.iter().map(|term| Self::panels(term, (term.b, term.right(self.shape)), part, [right, right], false)).collect();
            self.tiles(&lefts, first..(first + height).min(count), &rights);
        };
        if self.parallel {
            spread(across * down, 1, &task);
        } else {
            (0..across * down).for_each(task);
        }
    }

    /// The tiles of some panels of the left operands and all panels of a task.
    fn tiles(&self, lefts: &[Panels<'_>], range: Range<usize>, rights: &[Panels<'_>]) {
        let (Some(left), Some(right)) = (lefts.first(), rights.first()) else { return };
        let mut low = tile::room::<LOW_LEVELS>(1);
        let [low] = tile::stacks(&mut low) else { return };
        let group = if self.terms.iter().any(|term| term.plan.slabs().len() > 1) { GROUP } else { 1 };
        let mut stacks = tile::room::<{ LEVELS - LOW_LEVELS }>(group * right.count());
        let stacks = tile::stacks(&mut stacks);
        for first in range.clone().step_by(group) {
            let group = first..(first + group).min(range.end);
            let pairs = || group.clone().flat_map(|i| (0..right.count()).map(move |j| (i, j)));
            for ((term, left), right) in self.terms.iter().zip(lefts).zip(rights) {
                for slab in term.plan.slabs() {
                    for ((i, j), high) in pairs().zip(&mut *stacks) {
                        term.unit.run(Tile::new(self.shape, &term.plan, slab, [left.panel(i), right.panel(j)], low, high));
                    }
                }
            }
            for ((i, j), high) in pairs().zip(&mut *stacks) {
                self.store(left.rows(i), right.rows(j), high);
            }
        }
    }

    fn store(&self, [row, rows]: [usize; 2], [column, columns]: [usize; 2], stack: &mut HighStack) {
        if self.most == 0 {
            tile::result(stack).fill(0.0);
        }
        for (r, sums) in tile::result(stack).chunks_exact_mut(self.shape.right).enumerate().take(rows) {
            // SAFETY: each tile has elements of its own.
            unsafe { self.target.store(row + r, column, &mut sums[..columns]) };
        }
    }
}
