//! One threadgroup: its simdgroups run in turn until each waits at a threadgroup barrier or is done; then the barrier opens.

use elinvar_msl::{Location, Position};

use super::{
    Runner,
    raw::Raw,
    shared::{self, Signal, Site, State},
    text, trap,
};
use crate::{
    abi::{Record, SIMD_WIDTH},
    finding::FindingKind,
};

impl Runner<'_, '_, '_, '_> {
    pub(super) fn start_group(&mut self, at: u64, position: [u32; 3]) {
        let sequence = self.job.schedule.first() + at;
        trap::begin_group(sequence);
        let number = sequence % Record::GROUPS;
        let shared = &mut self.executor.shared;
        shared.group.set(shared::Group { number, position, stride: self.job.dispatch.threads_per_threadgroup });
        shared.positions.get_mut().0[Position::ThreadgroupPositionInGrid as usize] = position;
        shared.barriers.set([0; 2]);
        shared.simd_barriers.iter().for_each(|barriers| barriers.set([0; 2]));
        let context = shared.context.get_mut();
        context.oldest_group[1] = number;
        if self.checked {
            self.executor.locals.used().iter().for_each(super::local::Local::poison);
        }
    }

    /// Runs `threads` threads to their ends.
    pub(super) fn run_group(&mut self, threads: usize) {
        let mut order: [u8; 32] = std::array::from_fn(|index| index as u8);
        let order = &mut order[..threads.div_ceil(SIMD_WIDTH)];
        for thread in &self.shared().threads[..threads] {
            thread.state.set(State::Fresh);
        }
        self.outcome.threads += threads as u64;
        let mut first = true;
        loop {
            if self.job.seed != 0 && order.len() > 1 {
                self.executor.random.shuffle(order);
            }
            for simdgroup in order.iter() {
                self.run_simdgroup(usize::from(*simdgroup), threads, first);
                if self.halted() {
                    return;
                }
            }
            first = false;
            if !self.open_barrier(threads) {
                return;
            }
        }
    }

    /// Whether nothing more is to run.
    pub(super) fn halted(&self) -> bool {
        self.outcome.stopped || self.error.is_some()
    }

    /// Opens the threadgroup barrier at which all threads wait; false if none does.
    fn open_barrier(&mut self, threads: usize) -> bool {
        let mut waiting = Waiting::default();
        for (index, thread) in self.shared().threads[..threads].iter().enumerate() {
            match thread.state.get() {
                State::ThreadgroupBarrier => waiting.add(index, thread.site.get(), thread.flags.get()),
                State::Done => waiting.done += 1,
                State::Fresh | State::Ready | State::Running | State::SimdgroupBarrier | State::Collective | State::Ended => {}
            }
        }
        let Some((first, site, flags)) = waiting.first else { return false };
        if let Some((other, other_site)) = waiting.elsewhere {
            let message = format!(
                "threads of one threadgroup wait at different barriers: thread {other} waits at {}",
                location(other_site).map_or_else(|| "another".to_owned(), |at| at.to_string())
            );
            self.diverge(FindingKind::DivergentBarrier, first, site, message);
        } else if waiting.done > 0 {
            let message = format!("{} threads wait at threadgroup_barrier, {} have returned without reaching it", waiting.count, waiting.done);
            self.diverge(FindingKind::DivergentBarrier, first, site, message);
        }
        self.open(flags, 0..threads, State::ThreadgroupBarrier, None);
        if trap::expired() {
            self.time_out(first, location(site), Vec::new());
            return false;
        }
        true
    }

    /// Lets the waiting threads go on, and counts the barrier for the memory its flags name.
    pub(super) fn open(&self, flags: u32, threads: std::ops::Range<usize>, waiting: State, simdgroup: Option<usize>) {
        let shared = self.shared();
        let counter = simdgroup.map_or(&shared.barriers, |simdgroup| &shared.simd_barriers[simdgroup]);
        let mut passed = counter.get();
        for (space, count) in passed.iter_mut().enumerate() {
            *count += u64::from(flags >> space & 1);
        }
        counter.set(passed);
        for thread in shared.threads[threads].iter().filter(|thread| thread.state.get() == waiting) {
            thread.state.set(State::Ready);
        }
    }

    pub(super) fn diverge(&mut self, kind: FindingKind, thread: usize, site: Site, message: String) {
        let raw = self.raw(kind, thread, message);
        self.note(Raw { at: location(site), ..raw }, site.line.into(), 0, 0);
    }

    /// The threadgroup has run for too long.
    pub(super) fn time_out(&mut self, thread: usize, at: Option<Location>, frames: Vec<u64>) {
        let message = format!("the threadgroup has run for {:?} of processor time and has not ended; raise the limit if it should", self.job.limit);
        let raw = self.raw(FindingKind::TimeLimit, thread, message);
        self.note(Raw { at, frames, ..raw }, 0, 0, 0);
        self.outcome.ended = true;
        self.outcome.stopped = true;
    }

    /// Resumes (or starts) a fiber until it idles or its thread parks, and sees to what it asks for in between.
    pub(super) fn drive(&mut self, number: u16) {
        let index = usize::from(number);
        let (low, high) = self.executor.fibers[index].bounds();
        let context = self.executor.context();
        (context.stack_low, context.stack_high) = (low, high);
        self.shared().fiber.set(number);
        loop {
            let fiber = &mut self.executor.fibers[index];
            trap::arm(fiber);
            let suspended = fiber.resume();
            self.outcome.switches += 1;
            if !suspended {
                self.fault(number);
                return;
            }
            match self.shared().signal.get() {
                Signal::Idle => return self.executor.idle.push(number),
                Signal::Parked => return,
                Signal::Variable => {
                    if let Err(error) = self.declare(self.shared().request.get()) {
                        self.error = Some(error);
                        return;
                    }
                }
                Signal::Event => {
                    // SAFETY: it lies on the stack of the fiber, which is suspended in the callback that was given it.
                    let event = unsafe { *self.shared().event.get() };
                    if !self.event(&event) {
                        return self.end_thread(number);
                    }
                    if self.halted() {
                        return;
                    }
                }
            }
        }
    }

    /// The running thread goes no further.
    pub(super) fn end_thread(&mut self, number: u16) {
        self.abandon(usize::from(self.shared().current.get()), number);
    }

    /// A thread goes no further; its fiber is free.
    pub(super) fn abandon(&mut self, thread: usize, number: u16) {
        self.shared().threads[thread].state.set(State::Ended);
        self.outcome.ended = true;
        let shared = &raw const *self.executor.shared;
        self.executor.fibers[usize::from(number)].reset(shared);
        self.executor.idle.push(number);
    }
}

/// Who waits at a threadgroup barrier.
#[derive(Default)]
struct Waiting {
    first: Option<(usize, Site, u32)>,
    elsewhere: Option<(usize, Site)>,
    count: usize,
    done: usize,
}

impl Waiting {
    fn add(&mut self, thread: usize, site: Site, flags: u32) {
        self.count += 1;
        match self.first {
            None => self.first = Some((thread, site, flags)),
            Some((_, first, _)) if !same_site(first, site) => self.elsewhere = self.elsewhere.or(Some((thread, site))),
            Some((_, _, ref mut all)) => *all |= flags,
        }
    }
}

pub(super) fn same_site(a: Site, b: Site) -> bool {
    a.line == b.line && (a.file == b.file || text(a.file) == text(b.file))
}

pub(super) fn location(site: Site) -> Option<Location> {
    (!site.file.is_null()).then(|| Location { file: text(site.file).into(), line: site.line })
}
