//! Operators that work row by row along one axis of a row-major tensor.

use bytemuck::{Pod, Zeroable};
use elinvar_core::{Extent, Result, Shape};
use rayon::prelude::*;

use crate::{Launch, order::row_threads};

/// A tensor seen as rows along one axis: element `k` of row `(o, i)` is at `(o * length + k) * inner + i`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Rows {
    /// Product of the extents before the axis.
    pub outer: u64,
    /// Extent of the axis.
    pub length: u64,
    /// Product of the extents after it: the stride of a row.
    pub inner: u64,
}

impl Rows {
    /// Rows of `shape` along `axis`, which may count from the end.
    ///
    /// # Errors
    /// An axis outside the shape.
    pub fn new(shape: &Shape, axis: isize) -> Result<Self> {
        let axis = shape.axis(axis)?;
        let product = |dims: &[usize]| dims.iter().product::<usize>() as u64;
        Ok(Self { outer: product(&shape[..axis]), length: shape[axis] as u64, inner: product(&shape[axis + 1..]) })
    }

    /// Number of rows.
    pub fn count(&self) -> usize {
        (self.outer * self.inner) as usize
    }

    /// One threadgroup of [`row_threads`] threads for each row; nothing for an empty tensor.
    pub fn launch(&self, launch: Launch) -> Launch {
        let rows = if self.length == 0 { 0 } else { self.count() };
        let threads = row_threads(self.length as usize) as u32;
        launch.over(Extent::linear(rows.min(u32::MAX as usize) as u32), Extent::linear(threads))
    }
}

/// Elements below which a loop is not worth splitting over threads.
pub const SERIAL_BELOW: usize = 16 << 10;

/// Calls `row(input, output)` for every row, in parallel; strided rows are gathered into and scattered from contiguous temporaries.
pub fn for_each_row<A: Copy + Default + Send + Sync, B: Copy + Default + Send + Sync>(
    rows: Rows,
    input: &[A],
    output: &mut [B],
    row: impl Fn(&[A], &mut [B]) + Sync,
) {
    let (length, inner) = (rows.length as usize, rows.inner as usize);
    if length == 0 || rows.count() == 0 {
        return;
    }
    let block = length * inner;
    let work = |(from, to): (&[A], &mut [B])| {
        if inner == 1 {
            return row(from, to);
        }
        let (mut gathered, mut result) = (vec![A::default(); length], vec![B::default(); length]);
        for i in 0..inner {
            for (k, value) in gathered.iter_mut().enumerate() {
                *value = from[k * inner + i];
            }
            row(&gathered, &mut result);
            for (k, value) in result.iter().enumerate() {
                to[k * inner + i] = *value;
            }
        }
    };
    if input.len() < SERIAL_BELOW {
        input.chunks_exact(block).zip(output.chunks_exact_mut(block)).for_each(work);
    } else {
        let least = (SERIAL_BELOW / block).max(1);
        input.par_chunks_exact(block).zip(output.par_chunks_exact_mut(block)).with_min_len(least).for_each(work);
    }
}
