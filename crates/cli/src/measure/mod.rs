//! What a machine can do, and what is made of measurements.

mod ceiling;
mod device;

pub(crate) use ceiling::{Ceilings, memory_bandwidth, published_bandwidth};
pub(crate) use device::{is_gpu, units};

/// The median of some durations, in seconds.
pub(crate) fn median(mut seconds: Vec<f64>) -> f64 {
    seconds.sort_by(f64::total_cmp);
    seconds.get(seconds.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Seconds that this process's threads have run on processors, where the system reports it: on a busy machine they say more than a clock.
pub(crate) fn processor_seconds() -> Option<f64> {
    let threads = std::fs::read_dir("/proc/self/task").ok()?;
    let nanoseconds = |thread: std::io::Result<std::fs::DirEntry>| {
        let statistics = std::fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?;
        statistics.split(' ').next()?.parse::<f64>().ok()
    };
    threads.map(nanoseconds).sum::<Option<f64>>().map(|sum| 1e-9 * sum)
}

/// Values in -1..1 of which no two neighbours are alike. (Zeros would flatter a GPU: they cost less power, and so leave more clock.)
pub(crate) fn spread(count: usize) -> Vec<f32> {
    (0..count).map(|i| (i * 2_654_435_761 % 65_521) as f32 / 32_760.0 - 1.0).collect()
}
