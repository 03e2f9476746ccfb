//! Memory of our own.

use std::sync::Arc;

use elinvar::HostMemory;

/// Bytes at a multiple of eight.
pub(super) struct Words(Vec<u64>, usize);

impl Words {
    pub(super) fn zeros(bytes: usize) -> Self {
        Self(vec![0; bytes.div_ceil(8)], bytes)
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        bytemuck::cast_slice_mut(&mut self.0).get_mut(..self.1).unwrap_or_default()
    }

    pub(super) fn into_memory(self) -> HostMemory {
        HostMemory::new(Arc::new(self))
    }
}

impl AsRef<[u8]> for Words {
    fn as_ref(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0).get(..self.1).unwrap_or_default()
    }
}

/// The memory itself if it is aligned for elements of `size` bytes, or a copy.
pub(super) fn aligned(memory: HostMemory, size: usize) -> HostMemory {
    let bytes = memory.bytes();
    if bytes.as_ptr().addr().is_multiple_of(size) {
        return memory;
    }
    let mut words = Words::zeros(bytes.len());
    words.bytes_mut().copy_from_slice(bytes);
    words.into_memory()
}
