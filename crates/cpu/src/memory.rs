use std::cell::UnsafeCell;

use elinvar_core::{DeviceMemory, Error, ErrorKind, HostMemory, HostMemoryMut, Result};
use memmap2::MmapMut;

/// A cache line: the alignment of every allocation.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line(#[allow(dead_code, reason = "reached through a raw pointer")] [u8; 64]);

/// Zeroed memory. Large blocks are mapped, so untouched pages cost nothing and the kernel may back them with huge pages.
pub(crate) struct Allocation {
    pointer: *mut u8,
    bytes: usize,
    _owner: Owner,
}

enum Owner {
    Lines { _lines: Box<[UnsafeCell<Line>]> },
    Map { _map: MmapMut },
}

// SAFETY: the memory is owned; accesses through the pointer are ordered by the device's queue (see `Memory`).
unsafe impl Send for Allocation {}
// SAFETY: as above.
unsafe impl Sync for Allocation {}

impl Allocation {
    pub(crate) fn new(bytes: usize) -> Result<Self> {
        const MAPPED_FROM: usize = 1 << 20;
        if bytes < MAPPED_FROM {
            let lines: Box<[_]> = (0..bytes.div_ceil(size_of::<Line>())).map(|_| UnsafeCell::new(Line([0; 64]))).collect();
            return Ok(Self { pointer: lines.as_ptr().cast::<u8>().cast_mut(), bytes, _owner: Owner::Lines { _lines: lines } });
        }
        let mut map = MmapMut::map_anon(bytes)
            .map_err(|e| Error::with_source(ErrorKind::OutOfMemory, format!("the system rejects {} MiB of memory", bytes >> 20), e))?;
        #[cfg(target_os = "linux")]
        // Advice only: without huge pages the memory works the same.
        let _ = map.advise(memmap2::Advice::HugePage);
        Ok(Self { pointer: map.as_mut_ptr(), bytes, _owner: Owner::Map { _map: map } })
    }
}

/// A buffer of the CPU device.
///
/// Its bytes are touched by the device's thread while a list runs, and by `read` and `write` after the queue has drained.
pub(crate) enum Memory {
    Owned(Allocation),
    Adopted(HostMemory),
    AdoptedMut(HostMemoryMut),
}

impl DeviceMemory for Memory {
    fn bytes(&self) -> usize {
        match self {
            Memory::Owned(allocation) => allocation.bytes,
            Memory::Adopted(memory) => memory.bytes().len(),
            Memory::AdoptedMut(memory) => memory.bytes(),
        }
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn is_read_only(&self) -> bool {
        matches!(self, Memory::Adopted(_))
    }
}

impl Memory {
    /// The first byte. Adopted memory may only be read through it.
    pub(crate) fn pointer(&self) -> *mut u8 {
        match self {
            Memory::Owned(allocation) => allocation.pointer,
            Memory::Adopted(memory) => memory.bytes().as_ptr().cast_mut(),
            Memory::AdoptedMut(memory) => memory.pointer(),
        }
    }

    fn check(&self, offset: usize, bytes: usize) -> Result<()> {
        if offset.checked_add(bytes).is_none_or(|end| end > self.bytes()) {
            return Err(Error::invalid_launch(format!("bytes {offset}..{offset}+{bytes} are outside a buffer of {} bytes", self.bytes())));
        }
        Ok(())
    }

    /// # Safety
    /// Nothing else touches the memory meanwhile.
    pub(crate) unsafe fn change(&self, offset: usize, bytes: usize, change: impl FnOnce(&mut [u8])) -> Result<()> {
        self.check(offset, bytes)?;
        if self.is_read_only() {
            return Err(Error::invalid_launch("cannot write to adopted host memory"));
        }
        // SAFETY: in bounds, initialised, writable, and exclusive by the caller's promise.
        change(unsafe { std::slice::from_raw_parts_mut(self.pointer().add(offset), bytes) });
        Ok(())
    }

    /// # Safety
    /// Nothing writes the memory while the slice lives.
    pub(crate) unsafe fn slice(&self, offset: usize, bytes: usize) -> Result<&[u8]> {
        self.check(offset, bytes)?;
        // SAFETY: in bounds and initialised; not written meanwhile by the caller's promise.
        Ok(unsafe { std::slice::from_raw_parts(self.pointer().add(offset), bytes) })
    }
}
