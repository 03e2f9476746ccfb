//! Loads, stores and atomics.

use std::sync::atomic::{AtomicI32, AtomicU32, Ordering::Relaxed};

use elinvar_core::DType;

use super::{
    Fault, Result,
    ops::{self, elements, elements_mut},
    slot::{Line, lines_of},
    strip::{Strip, bytes_mut},
};
use crate::program::Atomic;

/// Memory of one type: a buffer, or a shared array of the strip.
pub(super) struct Range<'a> {
    pointer: *mut u8,
    length: u64,
    size: usize,
    /// The bytes, of a buffer that is only read.
    constant: Option<&'a [u8]>,
    /// The bytes, of a shared array.
    own: Vec<Line>,
}

// SAFETY: the pointer is to plain bytes that outlive the launch; accesses by several threads are those of the program: see `Range::updated`.
unsafe impl Send for Range<'_> {}
// SAFETY: as above.
unsafe impl Sync for Range<'_> {}

impl<'a> Range<'a> {
    /// No memory, in place of a scalar.
    pub(super) fn none() -> Self {
        Self { pointer: std::ptr::null_mut(), length: 0, size: 1, constant: None, own: Vec::new() }
    }

    /// A buffer that is only read.
    pub(super) fn constant(bytes: &'a [u8], dtype: DType) -> Self {
        let length = (bytes.len() / dtype.size()) as u64;
        Self { pointer: bytes.as_ptr().cast_mut(), length, size: dtype.size(), constant: Some(bytes), own: Vec::new() }
    }

    /// A buffer that is written. It is touched through its pointer alone while the launch lasts; threads of a program that races get some of the
    /// values that are written.
    pub(super) fn updated(bytes: &'a mut [u8], dtype: DType) -> Self {
        let length = (bytes.len() / dtype.size()) as u64;
        Self { pointer: bytes.as_mut_ptr(), length, size: dtype.size(), constant: None, own: Vec::new() }
    }

    /// A shared array.
    pub(super) fn shared(length: u32, dtype: DType) -> Self {
        let mut own = lines_of(length as usize * dtype.size());
        Self { pointer: own.as_mut_ptr().cast(), length: u64::from(length), size: dtype.size(), constant: None, own }
    }

    /// The same buffer for another strip.
    pub(super) fn again(&self) -> Self {
        Self { own: Vec::new(), ..*self }
    }

    /// Shared arrays are zero when a block starts.
    pub(super) fn begin(&mut self) {
        if !self.own.is_empty() {
            bytemuck::cast_slice_mut::<Line, u8>(&mut self.own).fill(0);
            self.pointer = self.own.as_mut_ptr().cast();
        }
    }

    /// The bytes of `lanes` elements from `first` on, to be written by this strip, if they all exist.
    #[allow(clippy::mut_from_ref, reason = "buffers are shared by strips: see `Range::updated`")]
    pub(super) fn elements(&self, first: u64, lanes: usize) -> Option<&mut [u8]> {
        // SAFETY: in bounds. No register is a view of memory that is written, and strips of a program without races write different elements.
        self.holds(first, lanes).then(|| unsafe { std::slice::from_raw_parts_mut(self.pointer.add(first as usize * self.size), lanes * self.size) })
    }

    /// Those bytes, of a buffer that is only read.
    pub(super) fn constant_elements(&self, first: u64, lanes: usize) -> Option<&'a [u8]> {
        let constant = self.constant.filter(|_| self.holds(first, lanes))?;
        Some(&constant[first as usize * self.size..][..lanes * self.size])
    }

    /// The elements that `index` names, zero for those that do not exist.
    pub(super) fn gather(&self, dtype: DType, index: &[u8], out: &mut [u8]) {
        // SAFETY: the pointer is to so many elements.
        unsafe { ops::gather(dtype, self.size, self.pointer, self.length, index, out) };
    }

    /// Whether `lanes` elements from `first` on exist.
    pub(super) fn holds(&self, first: u64, lanes: usize) -> bool {
        first.checked_add(lanes as u64).is_some_and(|end| end <= self.length)
    }
}

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
        _ => u64::from(elements::<u32>(places)[lane]),
    }
}
