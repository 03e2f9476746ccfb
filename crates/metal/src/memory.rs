//! Memory of the device, and host memory it adopts.

use std::sync::Arc;

use elinvar_core::{DeviceMemory, Error, MemoryInfo, Result};

use crate::{
    api::{Api, StorageMode},
    residency::Residency,
};

/// A buffer of Metal's, or a part of one that lies over pages of the host.
pub(crate) struct Memory<A: Api> {
    pub(crate) buffer: A::Buffer,
    pub(crate) start: usize,
    pub(crate) bytes: usize,
    pub(crate) mode: StorageMode,
    /// For adopted memory, which kernels only read: what keeps it resident.
    adopted: Option<Arc<Residency<A>>>,
}

impl<A: Api> Memory<A> {
    /// A whole buffer.
    pub(crate) fn new(buffer: A::Buffer, bytes: usize, mode: StorageMode) -> Self {
        Self { buffer, start: 0, bytes, mode, adopted: None }
    }

    /// Read-only memory that begins somewhere in a buffer and stays resident.
    pub(crate) fn adopted(buffer: A::Buffer, start: usize, bytes: usize, mode: StorageMode, residency: &Arc<Residency<A>>) -> Self {
        residency.add(&buffer);
        Self { buffer, start, bytes, mode, adopted: Some(residency.clone()) }
    }
}

impl<A: Api> Drop for Memory<A> {
    fn drop(&mut self) {
        if let Some(residency) = &self.adopted {
            residency.remove(&self.buffer);
        }
    }
}

impl<A: Api> DeviceMemory for Memory<A> {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn is_read_only(&self) -> bool {
        self.adopted.is_some()
    }

    fn is_shared(&self) -> bool {
        self.mode == StorageMode::Shared
    }
}

/// Rejects what the device cannot keep at hand: beyond its working set, pages come and go and every command waits for them.
pub(crate) fn check_working_set(bytes: usize, memory: MemoryInfo) -> Result<()> {
    if bytes <= memory.available {
        return Ok(());
    }
    let mib = |bytes: usize| bytes >> 20;
    Err(Error::out_of_memory(format!(
        "{} MiB are asked for, the device's working set has {} of {} MiB left: choose a smaller or quantised model, or a shorter context",
        bytes.div_ceil(1 << 20),
        mib(memory.available),
        mib(memory.total)
    )))
}

/// The whole pages that hold `bytes` bytes at an address: the first one's address, where in it the bytes begin, and the pages' length.
#[cfg_attr(not(target_vendor = "apple"), allow(dead_code, reason = "for pages shared with Apple's GPUs; tested everywhere"))]
pub(crate) fn pages(address: usize, bytes: usize, page: usize) -> Option<(usize, usize, usize)> {
    let within = address.checked_rem(page)?;
    let length = within.checked_add(bytes)?.max(1).checked_next_multiple_of(page)?;
    Some((address - within, within, length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_enclose_their_bytes() {
        assert_eq!(pages(0x8000, 0x4000, 0x4000), Some((0x8000, 0, 0x4000)));
        assert_eq!(pages(0x8008, 0x4000, 0x4000), Some((0x8000, 8, 0x8000)));
        assert_eq!(pages(0xbfff, 2, 0x4000), Some((0x8000, 0x3fff, 0x8000)));
        assert_eq!(pages(0x8000, 0, 0x4000), Some((0x8000, 0, 0x4000)));
        assert_eq!(pages(8, 8, 0), None);
        assert_eq!(pages(8, usize::MAX, 0x4000), None);
    }

    #[test]
    fn what_exceeds_the_working_set_is_rejected() {
        let memory = MemoryInfo { total: 8 << 30, available: 1 << 30 };
        assert!(check_working_set(1 << 30, memory).is_ok());
        let error = check_working_set((1 << 30) + 1, memory).unwrap_err();
        assert!(error.is_out_of_memory() && error.to_string().starts_with("1025 MiB are asked for"), "{error}");
    }
}
