//! An output whose rows are written by many threads.

use std::{marker::PhantomData, slice};

/// Rows of an output, each written by one thread.
pub(crate) struct Output<'a, T> {
    pointer: *mut T,
    length: usize,
    memory: PhantomData<&'a mut [T]>,
}

// SAFETY: the pointer stands for an exclusive borrow of `T: Send`; `row` leaves it to its callers that no element is borrowed twice.
unsafe impl<T: Send> Send for Output<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Output<'_, T> {}

impl<'a, T> Output<'a, T> {
    pub(crate) fn new(values: &'a mut [T]) -> Self {
        Self { pointer: values.as_mut_ptr(), length: values.len(), memory: PhantomData }
    }

    /// `width` elements from `start`.
    ///
    /// # Safety
    /// No other row that overlaps this one is in use.
    #[allow(clippy::mut_from_ref)]
    #[inline(always)]
    pub(crate) unsafe fn row(&self, start: usize, width: usize) -> &mut [T] {
        assert!(start <= self.length && width <= self.length - start);
        // SAFETY: in bounds of the borrow; the caller excludes overlapping rows.
        unsafe { slice::from_raw_parts_mut(self.pointer.add(start), width) }
    }
}
