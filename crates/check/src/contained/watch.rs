//! Whether a kernel's process goes on.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

/// What the simulator's own limit, which names the line, may take longer.
const GRACE: Duration = Duration::from_secs(8);

/// Watches the threadgroup that another process runs.
pub(super) struct Watch {
    running: &'static AtomicU64,
    limit: Duration,
    /// The threadgroup seen last, and what processor time the process had used when it was seen first.
    group: u64,
    began: Duration,
    /// The processor time used when that was last seen to grow, and when.
    used: Duration,
    grown: Instant,
}

impl Watch {
    pub(super) fn new(running: &'static AtomicU64, limit: Duration) -> Self {
        Self { running, limit, group: 0, began: Duration::ZERO, used: Duration::ZERO, grown: Instant::now() }
    }

    pub(super) fn limit(&self) -> Duration {
        self.limit
    }

    /// Whether one threadgroup has run, or waited without running, for longer than the limit.
    pub(super) fn is_stuck(&mut self, process: libc::pid_t) -> bool {
        processor_time(process).is_some_and(|used| self.is_stuck_at(used, Instant::now()))
    }

    fn is_stuck_at(&mut self, used: Duration, now: Instant) -> bool {
        let group = self.running.load(Ordering::Relaxed);
        if group != self.group {
            (self.group, self.began, self.grown) = (group, used, now);
        }
        if used != self.used {
            (self.used, self.grown) = (used, now);
        }
        let allowed = self.limit + GRACE;
        group != 0 && (used.saturating_sub(self.began) > allowed || now.duration_since(self.grown) > allowed)
    }
}

fn processor_time(process: libc::pid_t) -> Option<Duration> {
    let (mut clock, mut time) = (0, libc::timespec { tv_sec: 0, tv_nsec: 0 });
    // SAFETY: both calls write to what they are pointed to.
    let read = unsafe { libc::clock_getcpuclockid(process, &raw mut clock) == 0 && libc::clock_gettime(clock, &raw mut time) == 0 };
    read.then(|| Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threadgroup_may_neither_run_nor_wait_for_longer_than_the_limit() {
        static RUNNING: AtomicU64 = AtomicU64::new(0);
        let (seconds, start) = (Duration::from_secs, Instant::now());
        let mut watch = Watch::new(&RUNNING, seconds(1));
        assert!(!watch.is_stuck_at(seconds(0), start + seconds(100)), "none runs");
        RUNNING.store(1, Ordering::Relaxed);
        assert!(!watch.is_stuck_at(seconds(50), start + seconds(100)));
        assert!(!watch.is_stuck_at(seconds(59), start + seconds(200)));
        assert!(watch.is_stuck_at(seconds(60), start + seconds(201)), "it runs");
        RUNNING.store(2, Ordering::Relaxed);
        assert!(!watch.is_stuck_at(seconds(60), start + seconds(300)));
        assert!(!watch.is_stuck_at(seconds(60), start + seconds(309)));
        assert!(watch.is_stuck_at(seconds(60), start + seconds(310)), "it waits");
        RUNNING.store(3, Ordering::Relaxed);
        assert!(!watch.is_stuck_at(seconds(60), start + seconds(400)), "another");
    }
}
