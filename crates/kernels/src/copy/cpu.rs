//! The CPU kernel: contiguous runs, or tiles where two axes change places.

use elinvar_core::{DType, Element, Error, HostArguments, HostKernel, Result};

use super::{CopyParams, exchange::Exchange, operands::AT};
use crate::{
    elementwise::{
        Operand, Space,
        blocks::{self, TASK},
        dispatch::for_storage,
    },
    parallel::for_each,
};

pub(super) fn kernel(bits: DType) -> HostKernel {
    for_storage!(bits, T => run::<T>)
}

fn run<T: Element>(arguments: &mut HostArguments<'_>) -> Result<()> {
    let params: CopyParams = arguments.params()?;
    let CopyParams { space, from, to, .. } = params;
    let (x, y) = (arguments.input::<T>(AT.x)?, arguments.output::<T>(AT.y)?);
    from.check(&space, x.len())?;
    to.check(&space, y.len())?;
    check_order(&space, &to)?;
    let task = Task { space: &space, from: &from, to: &to, x, y: Target(y.as_mut_ptr()) };
    match Tiles::find(&params) {
        Some(tiles) => for_each(tiles.count(), tiles.elements(), |index| task.tile(&tiles, index)),
        None => for_each(space.elements().div_ceil(TASK), TASK.min(space.elements()), |index| task.runs(index)),
    }
    Ok(())
}

/// Rejects a destination that might visit an element twice.
fn check_order(space: &Space, to: &Operand) -> Result<()> {
    let mut spanned = 1;
    for (&extent, &stride) in space.axes().iter().zip(&to.strides).rev().filter(|&(&extent, _)| extent > 1) {
        if stride < spanned {
            return Err(Error::invalid_launch(format!("a destination stride of {stride} is less than the {spanned} elements inside it")));
        }
        spanned = stride.saturating_mul(extent as i64);
    }
    Ok(())
}

/// The destination, shared by tasks that write different elements.
#[derive(Clone, Copy)]
struct Target<T>(*mut T);

// SAFETY: tasks write disjoint elements (`check_order`, and each element is visited by one task).
unsafe impl<T: Send> Send for Target<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Target<T> {}

struct Task<'a, T> {
    space: &'a Space,
    from: &'a Operand,
    to: &'a Operand,
    x: &'a [T],
    y: Target<T>,
}

impl<T: Element> Task<'_, T> {
    /// Copies the elements number `index · TASK` and on, run by run.
    fn runs(&self, index: usize) {
        let (start, inner) = (index * TASK, self.space.axes().len() - 1);
        let count = TASK.min(self.space.elements() - start);
        let stride = self.to.strides[inner] as usize;
        let step = self.from.strides[inner] as isize;
        blocks::walk(self.space, [self.from, self.to], start, count, |[source, target], length| {
            if stride == 1 || length == 1 {
                // SAFETY: in bounds by `Operand::check`; written by this task alone.
                let out = unsafe { std::slice::from_raw_parts_mut(self.y.0.add(target), length) };
                return blocks::run(self.x, source, step, out);
            }
            for i in 0..length {
                let value = self.x[source.wrapping_add_signed(i as isize * step)];
                // SAFETY: as above.
                unsafe { self.y.0.add(target + i * stride).write(value) };
            }
        });
    }

    /// Copies one tile of `tiles`.
    fn tile(&self, tiles: &Tiles, index: usize) {
        let (mut rest, inner) = (index, self.space.axes().len() - 1);
        let (mut source, mut target) = (self.from.origin as isize, self.to.origin as isize);
        let mut split = |parts: usize| (rest % parts, rest /= parts).0;
        let columns = tile_range(split(tiles.columns.div_ceil(COLUMNS)), COLUMNS, tiles.columns);
        let rows = tile_range(split(tiles.rows.div_ceil(ROWS)), ROWS, tiles.rows);
        for axis in (0..inner).rev().filter(|&axis| axis != tiles.axis) {
            let position = split(self.space.extents[axis] as usize) as isize;
            source += position * self.from.strides[axis] as isize;
            target += position * self.to.strides[axis] as isize;
        }
        let (from_step, to_step) = (self.from.strides[inner] as isize, self.to.strides[tiles.axis] as isize);
        source += rows.start as isize + columns.start as isize * from_step;
        target += rows.start as isize * to_step + columns.start as isize;
        let (from, to) = (self.x.as_ptr().wrapping_offset(source), self.y.0.wrapping_offset(target));
        // SAFETY: every element of the tile is in bounds on both sides by `Operand::check`, and written by this task alone.
        unsafe { Exchange::new(from, from_step, to, to_step, rows.len(), columns.len()) }.run();
    }
}

/// Extent of a tile along the destination's rows and along the source's.
const ROWS: usize = 64;
const COLUMNS: usize = 512;

/// A copy in which the destination's inner axis strides through the source, and `axis` is contiguous there.
struct Tiles {
    axis: usize,
    rows: usize,
    columns: usize,
    others: usize,
}

impl Tiles {
    fn find(params: &CopyParams) -> Option<Tiles> {
        let (space, axis) = (&params.space, params.exchanged_axis()?);
        let (rows, columns) = (space.extents[axis] as usize, space.inner());
        Some(Tiles { axis, rows, columns, others: space.elements() / (rows * columns) })
    }

    fn count(&self) -> usize {
        self.others * self.rows.div_ceil(ROWS) * self.columns.div_ceil(COLUMNS)
    }

    fn elements(&self) -> usize {
        self.rows.min(ROWS) * self.columns.min(COLUMNS)
    }
}

fn tile_range(index: usize, size: usize, extent: usize) -> std::ops::Range<usize> {
    index * size..((index + 1) * size).min(extent)
}
