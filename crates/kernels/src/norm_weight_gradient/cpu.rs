//! The CPU kernel: columns that fit the first cache at a time, the tree of the canonical order from the left.

use elinvar_core::{DType, HostArguments, HostKernel, Result};

use super::{Params, operands::AT};
use crate::{
    float::{Float, with_float},
    order,
    parallel::{Shared, for_each},
    rows::with_scratch,
    simd,
};

/// Columns of a task.
const WIDTH: usize = 256;

/// Leaves of a simdgroup's tree: eight slots of each of 32 lanes.
const LEAVES: usize = 256;

/// A leaf's elements, the sums of the leaves on each level of the tree, and those of all simdgroups, in lines of columns.
const LINES: usize = 2 + 2 * (1 + LEAVES.ilog2() as usize + 1);

pub(super) fn kernel(dtype: DType) -> Result<HostKernel> {
    Ok(with_float!(dtype, T => run::<T>))
}

/// Some columns.
struct Columns<'a, T> {
    x: &'a [T],
    dy: &'a [T],
    scale: &'a [f32],
    mean: Option<&'a [f32]>,
    /// Elements of a row.
    columns: usize,
    start: usize,
    width: usize,
}

fn run<T: Float>(arguments: &mut HostArguments<'_>) -> Result<()> {
    let params: Params = arguments.params()?;
    let (x, dy, scale, mean) =
        (arguments.input::<T>(AT.x)?, arguments.input::<T>(AT.dy)?, arguments.input::<f32>(AT.scale)?, arguments.optional::<f32>(AT.mean)?);
    let (dweight, dbias) = (Shared::new(arguments.output::<f32>(AT.dweight)?), arguments.optional_output::<f32>(AT.dbias)?.map(Shared::new));
    let (rows, columns) = (params.rows as usize, params.columns as usize);
    for_each(columns.div_ceil(WIDTH), WIDTH.min(columns) * rows, |task| {
        let start = task * WIDTH;
        let width = WIDTH.min(columns - start);
        let some = Columns { x, dy, scale, mean, columns, start, width };
        with_scratch(LINES * width, |scratch| {
            let (total, scratch) = scratch.split_at_mut(2 * width);
            some.sum(total, scratch);
            // SAFETY: these columns belong to this task.
            unsafe {
                dweight.part(start, width).copy_from_slice(&total[..width]);
                dbias.iter().for_each(|dbias| dbias.part(start, width).copy_from_slice(&total[width..]));
            }
        });
    });
    Ok(())
}

impl<T: Float> Columns<'_, T> {
    /// The sums of weight and bias over all rows.
    fn sum(&self, total: &mut [f32], scratch: &mut [f32]) {
        let (part, scratch) = scratch.split_at_mut(2 * self.width);
        total.fill(0.0);
        for group in 0..order::row_groups(self.scale.len()) {
            if self.subtree(group, 0, LEAVES, part, scratch) {
                add(total, part);
            }
        }
    }

    /// The first row of a leaf, which is the first of a subtree that begins with it: the xor tree meets lanes in the order of their reversed bits.
    fn first_row(group: usize, leaf: usize) -> usize {
        let lane = (leaf / 8).reverse_bits() >> (usize::BITS - 5);
        group * order::GROUP + 8 * lane + leaf % 8
    }

    /// The sums over the rows of so many leaves of a simdgroup, if there are any.
    fn subtree(&self, group: usize, first: usize, leaves: usize, into: &mut [f32], scratch: &mut [f32]) -> bool {
        let row = Self::first_row(group, first);
        if row >= self.scale.len() {
            return false;
        }
        if leaves == 1 {
            self.leaf(row, into, scratch);
            return true;
        }
        let half = leaves / 2;
        self.subtree(group, first, half, into, scratch);
        let (right, scratch) = scratch.split_at_mut(into.len());
        if self.subtree(group, first + half, half, right, scratch) {
            add(into, right);
        }
        true
    }

    /// The sums over a leaf's rows.
    fn leaf(&self, first: usize, into: &mut [f32], scratch: &mut [f32]) {
        let rows = (first..self.scale.len()).step_by(8 * order::row_threads(self.scale.len()));
        into.fill(0.0);
        let (x, rest) = scratch.split_at_mut(self.width);
        let dy = &mut rest[..self.width];
        let (dweight, dbias) = into.split_at_mut(self.width);
        for row in rows {
            let at = row * self.columns + self.start;
            T::widen_into(&self.x[at..][..self.width], x);
            T::widen_into(&self.dy[at..][..self.width], dy);
            match self.mean {
                Some(mean) => take_centred(x, dy, mean[row], self.scale[row], dweight, dbias),
                None => take(x, dy, self.scale[row], dweight),
            }
        }
    }
}

simd! {
    fn add(into: &mut [f32], part: &[f32]) {
        into.iter_mut().zip(part).for_each(|(into, part)| *into += part);
    }
}

simd! {
    fn take(x: &[f32], dy: &[f32], scale: f32, dweight: &mut [f32]) {
        dweight.iter_mut().zip(x).zip(dy).for_each(|((sum, x), dy)| *sum += dy * (x * scale));
    }
}

simd! {
    fn take_centred(x: &[f32], dy: &[f32], mean: f32, scale: f32, dweight: &mut [f32], dbias: &mut [f32]) {
        for (((weight, bias), x), dy) in dweight.iter_mut().zip(dbias).zip(x).zip(dy) {
            *weight += dy * ((x - mean) * scale);
            *bias += dy;
        }
    }
}
