//! Runs the steps for the lanes of a strip.

use super::{
    active::Active,
    code::Step,
    fault::{Fault, Result},
    range::Range,
    slot::Slot,
    strip::{Frame, Strip},
};
use crate::verify::TOO_MANY_STEPS;

impl<'a> Strip<'a> {
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
        self.left = left.ok_or_else(|| Fault { step: start, what: TOO_MANY_STEPS.to_owned() })?;
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
}
