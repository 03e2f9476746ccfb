//! One simdgroup: its lanes run in turn until each has parked or returned; then the collective operation or the simdgroup barrier that most lanes
//! can take part in goes ahead.

use std::ptr;

use super::{
    Runner,
    fiber::Fiber,
    group::{location, same_site},
    shared::{Site, State, Thread},
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
                let at = self.site(start);
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
        trap::disarm();
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
        for (at, lane) in order[..lanes.len()].iter().enumerate() {
            let (shared, thread) = (self.shared(), lanes.start + usize::from(*lane));
            if let Some(next) = order[..lanes.len()].get(at + 1) {
                shared.threads[lanes.start + usize::from(*next)].prefetch();
            }
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
                State::Done | State::Fresh | State::Ready | State::Running => &mut now.done,
            };
            *mask |= 1 << lane;
        }
        now
    }

    fn site(&self, thread: usize) -> Site {
        self.shared().threads[thread].site.get()
    }

    /// Runs the collective operation that comes first in the text, over the lanes that wait there.
    fn collective(&mut self, lanes: std::ops::Range<usize>, now: &Lanes) {
        let waiting = bits(now.collective).map(|lane| lanes.start + lane);
        let Some(chosen) = waiting.clone().min_by_key(|thread| self.site(*thread).line) else { return };
        let (mut slots, mut active) = ([ptr::null_mut(); SIMD_WIDTH], 0u32);
        for thread in waiting {
            let threads = &self.shared().threads;
            if same_operation(&threads[thread], &threads[chosen]) {
                slots[thread - lanes.start] = threads[thread].collective.get().slot;
                active |= 1 << (thread - lanes.start);
            }
        }
        let (site, collective) = (self.site(chosen), self.shared().threads[chosen].collective.get());
        let operation = text(collective.operation);
        let first = lanes.start + active.trailing_zeros() as usize;
        let wanted = if operation.starts_with("quad_") { quads(active) } else { u32::MAX };
        let missing = !(active | now.ended) & mask(lanes.len()) & wanted;
        // Operations on matrices read all 32 slots.
        let impossible = active != u32::MAX && operation.starts_with("simdgroup_");
        self.outcome.counters.matrix_products += u64::from(operation == "simdgroup_multiply_accumulate");
        if missing != 0 || (impossible && now.ended == 0) {
            self.divergent_collective(first, site, &operation, active, missing);
        }
        for thread in bits(active).map(|lane| lanes.start + lane) {
            match impossible {
                true => self.abandon(thread, self.shared().threads[thread].fiber.get()),
                false => self.shared().threads[thread].state.set(State::Ready),
            }
        }
        if let Some(combine) = collective.combine.filter(|_| !impossible) {
            // SAFETY: the prelude's function, over the slots that its lanes handed over for it; the lanes are parked.
            unsafe { combine(slots.as_mut_ptr(), active) };
        }
    }

    fn divergent_collective(&mut self, thread: usize, site: Site, operation: &str, active: u32, missing: u32) {
        if ABOUT_ACTIVE_LANES.contains(&operation) {
            return;
        }
        let others = if missing == 0 {
            "the simdgroup has no more, and it needs all 32".to_owned()
        } else {
            format!("lanes {missing:#010x} have returned or are elsewhere")
        };
        let message = format!("{operation} is executed by lanes {active:#010x} alone: {others}");
        self.diverge(FindingKind::DivergentSimd, thread, site, message);
    }

    fn simdgroup_barrier(&mut self, simdgroup: usize, lanes: std::ops::Range<usize>, now: &Lanes) {
        let waiting: Vec<usize> = bits(now.simdgroup_barrier).map(|lane| lanes.start + lane).collect();
        let Some(first) = waiting.first().copied() else { return };
        let site = self.site(first);
        let missing = now.done | now.threadgroup_barrier;
        if let Some(other) = waiting.iter().find(|thread| !same_site(self.site(**thread), site)) {
            let at = location(self.site(*other)).map_or_else(|| "another".to_owned(), |at| at.to_string());
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
        let flags = waiting.iter().fold(0, |flags, thread| flags | self.shared().threads[*thread].flags.get());
        self.open(flags, lanes, State::SimdgroupBarrier, Some(simdgroup));
    }
}

fn same_operation(a: &Thread, b: &Thread) -> bool {
    let combine = |thread: &Thread| thread.collective.get().combine.map(|combine| combine as *const ());
    combine(a) == combine(b) && same_site(a.site.get(), b.site.get())
}

/// The numbers of the bits that are set.
fn bits(mut mask: u32) -> impl Iterator<Item = usize> + Clone {
    std::iter::from_fn(move || {
        let lowest = (mask != 0).then(|| mask.trailing_zeros() as usize)?;
        mask &= mask - 1;
        Some(lowest)
    })
}

/// The lanes of the quadgroups that any of these lanes belongs to.
fn quads(lanes: u32) -> u32 {
    let any = lanes | lanes >> 1 | lanes >> 2 | lanes >> 3;
    (any & 0x1111_1111) * 0xf
}

fn mask(lanes: usize) -> u32 {
    if lanes >= SIMD_WIDTH { u32::MAX } else { (1 << lanes) - 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quadgroups_are_four_lanes() {
        assert_eq!(quads(0b0010_0000_0001), 0b1111_0000_1111);
        assert_eq!(quads(1 << 31), 0xf << 28);
        assert_eq!(bits(0b1010_0001).collect::<Vec<_>>(), [0, 5, 7]);
    }
}
