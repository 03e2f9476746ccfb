//! The lanes of one strip: one block, or several that lie side by side.

use elinvar_core::DType;
use elinvar_math::float::Float;
use half::{bf16, f16};

use super::{
    active::Active,
    code::Code,
    line::Straight,
    ops::{self, elements, elements_mut},
    place::Place,
    range::Range,
    slot::{Line, Slot, Tiles, count_up},
};

/// An open block.
pub(super) enum Frame {
    /// All that came took the same branch.
    Together,
    /// Those that take the other branch, or have taken the first.
    Apart(Active),
    /// A loop: who came, who has gone on to the next repetition, repetitions done.
    Loop { entered: Active, continued: Active, done: u32, bound: Option<u32> },
}

/// The state of a strip; it is used for one after the other.
pub(super) struct Strip<'a> {
    pub(super) code: &'a Code,
    pub(super) slots: Vec<Slot<'a>>,
    /// Buffers, then shared arrays.
    pub(super) memory: Vec<Range<'a>>,
    pub(super) place: Place,
    pub(super) active: Active,
    pub(super) lanes: usize,
    pub(super) tiles: Tiles,
    pub(super) straight: Straight<'a>,
    pub(super) frames: Vec<Frame>,
    pub(super) exited: Active,
    pub(super) traps: bool,
    /// Steps that its loops may still take.
    pub(super) left: u64,
}

pub(super) fn bytes(lines: &[Line], bytes: usize) -> &[u8] {
    bytemuck::cast_slice(lines).get(..bytes).unwrap_or(&[])
}

pub(super) fn bytes_mut(lines: &mut [Line], bytes: usize) -> &mut [u8] {
    bytemuck::cast_slice_mut(lines).get_mut(..bytes).unwrap_or(&mut [])
}

/// Halves as f32.
pub(super) fn widen(dtype: DType, from: &[u8], to: &mut [u8]) {
    match dtype {
        DType::F16 => f16::widen_into(elements(from), elements_mut(to)),
        _ => bf16::widen_into(elements(from), elements_mut(to)),
    }
}

/// f32 as halves.
pub(super) fn narrow(dtype: DType, from: &[u8], to: &mut [u8]) {
    match dtype {
        DType::F16 => f16::narrow_into(elements(from), elements_mut(to)),
        _ => bf16::narrow_into(elements(from), elements_mut(to)),
    }
}

impl<'a> Strip<'a> {
    pub(super) fn new(code: &'a Code, memory: Vec<Range<'a>>, place: Place, scalars: &[(u32, u64)], capacity: usize, traps: bool) -> Self {
        let mut slots: Vec<_> = code.slots.iter().map(|&dtype| Slot::new(dtype)).collect();
        for &(slot, bits) in code.constants.iter().chain(scalars) {
            slots[slot as usize].set_uniform(bits);
        }
        let (tiles, straight) = (Tiles::new(capacity, code.width), Straight::new(slots.len(), code.width));
        let (active, exited, frames) = (Active::All, Active::None, Vec::new());
        Self { code, slots, memory, place, active, lanes: capacity, tiles, straight, frames, exited, traps, left: 0 }
    }

    pub(super) fn fill(&mut self, slot: u32) {
        self.slots[slot as usize].fill(&mut self.tiles);
    }

    /// The lanes become the register's.
    pub(super) fn commit(&mut self, to: u32, blend: bool, made: Vec<Line>) {
        let slot = &mut self.slots[to as usize];
        match self.active.mask().filter(|_| blend) {
            Some(mask) => {
                slot.blend(mask, bytes(&made, self.lanes * slot.dtype.size()), &mut self.tiles);
                self.tiles.give(made);
            }
            None => slot.set_data(made, &mut self.tiles),
        }
    }

    pub(super) fn set_uniform(&mut self, to: u32, bits: u64, blend: bool) {
        let slot = &mut self.slots[to as usize];
        if blend && self.active.mask().is_some() {
            let (size, mut made) = (slot.dtype.size(), self.tiles.take());
            ops::splat(size, bits, bytes_mut(&mut made, self.lanes * size));
            self.commit(to, blend, made);
        } else {
            slot.set_uniform(bits);
        }
    }

    /// The register's lanes count up from `first`, which and whose last number its type holds.
    pub(super) fn set_first(&mut self, to: u32, first: u64, blend: bool) {
        if blend && self.active.mask().is_some() {
            let (dtype, mut made) = (self.slots[to as usize].dtype, self.tiles.take());
            count_up(dtype, first, bytes_mut(&mut made, self.lanes * dtype.size()));
            self.commit(to, blend, made);
        } else {
            self.slots[to as usize].set_first(first);
        }
    }
}
