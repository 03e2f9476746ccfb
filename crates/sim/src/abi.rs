//! The Rust side of `runtime/context.h`.

use std::ffi::{c_char, c_void};

use elinvar_msl::Position;

/// Threads of a simdgroup.
pub(crate) const SIMD_WIDTH: usize = 32;
/// The most threads of a threadgroup.
pub(crate) const MAX_THREADS: usize = 1024;
/// Indices a kernel can bind buffers (or threadgroup memory) to.
pub(crate) const BINDINGS: usize = 31;

/// `elv_positions`: a row for each position attribute.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Positions(pub(crate) [[u32; 3]; Position::ALL.len()]);

/// A kernel's thunk.
pub(crate) type Entry = unsafe extern "C" fn(*const u64, *const u64, *const Positions);
/// The body of a collective operation, over the slots of the active lanes.
pub(crate) type Combine = unsafe extern "C" fn(*mut *mut c_void, u32);

/// The last accesses to a granule of memory.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Cell {
    pub(crate) write: u64,
    pub(crate) read: u64,
    pub(crate) write_pc: u32,
    pub(crate) read_pc: u32,
}

pub(crate) const SPACE_UNBOUND: u8 = 0;
pub(crate) const SPACE_DEVICE: u8 = 1;
pub(crate) const SPACE_THREADGROUP: u8 = 2;
pub(crate) const SPACE_INLINE: u8 = 3;

/// What the running dispatch may touch in one slot of the arena.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Region {
    /// Of the buffer.
    pub(crate) base: u64,
    /// Of what may be touched, from the base.
    pub(crate) low: u64,
    pub(crate) size: u64,
    pub(crate) cells: *mut Cell,
    pub(crate) initialised: *mut u8,
    pub(crate) granule: u8,
    pub(crate) space: u8,
    pub(crate) read_only: u8,
    /// Bit 0: read, bit 1: written; kept where there are cells.
    pub(crate) touched: u8,
    pub(crate) padding: [u8; 4],
}

impl Region {
    pub(crate) const UNBOUND: Self = Self {
        base: 0,
        low: 0,
        size: 0,
        cells: std::ptr::null_mut(),
        initialised: std::ptr::null_mut(),
        granule: 4,
        space: SPACE_UNBOUND,
        read_only: 0,
        touched: 0,
        padding: [0; 4],
    };
}

/// How often a kind of memory was read, or written.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Accesses {
    pub(crate) count: u64,
    pub(crate) bytes: u64,
}

/// A threadgroup variable that the running kernel declared.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Variable {
    pub(crate) site: u64,
    pub(crate) function: *const c_char,
    pub(crate) address: u64,
}

/// What the checks report, numbered from 1.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventKind {
    OutOfBoundsRead,
    OutOfBoundsWrite,
    WildRead,
    WildWrite,
    ReadOnlyWrite,
    RaceWriteWrite,
    RaceReadWrite,
    RaceWriteRead,
    Uninitialised,
    Misaligned,
    ArrayBounds,
    BeyondArray,
    Shift,
    Division,
}

pub(crate) const MAX_FRAMES: usize = 8;

impl EventKind {
    const ALL: [Self; 14] = [
        Self::OutOfBoundsRead,
        Self::OutOfBoundsWrite,
        Self::WildRead,
        Self::WildWrite,
        Self::ReadOnlyWrite,
        Self::RaceWriteWrite,
        Self::RaceReadWrite,
        Self::RaceWriteRead,
        Self::Uninitialised,
        Self::Misaligned,
        Self::ArrayBounds,
        Self::BeyondArray,
        Self::Shift,
        Self::Division,
    ];
}

/// See `report` in `runtime/access.h`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Event {
    kind: u32,
    pub(crate) region: u32,
    pub(crate) offset: u64,
    pub(crate) size: u64,
    pub(crate) other_record: u64,
    pub(crate) other_pc: u32,
    pub(crate) frame_count: u32,
    pub(crate) frames: [u64; MAX_FRAMES],
}

impl Event {
    /// None for the wish for finer granules.
    pub(crate) fn kind(&self) -> Option<EventKind> {
        EventKind::ALL.get((self.kind as usize).checked_sub(1)?).copied()
    }
}

/// What the runtime knows of the running thread and dispatch.
#[repr(C)]
pub(crate) struct Context {
    pub(crate) records: [u64; 2],
    pub(crate) stack_low: u64,
    pub(crate) stack_high: u64,
    pub(crate) thread: u32,
    pub(crate) variable_count: u32,
    pub(crate) arena: u64,
    pub(crate) arena_size: u64,
    pub(crate) regions: *mut Region,
    pub(crate) oldest_group: [u64; 2],
    pub(crate) module_low: u64,
    pub(crate) module_high: u64,
    pub(crate) variables: *mut Variable,
    /// Of each space from [`SPACE_DEVICE`] on: reads, writes.
    pub(crate) accesses: [[Accesses; 2]; 3],
    pub(crate) barrier: extern "C" fn(u32, u32, *const c_char, u32),
    pub(crate) collective: extern "C" fn(Combine, *mut c_void, *const c_char, *const c_char, u32),
    pub(crate) threadgroup_variable: extern "C" fn(u64, *const c_char, *const c_char, u64, u64) -> u64,
    pub(crate) event: extern "C" fn(*const Event),
}

const _: () = {
    assert!(size_of::<Cell>() == 24 && size_of::<Region>() == 48 && size_of::<Variable>() == 24);
    assert!(size_of::<Event>() == 104 && size_of::<Context>() == 232);
};

/// Who made an access: one number, as `runtime/context.h` lays it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record(pub(crate) u64);

impl Record {
    /// Threadgroups that can be distinguished before all cells must be forgotten.
    pub(crate) const GROUPS: u64 = 1 << 23;

    /// Of a read: other threadgroups read it too.
    pub(crate) const OTHER_GROUPS: u64 = 8;

    pub(crate) fn new(group: u64, thread: usize, barriers: u64, simd_barriers: u64) -> Self {
        Self((group % Self::GROUPS) << 41 | (thread as u64) << 31 | (barriers & 0xffff) << 15 | (simd_barriers & 0x7ff) << 4)
    }

    pub(crate) fn group(self) -> u64 {
        self.0 >> 41
    }

    pub(crate) fn thread(self) -> usize {
        (self.0 >> 31 & 0x3ff) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_kinds_are_numbered_in_order() {
        assert!(EventKind::ALL.iter().enumerate().all(|(at, kind)| *kind as usize == at));
    }

    #[test]
    fn records_keep_group_and_thread() {
        let record = Record::new(8_388_607, 1023, 70_000, 5000);
        assert_eq!((record.group(), record.thread()), (8_388_607, 1023));
        assert_eq!(record.0 & 15, 0);
    }
}
