//! One simdgroup: its lanes run in turn until each has parked or returned; then the collective operation or the simdgroup barrier that most lanes
//! can take part in goes ahead.

use std::ptr;

use super::{
    Runner,
    fiber::Fiber,
    group::{location, same_site},
    shared::{Parked, State},
    text, trap,
};
use crate::{abi::SIMD_WIDTH, finding::FindingKind};

/// Operations that ask which lanes are active: meant for divergent code.
const ABOUT_ACTIVE_LANES: &[&str] =
    &["simd_active_threads_mask", "simd_is_first", "simd_is_helper_thread", "quad_active_threads_mask", "quad_is_first"];

/// Lanes by what they do, one bit each.
#[derive(Default)]
struct Lanes {
    collective: u32,
    simdgroup_barrier: u32,
    threadgroup_barrier: u32,
    done: u32,
    ended: u32,
}

impl Runner<'_, '_, '_, '_> {
    /// Runs a simdgroup until all its lanes wait at a threadgroup barrier or are done.
    pub(super) fn run_simdgroup(&mut self, simdgroup: usize, threads: usize, first: bool) {
        let start = simdgroup * SIMD_WIDTH;
        let lanes = start..threads.min(start + SIMD_WIDTH);
        if first {
            self.start_lanes(lanes.clone());
        } else {
            self.resume_lanes(lanes.clone());
        }
        while !self.halted() {
            let now = self.lanes(lanes.clone());
            if now.collective != 0 {
                self.collective(lanes.clone(), &now);
            } else if now.simdgroup_barrier != 0 {
                self.simdgroup_barrier(simdgroup, lanes.clone(), &now);
            } else {
                return;
            }
            if trap::expired() {
                let at = self.shared().threads[start].parked.get().site;
                return self.time_out(start, location(at), Vec::new());
            }
            self.resume_lanes(lanes.clone());
        }
    }

    fn start_lanes(&mut self, lanes: std::ops::Range<usize>) {
        let order = self.lane_order(lanes.len());
        let shared = self.shared();
        for (at, lane) in order[..lanes.len()].iter().enumerate() {
            shared.queue[at].set((lanes.start + usize::from(*lane)) as u16);
        }
        shared.queue_next.set(0);
        shared.queue_end.set(lanes.len() as u8);
        while self.shared().queued() && !self.halted() {
            match self.idle_fiber() {
                Ok(fiber) => self.drive(fiber),
                Err(error) => self.error = Some(error),
            }
        }
    }

    fn idle_fiber(&mut self) -> elinvar_core::Result<u16> {
        if let Some(fiber) = self.executor.idle.pop() {
            return Ok(fiber);
        }
        let number = self.executor.fibers.len();
        let shared = &raw const *self.executor.shared;
        self.executor.fibers.push(Fiber::new(number, shared)?);
        Ok(number as u16)
    }

    /// Seeded: a rotation, in one direction or the other.
    fn lane_order(&mut self, count: usize) -> [u8; SIMD_WIDTH] {
        let mut order = std::array::from_fn(|lane| lane as u8);
        if self.job.seed != 0 {
            order[..count].rotate_left(self.executor.random.below(count));
            if self.executor.random.next() & 1 == 1 {
                order[..count].reverse();
            }
        }
        order
    }

    fn resume_lanes(&mut self, lanes: std::ops::Range<usize>) {
        let order = self.lane_order(lanes.len());
        for lane in &order[..lanes.len()] {
            let thread = lanes.start + usize::from(*lane);
            let shared = self.shared();
            if shared.threads[thread].state.get() != State::Ready {
                continue;
            }
            shared.threads[thread].state.set(State::Running);
            shared.set_current(thread);
            let fiber = shared.threads[thread].fiber.get();
            self.drive(fiber);
            if self.halted() {
                return;
            }
        }
    }

    fn lanes(&self, lanes: std::ops::Range<usize>) -> Lanes {
        let mut now = Lanes::default();
        for (lane, thread) in self.shared().threads[lanes].iter().enumerate() {
            let mask = match thread.state.get() {
                State::Collective => &mut now.collective,
                State::SimdgroupBarrier => &mut now.simdgroup_barrier,
                State::ThreadgroupBarrier => &mut now.threadgroup_barrier,
                State::Ended => &mut now.ended,
                _ => &mut now.done,
            };
            *mask |= 1 << lane;
        }
        now
    }

