//! Runs the steps for the lanes of one strip: one block, or several that lie side by side.

use elinvar_core::DType;
use elinvar_math::float::Float;
use half::{bf16, f16};

use super::{
    Fault, Range, Result,
    active::Active,
    lower::{Code, Step},
    ops::{self, elements, elements_mut},
    positions::Place,
    slot::{Line, Slot, Tiles, count_up},
    straight::Straight,
};

/// An open block.
enum Frame {
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
    frames: Vec<Frame>,
    exited: Active,
    pub(super) traps: bool,
    /// Steps that its loops may still take.
    left: u64,
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

    /// Runs `count` blocks from block `first` on, whose loops may take so many steps.
    pub(super) fn run(&mut self, first: u64, count: usize, registers: usize, steps: Option<u32>) -> Result<()> {
        self.left = steps.map_or(u64::MAX, u64::from);
        self.lanes = self.place.begin(first, count);
        self.slots[..registers].iter_mut().for_each(Slot::clear);
        self.memory.iter_mut().for_each(Range::begin);
        (self.active, self.exited) = (Active::All, Active::None);
        self.frames.clear();
        let mut next = 0;
        while let Some(step) = self.code.steps.get(next) {
            let at = next;
            let until = self.code.until[at];
            if until > at + 1 && matches!(self.active, Active::All) {
                next = self.straight_line(at, until);
                if next > at {
                    continue;
                }
            }
            next = self.step(step, at)?;
            for &slot in &self.code.dead[at] {
                self.slots[slot as usize].release(&mut self.tiles);
            }
        }
        Ok(())
    }

    /// Runs a step: the number of the next one.
    fn step(&mut self, step: &'a Step, at: usize) -> Result<usize> {
        match step {
            Step::Apply(apply) => return Ok(at + if self.apply(apply) { 2 } else { 1 }),
            Step::Position { to, position, blend } => self.position(*to, *position, *blend),
            Step::Load { to, memory, index, blend } => self.load(*to, *memory, *index, *blend, at)?,
            Step::Store { memory, index, value } => self.store(*memory, *index, *value, at)?,
            Step::Atomic { op, to, memory, index, expected, value, blend } => {
                self.atomic(*op, (*to, *blend), *memory, *index, (*expected, *value), at)?
            }
            Step::Reduce { scope, kernel, half, to, a, blend } => self.reduce(*scope, *kernel, *half, *to, *a, *blend),
            Step::Shuffle { kind, to, a, by, blend } => self.shuffle(*kind, *to, *a, *by, *blend),
            Step::If { condition, otherwise, has_else } => return Ok(self.branch(*condition, *otherwise, *has_else).unwrap_or(at + 1)),
            Step::Else { end } => {
                if let Some(Frame::Apart(rest)) = self.frames.last_mut() {
                    std::mem::swap(&mut self.active, rest);
                } else {
                    self.frames.pop();
                    return Ok(end + 1);
                }
            }
            Step::EndIf => {
                if let Some(Frame::Apart(rest)) = self.frames.pop() {
                    self.active = std::mem::replace(&mut self.active, Active::None).join(rest);
                }
            }
            Step::Loop { bound } => {
                let entered = self.active.clone();
                self.frames.push(Frame::Loop { entered, continued: Active::None, done: 0, bound: *bound });
            }
            Step::While { condition } => match self.slots[*condition as usize].uniform {
                Some(0) => self.active = Active::None,
                Some(_) => {}
                None => {
                    self.fill(*condition);
                    self.active.retain(self.slots[*condition as usize].bytes(self.lanes));
                }
            },
            Step::Break => self.active = Active::None,
            Step::Continue => {
                let active = std::mem::replace(&mut self.active, Active::None);
                let innermost = self.frames.iter_mut().rev().find_map(|f| if let Frame::Loop { continued, .. } = f { Some(continued) } else { None });
                if let Some(continued) = innermost {
                    *continued = std::mem::replace(continued, Active::None).join(active);
                }
            }
            Step::EndLoop { start } => return self.repeat(*start, at),
            Step::Exit => {
                let active = std::mem::replace(&mut self.active, Active::None);
                self.exited = std::mem::replace(&mut self.exited, Active::None).join(active);
            }
            Step::Fence => std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst),
            Step::Barrier | Step::Nothing => {}
        }
        Ok(at + 1)
    }

    /// Enters an `if`: the step to jump to if nobody takes the first branch.
    fn branch(&mut self, condition: u32, otherwise: usize, has_else: bool) -> Option<usize> {
        let (taken, rest) = match self.slots[condition as usize].uniform {
            _ if self.active.is_none() => (Active::None, Active::None),
            Some(0) => (Active::None, std::mem::replace(&mut self.active, Active::None)),
            Some(_) => (std::mem::replace(&mut self.active, Active::None), Active::None),
            None => {
                self.fill(condition);
                self.active.split(self.slots[condition as usize].bytes(self.lanes))
            }
        };
        let jumps = taken.is_none();
        match (taken, rest) {
            (Active::None, rest) => {
                self.active = rest;
                if has_else {
                    self.frames.push(Frame::Together);
                }
            }
            (taken, Active::None) => {
                self.active = taken;
                self.frames.push(Frame::Together);
            }
            (taken, rest) => {
                self.active = taken;
                self.frames.push(Frame::Apart(rest));
            }
        }
        jumps.then_some(otherwise)
    }

    /// The end of a loop's block.
    fn repeat(&mut self, start: usize, at: usize) -> Result<usize> {
        let left = self.left.checked_sub((at - start) as u64);
        self.left = left.ok_or_else(|| Fault { step: start, what: crate::verify::TOO_MANY_STEPS.to_owned() })?;
        let Some(Frame::Loop { continued, done, bound, entered }) = self.frames.last_mut() else { return Ok(at + 1) };
        *done = done.wrapping_add(1);
        let continued = std::mem::replace(continued, Active::None);
        self.active = std::mem::replace(&mut self.active, Active::None).join(continued);
        if !self.active.is_none() && bound.is_none_or(|bound| *done < bound) {
            return Ok(start + 1);
        }
        self.active = std::mem::replace(entered, Active::None).without(&self.exited, self.lanes);
        self.frames.pop();
        Ok(at + 1)
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
