//! Medians of repeated replays.

use std::time::{Duration, Instant};

use elinvar::{Executor, Recording, Result};

/// The median of some durations, in seconds.
pub(crate) fn median(mut seconds: Vec<f64>) -> f64 {
    seconds.sort_by(f64::total_cmp);
    seconds.get(seconds.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Seconds of one replay: the median of at least five and of `budget` worth of them, after one that warms up. Waiting for the device is counted.
pub(crate) fn replay_seconds(executor: &Executor, recording: &Recording, budget: Duration) -> Result<f64> {
    executor.replay(recording)?.wait()?;
    let start = Instant::now();
    let mut samples = Vec::new();
    while samples.len() < 5 || start.elapsed() < budget {
        let before = Instant::now();
        executor.replay(recording)?.wait()?;
        samples.push(before.elapsed().as_secs_f64());
    }
    Ok(median(samples))
}
