//! Memory that a launch works on.

use elinvar_core::DType;

use super::{
    ops,
    slot::{Line, lines_of},
};

/// Memory of one type: a buffer, or a shared array of the strip.
pub(super) struct Range<'a> {
    pub(super) pointer: *mut u8,
    pub(super) length: u64,
    pub(super) size: usize,
    /// The bytes, of a buffer that is only read.
    pub(super) constant: Option<&'a [u8]>,
    /// The bytes, of a shared array.
    own: Vec<Line>,
}

// SAFETY: the pointer is to plain bytes that outlive the launch; accesses by several threads are those of the program: see `Range::updated`.
unsafe impl Send for Range<'_> {}
// SAFETY: as above.
unsafe impl Sync for Range<'_> {}

impl<'a> Range<'a> {
    /// No memory, in place of a scalar.
    pub(super) fn none() -> Self {
        Self { pointer: std::ptr::null_mut(), length: 0, size: 1, constant: None, own: Vec::new() }
    }

    /// A buffer that is only read.
    pub(super) fn constant(bytes: &'a [u8], dtype: DType) -> Self {
        let length = (bytes.len() / dtype.size()) as u64;
        Self { pointer: bytes.as_ptr().cast_mut(), length, size: dtype.size(), constant: Some(bytes), own: Vec::new() }
    }

    /// A buffer that is written. It is touched through its pointer alone while the launch lasts; threads of a program that races get some of the
    /// values that are written.
    pub(super) fn updated(bytes: &'a mut [u8], dtype: DType) -> Self {
        let length = (bytes.len() / dtype.size()) as u64;
        Self { pointer: bytes.as_mut_ptr(), length, size: dtype.size(), constant: None, own: Vec::new() }
    }

    /// A shared array.
    pub(super) fn shared(length: u32, dtype: DType) -> Self {
        let mut own = lines_of(length as usize * dtype.size());
        Self { pointer: own.as_mut_ptr().cast(), length: u64::from(length), size: dtype.size(), constant: None, own }
    }

    /// The same buffer for another strip.
    pub(super) fn again(&self) -> Self {
        Self { own: Vec::new(), ..*self }
    }

    /// Shared arrays are zero when a block starts.
    pub(super) fn begin(&mut self) {
        if !self.own.is_empty() {
            bytemuck::cast_slice_mut::<Line, u8>(&mut self.own).fill(0);
            self.pointer = self.own.as_mut_ptr().cast();
        }
    }

    /// The bytes of `lanes` elements from `first` on, to be written by this strip, if they all exist.
    #[allow(clippy::mut_from_ref, reason = "buffers are shared by strips: see `Range::updated`")]
    pub(super) fn elements(&self, first: u64, lanes: usize) -> Option<&mut [u8]> {
        // SAFETY: in bounds. No register is a view of memory that is written, and strips of a program without races write different elements.
        self.holds(first, lanes).then(|| unsafe { std::slice::from_raw_parts_mut(self.pointer.add(first as usize * self.size), lanes * self.size) })
    }

    /// Those bytes, of a buffer that is only read.
    pub(super) fn constant_elements(&self, first: u64, lanes: usize) -> Option<&'a [u8]> {
        let constant = self.constant.filter(|_| self.holds(first, lanes))?;
        Some(&constant[first as usize * self.size..][..lanes * self.size])
    }

    /// The elements that `index` names, zero for those that do not exist.
    pub(super) fn gather(&self, dtype: DType, index: &[u8], out: &mut [u8]) {
        // SAFETY: the pointer is to so many elements.
        unsafe { ops::gather(dtype, self.size, self.pointer, self.length, index, out) };
    }

    /// Whether `lanes` elements from `first` on exist.
    pub(super) fn holds(&self, first: u64, lanes: usize) -> bool {
        first.checked_add(lanes as u64).is_some_and(|end| end <= self.length)
    }
}
