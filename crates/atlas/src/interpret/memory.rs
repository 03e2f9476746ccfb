//! Loads, stores and atomics.

use std::sync::atomic::{AtomicI32, AtomicU32, Ordering::Relaxed};

use elinvar_core::DType;

use super::{
    fault::{Fault, Result},
    ops::{self, elements, elements_mut},
    strip::{Strip, bytes_mut},
};
use crate::program::Atomic;

impl Strip<'_> {
    /// Rejects an index out of bounds of a lane that runs, where the program asks for that.
    fn trap(&mut self, memory: u32, index: u32, at: usize) -> Result<()> {
        if !self.traps || self.active.is_none() {
            return Ok(());
        }
        self.fill(index);
        let (slot, length) = (&self.slots[index as usize], self.memory[memory as usize].length);
        let place = |lane: usize| place_of(slot.dtype, slot.bytes(self.lanes), lane);
        let runs = |lane: usize| self.active.mask().is_none_or(|mask| mask[lane] != 0);
        let outside = (0..self.lanes).find(|&lane| runs(lane) && place(lane) >= length);
        match outside {
            Some(lane) => {
                let element = if slot.dtype == DType::U64 { i128::from(place(lane)) } else { i128::from(place(lane) as i64) };
                Err(Fault { step: at, what: format!("element {element} of {length} is out of bounds") })
            }
            None => Ok(()),
        }
    }

    pub(super) fn load(&mut self, to: u32, memory: u32, index: u32, blend: bool, at: usize) -> Result<()> {
        if self.active.is_none() {
            return Ok(());
        }
        let (place, lanes) = (&self.slots[index as usize], self.lanes);
        let range = &self.memory[memory as usize];
        let size = range.size;
        let truth = self.slots[to as usize].dtype == DType::Bool;
        let whole = !truth && (!blend || self.active.mask().is_none());
        if let Some(first) = place.first.filter(|&first| range.holds(first, lanes)) {
            let (from, bytes) = (first as usize * size, lanes * size);
            match range.constant.filter(|_| whole) {
                Some(constant) => self.slots[to as usize].set_view(&constant[from..from + bytes]),
                None => {
                    let mut made = self.tiles.take();
                    // SAFETY: in bounds; the lines made are the strip's own.
                    unsafe { range.pointer.add(from).copy_to_nonoverlapping(made.as_mut_ptr().cast(), bytes) };
                    if truth {
                        as_truth(bytes_mut(&mut made, lanes));
                    }
                    self.commit(to, blend, made);
                }
            }
            return Ok(());
        }
        self.trap(memory, index, at)?;
        let (place, range) = (&self.slots[index as usize], &self.memory[memory as usize]);
        if let Some(place_bits) = place.uniform {
            let mut value = [0u64; 1];
            range.gather(place.dtype, &bytemuck::bytes_of(&place_bits)[..place.dtype.size()], &mut bytemuck::bytes_of_mut(&mut value)[..size]);
            self.set_uniform(to, if truth { u64::from(value[0] != 0) } else { value[0] }, blend);
            return Ok(());
        }
        self.fill(index);
        let place = &self.slots[index as usize];
        let mut made = self.tiles.take();
        let out = bytes_mut(&mut made, lanes * size);
        let range = &self.memory[memory as usize];
        range.gather(place.dtype, place.bytes(lanes), out);
        if truth {
            as_truth(out);
        }
        self.commit(to, blend, made);
        Ok(())
    }

    pub(super) fn store(&mut self, memory: u32, index: u32, value: u32, at: usize) -> Result<()> {
        if self.active.is_none() {
            return Ok(());
        }
        self.fill(value);
        let lanes = self.lanes;
        let (place, range) = (&self.slots[index as usize], &self.memory[memory as usize]);
        if let Some(first) = place.first.filter(|&first| self.active.mask().is_none() && range.holds(first, lanes)) {
            let from = self.slots[value as usize].bytes(lanes);
            if let Some(to) = range.elements(first, lanes) {
                to.copy_from_slice(from);
            }
            return Ok(());
        }
        self.trap(memory, index, at)?;
        self.fill(index);
        let (place, range) = (&self.slots[index as usize], &self.memory[memory as usize]);
        let value = self.slots[value as usize].bytes(lanes);
        // SAFETY: the range says what its pointer is to; the verifier saw that it is no buffer that is only read.
        unsafe { ops::scatter(place.dtype, range.size, (range.pointer, range.length), place.bytes(lanes), value, self.active.mask()) };
        Ok(())
    }

    /// An atomic for each lane that runs, in ascending order; without `op`, the exchange of an expected value.
    pub(super) fn atomic(
        &mut self,
        op: Option<Atomic>,
        (to, blend): (Option<u32>, bool),
        memory: u32,
        index: u32,
        (expected, value): (u32, u32),
        at: usize,
    ) -> Result<()> {
        if self.active.is_none() {
            return Ok(());
        }
        self.trap(memory, index, at)?;
        [index, expected, value].into_iter().for_each(|slot| self.fill(slot));
        let lanes = self.lanes;
        let (place, range) = (&self.slots[index as usize], &self.memory[memory as usize]);
        let signed = self.slots[value as usize].dtype == DType::I32;
        let values = elements::<u32>(self.slots[value as usize].bytes(lanes));
        let expected = elements::<u32>(self.slots[expected as usize].bytes(lanes));
        let mut made = self.tiles.take();
        let old = elements_mut::<u32>(bytes_mut(&mut made, 4 * lanes));
        let places = place.bytes(lanes);
        for (lane, old) in old.iter_mut().enumerate() {
            let element = place_of(place.dtype, places, lane);
            *old = 0;
            if element < range.length && self.active.mask().is_none_or(|mask| mask[lane] != 0) {
                // SAFETY: in bounds and aligned; elements of atomics are 32 bits.
                let target = unsafe { range.pointer.cast::<u32>().add(element as usize) };
                // SAFETY: as above; other threads touch the element by atomics too, or race.
                *old = unsafe { exchange(op, target, expected[lane], values[lane], signed) };
            }
        }
        match to {
            Some(to) => self.commit(to, blend, made),
            None => self.tiles.give(made),
        }
        Ok(())
    }
}

