//! Work shared out over threads. The work comes as `dyn Fn`: machinery that is generic over it would be compiled again for every kernel and type, and was
//! a third of this crate's code.

use std::marker::PhantomData;

use bytemuck::Pod;
use rayon::prelude::*;

/// Elements below which a loop is not worth splitting over threads.
pub const SERIAL_BELOW: usize = 16 << 10;

/// Calls `task(0), …, task(count - 1)`, each of about `elements` elements, in parallel if that is worth it.
pub fn for_each(count: usize, elements: usize, task: impl Fn(usize) + Sync) {
    if count * elements < SERIAL_BELOW { (0..count).for_each(task) } else { spread(count, SERIAL_BELOW / elements.max(1), &task) }
}

/// Calls `task(0), …, task(count - 1)` in parallel, at least `least` of them on a thread.
pub fn spread(count: usize, least: usize, task: &(dyn Fn(usize) + Sync)) {
    if count <= least.max(1) {
        return (0..count).for_each(task);
    }
    (0..count).into_par_iter().with_min_len(least.max(1)).for_each(task);
}

/// Multiplications below which a second thread costs more than it gives.
const SERIAL_PRODUCT: usize = 1 << 14;

/// Bytes of weights that are worth a task of their own.
const TASK_BYTES: usize = 1 << 15;

/// Calls `task(first, count)` for runs of the `n` rows of a matrix of weights, of `bytes` each, which take so many multiplications in all: in parallel if that
/// is worth it, whole multiples of `multiple` rows at a time but for the last.
pub fn spread_weights([n, bytes, multiple]: [usize; 3], multiplications: usize, task: &(dyn Fn(usize, usize) + Sync)) {
    if multiplications <= SERIAL_PRODUCT {
        return task(0, n);
    }
    let rows = (TASK_BYTES / bytes.max(1)).clamp(1, 256).next_multiple_of(multiple);
    spread(n.div_ceil(rows), 1, &|i| task(i * rows, rows.min(n - i * rows)));
}

/// Calls `task(index, part)` for every `count` elements of `data`, in parallel if that is worth it.
pub fn for_each_part<T: Pod>(data: &mut [T], count: usize, task: impl Fn(usize, &mut [T]) + Sync) {
    for_each_part_of(bytemuck::cast_slice_mut(data), count, size_of::<T>(), &|index, part| task(index, bytemuck::cast_slice_mut(part)));
}

/// Calls `task(index, part)` for every `count` elements of `size` bytes each of `data`, in parallel if that is worth it.
pub fn for_each_part_of(data: &mut [u8], count: usize, size: usize, task: &(dyn Fn(usize, &mut [u8]) + Sync)) {
    if data.len() / size < SERIAL_BELOW {
        data.chunks_mut(count * size).enumerate().for_each(|(index, part)| task(index, part));
    } else {
        spread_parts(data, count * size, task);
    }
}

/// Calls `task(index, part)` for every `size` elements of `data` in parallel.
pub fn spread_parts<T: Send + Copy>(data: &mut [T], size: usize, task: &(dyn Fn(usize, &mut [T]) + Sync)) {
    let (length, shared) = (data.len(), Shared::new(data));
    spread(length.div_ceil(size), 1, &|index| {
        let start = index * size;
        // SAFETY: this part belongs to this task.
        task(index, unsafe { shared.part(start, size.min(length - start)) });
    });
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
