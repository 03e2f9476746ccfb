//! Threadgroup memory: each parameter and each variable has a slot of the arena, so that bounds are exact.

use std::sync::Arc;

use elinvar_core::Result;

use crate::{
    abi::{Region, SPACE_THREADGROUP},
    arena::{Arena, Slot},
    shadow::{COARSEST, Shadow},
};

/// Threadgroup memory is filled with this before each threadgroup: as floating-point numbers they are not numbers.
const POISON: u8 = 0xff;

pub(super) struct Local {
    slot: Slot,
    shadow: Option<Shadow>,
    bytes: usize,
    capacity: usize,
    pub(super) name: String,
}

/// The pieces in use, and those kept for later dispatches.
#[derive(Default)]
pub(super) struct Locals {
    pieces: Vec<Local>,
    used: usize,
    bytes: usize,
}

impl Locals {
    pub(super) fn clear(&mut self) {
        (self.used, self.bytes) = (0, 0);
    }

    /// Bytes in use, as a device would lay them out.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn used(&self) -> &[Local] {
        &self.pieces[..self.used]
    }

    pub(super) fn find(&mut self, slot: u32) -> Option<&mut Local> {
        self.pieces[..self.used].iter_mut().find(|local| local.slot.index() == slot)
    }

    pub(super) fn add(&mut self, arena: &Arc<Arena>, name: String, bytes: usize, alignment: usize, era: Option<u64>) -> Result<&mut Local> {
        let at = self.used;
        if self.pieces.get(at).is_none_or(|local| local.capacity < bytes) {
            let local = Local { slot: arena.allocate(bytes)?, shadow: None, bytes, capacity: bytes, name: String::new() };
            self.pieces.truncate(at);
            self.pieces.push(local);
        }
        self.used += 1;
        self.bytes = self.bytes.next_multiple_of(alignment.max(1)) + bytes;
        let local = &mut self.pieces[at];
        (local.name, local.bytes) = (name, bytes);
        if let Some(era) = era {
            let mut shadow = local.shadow.take().map_or_else(|| Shadow::new(local.capacity, COARSEST, era), Ok)?;
            shadow.enter_era(era)?;
            local.shadow = Some(shadow);
        }
        Ok(local)
    }
}

impl Local {
    pub(super) fn slot(&self) -> u32 {
        self.slot.index()
    }

    pub(super) fn address(&self) -> u64 {
        self.slot.address()
    }

    pub(super) fn region(&mut self) -> Region {
        let mut region = Region { base: self.address(), size: self.bytes as u64, space: SPACE_THREADGROUP, ..Region::UNBOUND };
        if let Some(shadow) = &mut self.shadow {
            (region.cells, region.granule) = (shadow.as_mut_ptr(), shadow.granule());
        }
        region
    }

    pub(super) fn refine(&mut self, granule: u8) -> Result<Region> {
        if let Some(shadow) = &mut self.shadow {
            shadow.refine(granule)?;
        }
        Ok(self.region())
    }

    pub(super) fn poison(&self) {
        // SAFETY: the slot holds so many bytes, and no thread of the last threadgroup runs any more.
        unsafe { self.slot.pointer().write_bytes(POISON, self.bytes) };
    }
}
