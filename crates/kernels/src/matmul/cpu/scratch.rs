//! Working memory of the engines: aligned to cache lines, kept by each thread for the next product.

use std::{
    cell::RefCell,
    ops::{Deref, DerefMut},
};

/// Elements a thread keeps; larger buffers are freed.
const KEPT: usize = 1 << 22;

/// f32 in a cache line.
pub(crate) const LINE: usize = 16;

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line(#[allow(dead_code, reason = "reached through a raw pointer")] [f32; LINE]);

thread_local! {
    static FREE: RefCell<Vec<Vec<Line>>> = const { RefCell::new(Vec::new()) };
}

/// A buffer of f32 with arbitrary content.
pub(crate) struct Scratch {
    lines: Vec<Line>,
    length: usize,
}

impl Scratch {
    pub(crate) fn new(length: usize) -> Self {
        if length == 0 {
            return Self { lines: Vec::new(), length };
        }
        let count = length.div_ceil(LINE);
        let mut lines = FREE.with_borrow_mut(|free| {
            let best = (0..free.len()).filter(|&i| free[i].len() >= count).min_by_key(|&i| free[i].len()).or_else(|| free.len().checked_sub(1));
            best.map(|i| free.swap_remove(i)).unwrap_or_default()
        });
        if lines.len() < count {
            lines.clear();
            lines.resize(count, Line([0.0; LINE]));
        }
        Self { lines, length }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let lines = std::mem::take(&mut self.lines);
        if lines.is_empty() {
            return;
        }
        // A thread that is ending has no list any more.
        let _ = FREE.try_with(|free| {
            let mut free = free.borrow_mut();
            let kept: usize = free.iter().map(|lines| lines.len() * LINE).sum();
            if kept + lines.len() * LINE <= KEPT {
                free.push(lines);
            }
        });
    }
}

impl Deref for Scratch {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        // SAFETY: `Line` is an array of f32 without padding (64 bytes, aligned to 64), and at least `length` of them are there.
        unsafe { std::slice::from_raw_parts(self.lines.as_ptr().cast(), self.length) }
    }
}

impl DerefMut for Scratch {
    fn deref_mut(&mut self) -> &mut [f32] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast(), self.length) }
    }
}
