//! Operators that work row by row along one axis of a row-major tensor.

use std::{cell::Cell, marker::PhantomData};

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
        Ok(Self { outer: product(&shape[..axis]), length: shape[axis] as u64, inner: product(&shape[axis + 1..]) })
    }

    /// Rows of `shape` over all its axes from `axis`, which may count from the end.
    ///
    /// # Errors
    /// An axis outside the shape.
    pub fn from_axis(shape: &Shape, axis: isize) -> Result<Self> {
        let axis = shape.axis(axis)?;
        Ok(Self { outer: product(&shape[..axis]), length: product(&shape[axis..]), inner: 1 })
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

fn product(dims: &[usize]) -> u64 {
    dims.iter().product::<usize>() as u64
}

/// Elements below which a loop is not worth splitting over threads.
pub const SERIAL_BELOW: usize = 16 << 10;

/// How many rows of `length` elements one task takes, of `count` rows in all: whole tasks of about [`SERIAL_BELOW`] elements.
pub fn rows_per_task(length: usize, count: usize) -> usize {
    (SERIAL_BELOW / length.max(1)).clamp(1, count.max(1))
}

/// Calls `block(input, output)` for blocks of contiguous rows (each `rows.length` long), in parallel. Strided rows are gathered into
/// and scattered from contiguous temporaries, a cache line of columns at a time.
pub fn for_each_block<A: Copy + Default + Send + Sync, B: Copy + Default + Send + Sync>(
    rows: Rows,
    input: &[A],
    output: &mut [B],
    block: impl Fn(&[A], &mut [B]) + Sync,
) {
    let (length, inner) = (rows.length as usize, rows.inner as usize);
    if length == 0 || rows.count() == 0 {
        return;
    }
    if inner > 1 {
        return for_each_tile(rows, input, output, block);
    }
    let size = length * rows_per_task(length, rows.count());
    if input.len() <= size {
        return block(input, output);
    }
    input.par_chunks(size).zip(output.par_chunks_mut(size)).for_each(|(x, y)| block(x, y));
}

fn for_each_tile<A: Copy + Default + Send + Sync, B: Copy + Default + Send + Sync>(
    rows: Rows,
    input: &[A],
    output: &mut [B],
    block: impl Fn(&[A], &mut [B]) + Sync,
) {
    let (outer, length, inner) = (rows.outer as usize, rows.length as usize, rows.inner as usize);
    let width = (64 / size_of::<A>()).min(inner);
    let tiles = inner.div_ceil(width);
    let output = Shared::new(output);
    let work = |(from, to): &mut (Vec<A>, Vec<B>), task: usize| {
        let (o, first) = (task / tiles, task % tiles * width);
        let (base, columns) = (o * length * inner + first, width.min(inner - first));
        let (from, to) = (&mut from[..columns * length], &mut to[..columns * length]);
        for k in 0..length {
            for (c, &x) in input[base + k * inner..][..columns].iter().enumerate() {
                from[c * length + k] = x;
            }
        }
        block(from, to);
        for k in 0..length {
            for c in 0..columns {
                // SAFETY: element k of row (o, first + c), which belongs to this task alone.
                unsafe { output.write(base + k * inner + c, to[c * length + k]) };
            }
        }
    };
    let buffers = || (vec![A::default(); width * length], vec![B::default(); width * length]);
    if input.len() < SERIAL_BELOW {
        let mut buffers = buffers();
        (0..outer * tiles).for_each(|task| work(&mut buffers, task));
    } else {
        (0..outer * tiles).into_par_iter().for_each_init(buffers, work);
    }
}

thread_local! {
    static SCRATCH: Cell<Vec<f32>> = const { Cell::new(Vec::new()) };
}

/// Calls `work` with `length` floats of any value, kept from call to call on each thread.
pub fn with_scratch<R>(length: usize, work: impl FnOnce(&mut [f32]) -> R) -> R {
    let mut scratch = SCRATCH.take();
    if scratch.len() < length {
        scratch.resize(length, 0.0);
    }
    let result = work(&mut scratch[..length]);
    SCRATCH.set(scratch);
    result
}

/// A slice that several tasks write at once, each its own elements.
#[derive(Clone, Copy)]
pub struct Shared<'a, T> {
    pointer: *mut T,
    length: usize,
    slice: PhantomData<&'a mut [T]>,
}

// SAFETY: elements are reached through `unsafe` methods alone, whose callers keep tasks apart.
unsafe impl<T: Send> Send for Shared<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Shared<'_, T> {}

impl<'a, T: Copy> Shared<'a, T> {
    /// Borrows `slice` for as long as tasks write it.
    pub fn new(slice: &'a mut [T]) -> Self {
        Self { pointer: slice.as_mut_ptr(), length: slice.len(), slice: PhantomData }
    }

    /// Writes one element.
    ///
    /// # Safety
    /// No other task reads or writes it.
    ///
    /// # Panics
    /// `index` is outside the slice.
    #[inline(always)]
    pub unsafe fn write(&self, index: usize, value: T) {
        assert!(index < self.length);
        // SAFETY: in bounds, and this task's alone by the caller's promise.
        unsafe { self.pointer.add(index).write(value) };
    }

    /// A part to write.
    ///
    /// # Safety
    /// No other task reads or writes it, and no other borrow of it is alive.
    ///
    /// # Panics
    /// The range is outside the slice.
    #[inline(always)]
    #[allow(clippy::mut_from_ref, reason = "disjointness is the caller's promise")]
    pub unsafe fn part(&self, start: usize, length: usize) -> &'a mut [T] {
        assert!(start <= self.length && length <= self.length - start);
        // SAFETY: in bounds, and this task's alone by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.pointer.add(start), length) }
    }
}
