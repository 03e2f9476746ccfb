use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use crate::{
    device_id::DeviceId,
    error::{Error, Result},
    hash::FastMap,
    memory::{RawBuffer, Storage},
};

/// What a pool has done and holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolStatistics {
    /// Requests served from cached memory.
    pub hits: u64,
    /// Requests that allocated.
    pub misses: u64,
    /// Bytes in use.
    pub live_bytes: usize,
    /// Bytes kept for the next request.
    pub cached_bytes: usize,
    /// The most bytes ever held at once, in use and cached.
    pub peak_bytes: usize,
}

/// A capped cache of device memory in size classes.
///
/// Classes have steps of an eighth of a power of two, so a buffer is at most an eighth larger than asked, or as asked where the device has no more.
/// What would exceed the cap is freed, the longest unused first.
pub struct Pool {
    state: Mutex<State>,
}

struct State {
    cap: usize,
    clock: u64,
    free: FastMap<(usize, Storage), VecDeque<(u64, RawBuffer)>>,
    statistics: PoolStatistics,
}

/// Bytes of the size class that holds `bytes`.
fn size_class(bytes: usize) -> usize {
    const SMALLEST: usize = 256;
    if bytes <= SMALLEST {
        return SMALLEST;
    }
    let step = (1usize << (bytes - 1).ilog2()) / 8;
    bytes.div_ceil(step).saturating_mul(step)
}

impl Pool {
    /// A pool that keeps at most `cap` unused bytes.
    pub fn new(cap: usize) -> Arc<Self> {
        let statistics = PoolStatistics::default();
        Arc::new(Self { state: Mutex::new(State { cap, clock: 0, free: FastMap::default(), statistics }) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Statistics now.
    pub fn statistics(&self) -> PoolStatistics {
        self.state().statistics
    }

    /// Changes the cap; what exceeds it is freed.
    pub fn set_cap(&self, bytes: usize) {
        let mut state = self.state();
        state.cap = bytes;
        let freed = state.trim();
        drop(state);
        drop(freed);
    }

    /// Frees everything cached.
    pub fn clear(&self) {
        let mut state = self.state();
        state.statistics.cached_bytes = 0;
        let freed = std::mem::take(&mut state.free);
        drop(state);
        drop(freed);
    }

    /// Memory for `bytes` bytes: cached if there is some, else from `allocate`.
    pub(crate) fn take(
        self: &Arc<Self>,
        device: DeviceId,
        bytes: usize,
        storage: Storage,
        allocate: impl Fn(usize) -> Result<RawBuffer>,
    ) -> Result<Slot> {
        let class = size_class(bytes);
        let mut state = self.state();
        let (raw, size) = match state.free.get_mut(&(class, storage)).and_then(VecDeque::pop_back) {
            Some((_, raw)) => {
                state.statistics.cached_bytes -= class;
                state.statistics.hits += 1;
                (raw, class)
            }
            None => {
                drop(state);
                let made = self.make(class, bytes, allocate)?;
                state = self.state();
                state.statistics.misses += 1;
                made
            }
        };
        let statistics = &mut state.statistics;
        statistics.live_bytes += size;
        statistics.peak_bytes = statistics.peak_bytes.max(statistics.live_bytes + statistics.cached_bytes);
        Ok(Slot { raw, device, home: Some((Arc::downgrade(self), size, storage)) })
    }

    /// Memory of the class and its size; where that runs out, with the cache freed; and at last of no more than is asked.
    fn make(&self, class: usize, bytes: usize, allocate: impl Fn(usize) -> Result<RawBuffer>) -> Result<(RawBuffer, usize)> {
        let mut made = allocate(class).map(|raw| (raw, class));
        for size in [class, bytes] {
            if made.as_ref().is_err_and(Error::is_out_of_memory) {
                self.clear();
                made = allocate(size).map(|raw| (raw, size));
            }
        }
        made
    }

    fn put_back(&self, raw: RawBuffer, size: usize, storage: Storage) {
        let mut state = self.state();
        state.clock += 1;
        let stamp = state.clock;
        state.statistics.live_bytes -= size;
        state.statistics.cached_bytes += size;
        state.free.entry((size, storage)).or_default().push_back((stamp, raw));
        let freed = state.trim();
        drop(state);
        drop(freed);
    }
}

impl State {
    /// Takes out what exceeds the cap, oldest first; the caller frees it after unlocking.
    fn trim(&mut self) -> Vec<RawBuffer> {
        let mut freed = Vec::new();
        while self.statistics.cached_bytes > self.cap {
            let oldest = self.free.iter().filter_map(|(key, list)| list.front().map(|(stamp, _)| (*stamp, *key))).min_by_key(|(stamp, _)| *stamp);
            let Some((_, key)) = oldest else { break };
            if let Some((_, raw)) = self.free.get_mut(&key).and_then(VecDeque::pop_front) {
                self.statistics.cached_bytes -= key.0;
                freed.push(raw);
            }
        }
        freed
    }
}

/// An allocation and the pool it returns to when dropped, if any.
pub(crate) struct Slot {
    raw: RawBuffer,
    device: DeviceId,
    home: Option<(Weak<Pool>, usize, Storage)>,
}

impl Slot {
    /// Memory that belongs to no pool.
    pub(crate) fn dedicated(device: DeviceId, raw: RawBuffer) -> Self {
        Self { raw, device, home: None }
    }

    pub(crate) fn device(&self) -> DeviceId {
        self.device
    }

    pub(crate) fn raw(&self) -> &RawBuffer {
        &self.raw
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let Some((pool, size, storage)) = self.home.take() else { return };
        if let Some(pool) = pool.upgrade() {
            pool.put_back(self.raw.clone(), size, storage);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_waste_at_most_an_eighth() {
        for bytes in (1..100_000).chain([1 << 30, (1 << 30) + 1]) {
            let class = size_class(bytes);
            assert!(class >= bytes && (bytes <= 256 || class - bytes <= bytes / 8 + 1), "{bytes} -> {class}");
        }
    }
}