/// Any byte but zero is true.
fn as_truth(lanes: &mut [u8]) {
    lanes.iter_mut().for_each(|lane| *lane = u8::from(*lane != 0));
}

/// # Safety
/// `target` is valid for atomic access.
unsafe fn exchange(op: Option<Atomic>, target: *mut u32, expected: u32, value: u32, signed: bool) -> u32 {
    // SAFETY: by the caller.
    let element = unsafe { AtomicU32::from_ptr(target) };
    // SAFETY: by the caller.
    let number = unsafe { AtomicI32::from_ptr(target.cast()) };
    match op {
        Some(Atomic::Add) => element.fetch_add(value, Relaxed),
        Some(Atomic::Min) if signed => number.fetch_min(value as i32, Relaxed) as u32,
        Some(Atomic::Max) if signed => number.fetch_max(value as i32, Relaxed) as u32,
        Some(Atomic::Min) => element.fetch_min(value, Relaxed),
        Some(Atomic::Max) => element.fetch_max(value, Relaxed),
        Some(Atomic::And) => element.fetch_and(value, Relaxed),
        Some(Atomic::Or) => element.fetch_or(value, Relaxed),
        Some(Atomic::Xor) => element.fetch_xor(value, Relaxed),
        Some(Atomic::Exchange) => element.swap(value, Relaxed),
        None => element.compare_exchange(expected, value, Relaxed, Relaxed).unwrap_or_else(|found| found),
    }
}

/// A lane's index, negative ones beyond every end.
fn place_of(dtype: DType, places: &[u8], lane: usize) -> u64 {
    match dtype {
        DType::I32 => elements::<i32>(places)[lane] as i64 as u64,
        DType::U64 | DType::I64 => elements::<u64>(places)[lane],
        DType::U32 => u64::from(elements::<u32>(places)[lane]),
        // Of no other type is an index.
        DType::F32 | DType::F16 | DType::BF16 | DType::F64 | DType::I8 | DType::I16 | DType::U8 | DType::U16 | DType::Bool => u64::MAX,
    }
}
