//! One reservation of address space in which everything a kernel may touch has a slot of its own, far from all others: an address identifies its
//! slot, and the slot its exact bounds.

use std::{
    collections::BTreeSet,
    ptr,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use elinvar_core::{Error, Result};

const SLOTS: usize = 8192;
const SLOT: u64 = 1 << 32;
/// Where a slot's memory starts: the reserved space before and after it catches what goes astray.
const START: u64 = 1 << 30;
/// The largest single allocation.
pub(crate) const MAX_BYTES: usize = 2 << 30;
const PAGE: usize = 4096;

/// The reservation.
pub(crate) struct Arena {
    base: u64,
    free: Mutex<BTreeSet<u32>>,
}

impl Arena {
    /// The process's arena, which all simulators share: few reservations of this size fit into an address space.
    pub(crate) fn shared() -> Result<Arc<Self>> {
        static SHARED: Mutex<Weak<Arena>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(arena) = shared.upgrade() {
            return Ok(arena);
        }
        let arena = Self::new()?;
        *shared = Arc::downgrade(&arena);
        Ok(arena)
    }

    fn new() -> Result<Arc<Self>> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a fresh anonymous mapping at an address of the system's choice touches no existing memory.
        let base = unsafe { libc::mmap(ptr::null_mut(), SLOTS * SLOT as usize, libc::PROT_NONE, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            let cause = std::io::Error::last_os_error();
            return Err(Error::out_of_memory(format!(
                "the simulator reserves {} TiB of address space and was rejected ({cause}): lift `ulimit -v`",
                (SLOTS as u64 * SLOT) >> 40
            )));
        }
        Ok(Arc::new(Self { base: base as u64, free: Mutex::new((0..SLOTS as u32).collect()) }))
    }

    pub(crate) fn base(&self) -> u64 {
        self.base
    }

    pub(crate) fn size(&self) -> u64 {
        SLOTS as u64 * SLOT
    }

    pub(crate) const fn slots(&self) -> usize {
        SLOTS
    }

    /// The slot an address lies in, and where that slot's memory starts.
    pub(crate) fn slot_of(&self, address: u64) -> Option<(u32, u64)> {
        let index = address.checked_sub(self.base)? / SLOT;
        (index < SLOTS as u64).then(|| (index as u32, self.base + index * SLOT + START))
    }

    /// Zeroed memory in a slot of its own.
    pub(crate) fn allocate(self: &Arc<Self>, bytes: usize) -> Result<Slot> {
        if bytes > MAX_BYTES {
            return Err(Error::out_of_memory(format!(
                "{bytes} bytes asked in one piece: the simulator's buffers hold at most {MAX_BYTES}; split it"
            )));
        }
        let index = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop_first().ok_or_else(|| {
            Error::out_of_memory(format!("all {SLOTS} slots of the simulator's memory are in use: free some buffers, or combine small ones"))
        })?;
        let slot = Slot { arena: self.clone(), index, mapped: bytes.next_multiple_of(PAGE).max(PAGE) };
        // SAFETY: the range lies in this arena's reservation, in a slot that nothing else holds.
        if unsafe { libc::mprotect(slot.pointer().cast(), slot.mapped, libc::PROT_READ | libc::PROT_WRITE) } != 0 {
            let cause = std::io::Error::last_os_error();
            return Err(Error::out_of_memory(format!("{bytes} bytes for a simulated buffer were rejected: {cause}")));
        }
        Ok(slot)
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: slots hold the arena, so none is left.
        unsafe { libc::munmap(self.base as *mut libc::c_void, SLOTS * SLOT as usize) };
    }
}

/// One allocation; freed when dropped.
pub(crate) struct Slot {
    arena: Arc<Arena>,
    index: u32,
    mapped: usize,
}

impl Slot {
    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    pub(crate) fn address(&self) -> u64 {
        self.arena.base + u64::from(self.index) * SLOT + START
    }

    pub(crate) fn pointer(&self) -> *mut u8 {
        self.address() as *mut u8
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
        // SAFETY: replaces this slot's own pages, which nothing else holds, by reserved ones.
        unsafe { libc::mmap(self.pointer().cast(), self.mapped, libc::PROT_NONE, flags, -1, 0) };
        self.arena.free.lock().unwrap_or_else(PoisonError::into_inner).insert(self.index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_simulators_share_an_arena() {
        let arenas: Vec<_> = (0..16).map(|_| Arena::shared().unwrap()).collect();
        let slots: Vec<_> = arenas.iter().map(|arena| arena.allocate(16).unwrap()).collect();
        let addresses: BTreeSet<_> = slots.iter().map(Slot::address).collect();
        assert_eq!(addresses.len(), arenas.len());
    }

    #[test]
    fn a_freed_slot_comes_back_zeroed() {
        let arena = Arena::new().unwrap();
        let first = arena.allocate(100).unwrap();
        let index = first.index();
        // SAFETY: the slot has 100 bytes.
        unsafe { *first.pointer() = 7 };
        drop(first);
        let second = arena.allocate(8).unwrap();
        assert_eq!(second.index(), index);
        // SAFETY: the slot has 8 bytes.
        assert_eq!(unsafe { *second.pointer() }, 0);
    }

    #[test]
    fn a_buffer_beyond_the_limit_is_rejected() {
        let arena = Arena::new().unwrap();
        assert!(arena.allocate(MAX_BYTES + 1).err().unwrap().is_out_of_memory());
    }
}
