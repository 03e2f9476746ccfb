//! Runs the steps for the lanes of one strip: one block, or several that lie side by side.

use elinvar_core::DType;
use elinvar_math::float::Float;
use half::{bf16, f16};

use super::{
    Fault, Range, Result,
    active::Active,
    lower::{Apply, Code, Kernel, Rule, Step},
    ops::{self, elements, elements_mut},
    positions::Place,
    slot::{Line, Slot, largest, lines},
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
    /// Lanes, and the most there are.
    pub(super) lanes: usize,
    pub(super) capacity: usize,
    /// Where results are made before they take their register's place.
    pub(super) spare: Vec<Line>,
    /// Halves as f32: three operands and a result.
    pub(super) wide: [Vec<Line>; 4],
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
        let wide = std::array::from_fn(|_| lines(capacity));
        let (active, exited, frames) = (Active::All, Active::None, Vec::new());
        Self { code, slots, memory, place, active, lanes: capacity, capacity, spare: lines(capacity), wide, frames, exited, traps, left: 0 }
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
            next = self.step(step, next)?;
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
            Step::Nothing => {}
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
        self.slots[slot as usize].fill(self.capacity);
    }

    /// The lanes made in `spare` become the register's.
    pub(super) fn commit(&mut self, to: u32, blend: bool) {
        let slot = &mut self.slots[to as usize];
        match self.active.mask().filter(|_| blend) {
            Some(mask) => slot.blend(mask, bytes(&self.spare, self.lanes * slot.dtype.size()), self.capacity),
            None => slot.set_data(&mut self.spare),
        }
    }

    pub(super) fn set_uniform(&mut self, to: u32, bits: u64, blend: bool) {
        let slot = &mut self.slots[to as usize];
        if blend && self.active.mask().is_some() {
            let size = slot.dtype.size();
            ops::splat(size, bits, bytes_mut(&mut self.spare, self.lanes * size));
            self.commit(to, blend);
        } else {
            slot.set_uniform(bits);
        }
    }

    /// The register's lanes count up from `first`, which and whose last number its type holds.
    pub(super) fn set_first(&mut self, to: u32, first: u64, blend: bool) {
        if blend && self.active.mask().is_some() {
            let mut counted = Slot::new(self.slots[to as usize].dtype);
            counted.set_first(first);
            counted.fill(self.capacity);
            counted.swap(&mut self.spare);
            self.commit(to, blend);
        } else {
            self.slots[to as usize].set_first(first);
        }
    }

    /// Runs an operation: whether its result was stored too.
    fn apply(&mut self, apply: &Apply) -> bool {
        if self.active.is_none() {
            return false;
        }
        let from = &apply.from[..apply.count];
        if from.iter().all(|&slot| self.slots[slot as usize].uniform.is_some()) {
            let bits = self.apply_once(apply);
            self.set_uniform(apply.to, bits, apply.blend);
            return false;
        }
        if apply.rule != Rule::None && self.apply_to_count(apply) {
            return false;
        }
        for &slot in from {
            self.slots[slot as usize].fill(self.capacity);
        }
        let lanes = self.lanes;
        if apply.widen {
            for (&slot, wide) in from.iter().zip(&mut self.wide) {
                let slot = &self.slots[slot as usize];
                widen(slot.dtype, slot.bytes(lanes), bytes_mut(wide, 4 * lanes));
            }
        }
        let [wide @ .., result] = &mut self.wide;
        let operand = |index: usize| if apply.widen { bytes(&wide[index], 4 * lanes) } else { self.slots[apply.from[index] as usize].bytes(lanes) };
        let dtype = self.slots[apply.to as usize].dtype;
        let whole = self.active.mask().is_none();
        let target = apply.stored.filter(|_| whole).and_then(|(memory, index)| {
            let first = self.slots[index as usize].first?;
            let range = &self.memory[memory as usize];
            range.fetch_after(first, lanes);
            range.elements(first, lanes)
        });
        let stored = target.is_some();
        let place = target.unwrap_or_else(|| bytes_mut(&mut self.spare, lanes * dtype.size()));
        let (out, place) = if apply.narrow { (bytes_mut(result, 4 * lanes), Some(place)) } else { (place, None) };
        match apply.kernel {
            Kernel::One(kernel) => kernel(operand(0), out),
            Kernel::Two(kernel) => kernel(operand(0), operand(1), out),
            Kernel::Three(kernel) => kernel(operand(0), operand(1), operand(2), out),
        }
        if let Some(place) = place {
            narrow(dtype, bytes(result, 4 * lanes), place);
        }
        if !stored {
            self.commit(apply.to, apply.blend);
        }
        stored
    }

    /// The operation on operands that are the same in every lane.
    fn apply_once(&self, apply: &Apply) -> u64 {
        let mut operands = [[0u64; 1]; 3];
        for (operand, &slot) in operands.iter_mut().zip(&apply.from[..apply.count]) {
            let slot = &self.slots[slot as usize];
            let bits = slot.uniform.unwrap_or(0);
            if apply.widen {
                let narrow = [bits];
                widen(slot.dtype, &bytemuck::bytes_of(&narrow)[..2], &mut bytemuck::bytes_of_mut(operand)[..4]);
            } else {
                *operand = [bits];
            }
        }
        let operand = |index: usize| {
            let size = if apply.widen { 4 } else { self.slots[apply.from[index] as usize].dtype.size() };
            &bytemuck::bytes_of(&operands[index])[..size]
        };
        let dtype = self.slots[apply.to as usize].dtype;
        let mut result = [0u64; 1];
        let out = &mut bytemuck::bytes_of_mut(&mut result)[..if apply.narrow { 4 } else { dtype.size() }];
        match apply.kernel {
            Kernel::One(kernel) => kernel(operand(0), out),
            Kernel::Two(kernel) => kernel(operand(0), operand(1), out),
            Kernel::Three(kernel) => kernel(operand(0), operand(1), operand(2), out),
        }
        if apply.narrow {
            let wide = result;
            result = [0];
            narrow(dtype, &bytemuck::bytes_of(&wide)[..4], &mut bytemuck::bytes_of_mut(&mut result)[..2]);
        }
        result[0]
    }

    /// The operation where an operand's lanes count up, if what is known suffices.
    fn apply_to_count(&mut self, apply: &Apply) -> bool {
        let known = |slot: u32| (self.slots[slot as usize].first, self.slots[slot as usize].uniform);
        let (a, b) = (known(apply.from[0]), known(apply.from[1]));
        let last = self.lanes as u64 - 1;
        let result = self.slots[apply.to as usize].dtype;
        let operand = self.slots[apply.from[0] as usize].dtype;
        let fits = |first: u64, dtype: DType| largest(dtype).is_some_and(|most| first.checked_add(last).is_some_and(|end| end <= most));
        let positive = |uniform: u64| largest(operand).is_some_and(|most| uniform <= most);
        match (apply.rule, a, b) {
            (Rule::Same, (Some(first), _), _) if fits(first, result) => self.set_first(apply.to, first, apply.blend),
            (Rule::Add, (Some(first), _), (_, Some(other))) | (Rule::Add, (_, Some(other)), (Some(first), _)) if positive(other) => {
                match first.checked_add(other).filter(|&sum| fits(sum, result)) {
                    Some(sum) => self.set_first(apply.to, sum, apply.blend),
                    None => return false,
                }
            }
            (Rule::Sub, (Some(first), _), (_, Some(other))) if positive(other) && first >= other => {
                self.set_first(apply.to, first - other, apply.blend)
            }
            (Rule::Lt | Rule::Ge, (Some(first), _), (_, Some(limit))) if positive(limit) && (first + last < limit || first >= limit) => {
                let less = first < limit;
                self.set_uniform(apply.to, u64::from(less == (apply.rule == Rule::Lt)), apply.blend);
            }
            _ => return false,
        }
        true
    }
}