    fn parked(&self, thread: usize) -> Parked {
        self.shared().threads[thread].parked.get()
    }

    /// Runs the collective operation that comes first in the text, over the lanes that wait there.
    fn collective(&mut self, lanes: std::ops::Range<usize>, now: &Lanes) {
        let waiting: Vec<usize> = lanes.clone().filter(|thread| now.collective >> (thread - lanes.start) & 1 == 1).collect();
        let Some(chosen) = waiting.iter().map(|thread| self.parked(*thread)).min_by_key(|parked| parked.site.line) else { return };
        let (mut slots, mut active) = ([ptr::null_mut(); SIMD_WIDTH], 0u32);
        for thread in waiting {
            let parked = self.parked(thread);
            if same_operation(parked, chosen) {
                slots[thread - lanes.start] = parked.slot;
                active |= 1 << (thread - lanes.start);
            }
        }
        let first = lanes.start + active.trailing_zeros() as usize;
        let missing = !(active | now.ended) & mask(lanes.len());
        // Operations on matrices read all 32 slots.
        let impossible = active != u32::MAX && text(chosen.operation).starts_with("simdgroup_");
        if missing != 0 || (impossible && now.ended == 0) {
            self.divergent_collective(first, chosen, active, missing);
        }
        for thread in lanes.clone().filter(|thread| active >> (thread - lanes.start) & 1 == 1) {
            match impossible {
                true => self.abandon(thread, self.shared().threads[thread].fiber.get()),
                false => self.shared().threads[thread].state.set(State::Ready),
            }
        }
        if let Some(combine) = chosen.combine.filter(|_| !impossible) {
            // SAFETY: the prelude's function, over the slots that its lanes handed over for it; the lanes are parked.
            unsafe { combine(slots.as_mut_ptr(), active) };
        }
    }

    fn divergent_collective(&mut self, thread: usize, parked: Parked, active: u32, missing: u32) {
        let operation = text(parked.operation);
        if ABOUT_ACTIVE_LANES.contains(&operation.as_str()) {
            return;
        }
        let others = if missing == 0 {
            "the simdgroup has no more, and it needs all 32".to_owned()
        } else {
            format!("lanes {missing:#010x} have returned or are elsewhere")
        };
        let message = format!("{operation} is executed by lanes {active:#010x} alone: {others}");
        self.diverge(FindingKind::DivergentSimd, thread, parked.site, message);
    }

    fn simdgroup_barrier(&mut self, simdgroup: usize, lanes: std::ops::Range<usize>, now: &Lanes) {
        let waiting: Vec<usize> = lanes.clone().filter(|thread| now.simdgroup_barrier >> (thread - lanes.start) & 1 == 1).collect();
        let Some(first) = waiting.first().copied() else { return };
        let site = self.parked(first).site;
        let missing = now.done | now.threadgroup_barrier;
        if let Some(other) = waiting.iter().find(|thread| !same_site(self.parked(**thread).site, site)) {
            let at = location(self.parked(*other).site).map_or_else(|| "another".to_owned(), |at| at.to_string());
            self.diverge(
                FindingKind::DivergentBarrier,
                first,
                site,
                format!("lanes of one simdgroup wait at different barriers: thread {other} waits at {at}"),
            );
        } else if missing != 0 {
            let message = format!("{} lanes wait at simdgroup_barrier, lanes {missing:#010x} do not reach it", waiting.len());
            self.diverge(FindingKind::DivergentBarrier, first, site, message);
        }
        let flags = waiting.iter().fold(0, |flags, thread| flags | self.parked(*thread).flags);
        self.open(flags, lanes, State::SimdgroupBarrier, Some(simdgroup));
    }
}

fn same_operation(a: Parked, b: Parked) -> bool {
    let combine = |parked: Parked| parked.combine.map(|combine| combine as *const ());
    combine(a) == combine(b) && same_site(a.site, b.site)
}

fn mask(lanes: usize) -> u32 {
    if lanes >= SIMD_WIDTH { u32::MAX } else { (1 << lanes) - 1 }
}
