//! A dispatch made ready to run: what every executor that takes part in it must know.

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use elinvar_core::Extent;

use crate::{
    abi::{BINDINGS, Record},
    dispatch::Dispatch,
    finding::OtherAccess,
    library::Pipeline,
    random::Random,
};

/// The threadgroups of a dispatch, in the order they run.
pub(crate) struct Schedule {
    groups: [u32; 3],
    /// None: in order.
    shuffled: Option<Vec<u32>>,
    /// Sequence number of the first.
    first: u64,
}

impl Schedule {
    /// Seed 0 keeps everything in order.
    pub(crate) fn new(groups: [u32; 3], seed: u64, first: u64) -> Self {
        let shuffled = (seed != 0).then(|| {
            let mut order: Vec<u32> = (0..groups.iter().product()).collect();
            Random::new(seed).shuffle(&mut order);
            order
        });
        Self { groups, shuffled, first }
    }

    pub(crate) fn len(&self) -> u64 {
        self.groups.iter().map(|axis| u64::from(*axis)).product()
    }

    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    /// The position in the grid of the `at`-th threadgroup to run.
    pub(crate) fn position(&self, at: u64) -> [u32; 3] {
        let linear = self.shuffled.as_ref().map_or(at as u32, |order| order[at as usize]);
        let [x, y, _] = self.groups;
        [linear % x, linear / x % y, linear / x / y]
    }

    /// The position of the threadgroup with a record's sequence number, if it is one of these.
    pub(crate) fn position_of(&self, sequence: u64) -> Option<[u32; 3]> {
        let at = sequence.checked_sub(self.first % Record::GROUPS)?;
        (at < self.len()).then(|| self.position(at))
    }
}

/// The position of thread `index` in a threadgroup of `size`.
pub(crate) fn thread_position(index: usize, size: [u32; 3]) -> [u32; 3] {
    let index = index as u32;
    [index % size[0], index / size[0] % size[1], index / size[0] / size[1]]
}

pub(crate) struct Job<'a> {
    pub(crate) dispatch: &'a Dispatch,
    pub(crate) schedule: Arc<Schedule>,
    pub(crate) seed: u64,
    pub(crate) limit: Duration,
    /// The first sequence number of those whose accesses nothing orders before this job's.
    pub(crate) oldest: u64,
    /// Slots of buffers for whose bytes commands may race, this one and those beside it.
    pub(crate) contested: Arc<HashSet<u32>>,
    /// Threadgroups taken so far.
    pub(crate) taken: AtomicU64,
}

impl Job<'_> {
    pub(crate) fn pipeline(&self) -> &Pipeline {
        &self.dispatch.pipeline
    }

    /// The next threadgroups to run: few at a time at the end, so that executors finish together.
    pub(crate) fn take(&self, share: u64) -> std::ops::Range<u64> {
        let len = self.schedule.len();
        let wanted = ((len.saturating_sub(self.taken.load(Ordering::Relaxed))) / share).clamp(1, 256);
        let start = self.taken.fetch_add(wanted, Ordering::Relaxed).min(len);
        start..(start + wanted).min(len)
    }

    /// Lets no thread take more.
    pub(crate) fn stop(&self) {
        self.taken.store(self.schedule.len(), Ordering::Relaxed);
    }

    /// What is reported of an earlier access, if it was this job's.
    pub(crate) fn access(&self, pc: u64, record: Record) -> Option<OtherAccess> {
        let threadgroup = self.schedule.position_of(record.group())?;
        let (pipeline, thread) = (self.pipeline(), thread_position(record.thread(), self.size_of(threadgroup)));
        Some(OtherAccess { at: pipeline.0.loaded.line([pc]), kernel: pipeline.kernel().name.clone(), thread, threadgroup })
    }

    /// Addresses by buffer index, without those of bytes.
    pub(crate) fn addresses(&self) -> [u64; BINDINGS + 1] {
        let mut addresses = [0; BINDINGS + 1];
        for binding in &self.dispatch.buffers {
            addresses[binding.index as usize] = binding.buffer.address() + binding.offset as u64;
        }
        addresses
    }

    /// Threads of the threadgroup at `position`, which may be cut off by the grid's end.
    pub(crate) fn size_of(&self, position: [u32; 3]) -> [u32; 3] {
        self.dispatch.grid.threadgroup_at(position, Extent(self.dispatch.threads_per_threadgroup))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shuffled_schedule_visits_every_threadgroup_once() {
        let schedule = Schedule::new([3, 4, 2], 7, 100);
        let mut seen: Vec<_> = (0..24).map(|at| schedule.position(at)).collect();
        assert_eq!(schedule.position_of(103), Some(seen[3]));
        assert_eq!(schedule.position_of(99), None);
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), 24);
        assert_eq!(Schedule::new([3, 4, 2], 0, 1).position(17), [2, 1, 1]);
    }
}
