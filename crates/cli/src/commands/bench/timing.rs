//! Repeated replays.

use std::time::{Duration, Instant};

use elinvar::{Executor, Recording, Result};

use crate::{
    measure::median,
    profile::{Known, Profiler},
};

/// Seconds of one replay, as [`median_seconds`] takes them. Waiting for the device is counted.
pub(super) fn replay_seconds(executor: &Executor, recording: &Recording, budget: Duration) -> Result<f64> {
    median_seconds(budget, || executor.replay(recording)?.wait())
}

/// Seconds of some work: the median of at least five times and of `budget` worth of them, after one that warms up.
pub(super) fn median_seconds(budget: Duration, mut work: impl FnMut() -> Result<()>) -> Result<f64> {
    work()?;
    let start = Instant::now();
    let mut samples = Vec::new();
    while samples.len() < 5 || start.elapsed() < budget {
        let before = Instant::now();
        work()?;
        samples.push(before.elapsed().as_secs_f64());
    }
    Ok(median(samples))
}

/// Profiles a replay more of what takes so many seconds without a profile, after two for what a device prepares again where a profile begins.
pub(super) fn replay_profiled(executor: &Executor, recording: &Recording, name: &str, seconds: f64, profiler: &mut Option<Profiler>) -> Result<()> {
    round_profiled(profiler, name, Known { tokens: None, unprofiled: Some(seconds) }, || executor.replay(recording)?.wait())
}

/// The same for any work.
pub(super) fn round_profiled(profiler: &mut Option<Profiler>, name: &str, known: Known, mut work: impl FnMut() -> Result<()>) -> Result<()> {
    let Some(profiler) = profiler else { return Ok(()) };
    profiler.begin()?;
    (0..2).try_for_each(|_| work())?;
    profiler.begin()?;
    work()?;
    profiler.end(name, known)
}
