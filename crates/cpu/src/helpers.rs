//! Keeps the pool's threads awake between the commands of a list.
//!
//! A product of a token's row takes some ten microseconds; to wake a thread for its share takes as long, and the thread that wakes it makes a system call.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use rayon::Yield;

/// How long a thread looks for work: longer than from a token's last command to the next one's first.
const PATIENCE: Duration = Duration::from_micros(100);

/// The pool's threads besides the device's own.
pub(crate) struct Helpers {
    count: usize,
    /// Those that look for work, or are about to.
    awake: Arc<AtomicUsize>,
}

impl Helpers {
    /// Of the pool that the calling thread belongs to.
    pub(crate) fn of_current_pool() -> Self {
        Self { count: rayon::current_num_threads() - 1, awake: Arc::default() }
    }

    /// Wakes them, unless some are awake: each looks for work until it has found none for a while.
    pub(crate) fn rouse(&self) {
        if self.count == 0 || self.awake.load(Ordering::Relaxed) > 0 {
            return;
        }
        self.awake.store(self.count, Ordering::Relaxed);
        let (own, awake) = (rayon::current_thread_index(), self.awake.clone());
        rayon::spawn_broadcast(move |context| {
            if own != Some(context.index()) {
                look_for_work();
                awake.fetch_sub(1, Ordering::Relaxed);
            }
        });
    }
}

fn look_for_work() {
    let mut since = Instant::now();
    while since.elapsed() < PATIENCE {
        match rayon::yield_now() {
            Some(Yield::Executed) => since = Instant::now(),
            // Other programs may want the core.
            Some(Yield::Idle) | None => thread::yield_now(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn threads_are_roused_once_and_sleep_when_there_is_no_work() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
        pool.install(|| {
            let (helpers, own) = (Helpers::of_current_pool(), rayon::current_thread_index());
            let [busy, done] = [(); 2].map(|()| Arc::new(Barrier::new(3)));
            for _ in 0..2 {
                let meet = [busy.clone(), done.clone()];
                rayon::spawn_broadcast(move |context| {
                    if own != Some(context.index()) {
                        for barrier in &meet {
                            barrier.wait();
                        }
                    }
                });
                busy.wait();
                // Both are busy, so neither can have looked for work yet.
                for _ in 0..2 {
                    helpers.rouse();
                    assert_eq!(helpers.awake.load(Ordering::Relaxed), 2);
                }
                done.wait();
                let begun = Instant::now();
                while helpers.awake.load(Ordering::Relaxed) > 0 {
                    assert!(begun.elapsed() < Duration::from_secs(60), "threads look for work for ever");
                    thread::yield_now();
                }
            }
        });
    }
}
