//! What the host's memory and arithmetic can do, the best of several passes of the plainest loops: the ceilings that CPU figures are compared with.

use std::time::Instant;

use super::loops::{OPERATIONS, multiply_add, read};

/// Measured ceilings of a machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ceilings {
    /// Bytes per second, reading an array far larger than any cache.
    pub(crate) read: f64,
    /// f32 operations per second of fused multiply-adds (two each) on registers.
    pub(crate) arithmetic: f64,
}

impl Ceilings {
    /// Measures with this many threads.
    pub(crate) fn of_host(threads: usize) -> Self {
        const BYTES: usize = 1 << 30;
        let read = Words::new(BYTES).map_or(f64::NAN, |words| BYTES as f64 / fastest(9, || read(words.get(), threads)));
        Self { read, arithmetic: threads as f64 * OPERATIONS / fastest(5, || multiply_add(threads)) }
    }
}

/// Seconds of the fastest of several passes, after one to warm up.
fn fastest(passes: usize, pass: impl Fn()) -> f64 {
    let seconds = || {
        let start = Instant::now();
        pass();
        start.elapsed().as_secs_f64()
    };
    seconds();
    (0..passes).map(|_| seconds()).fold(f64::INFINITY, f64::min)
}

/// Mapped memory in huge pages where the system has them, as the device allocates it.
struct Words(memmap2::MmapMut);

impl Words {
    fn new(bytes: usize) -> Option<Self> {
        let mut map = memmap2::MmapMut::map_anon(bytes).ok()?;
        #[cfg(target_os = "linux")]
        // Advice only: the measurement is what the memory gives.
        let _ = map.advise(memmap2::Advice::HugePage);
        map.fill(1);
        Some(Self(map))
    }

    fn get(&self) -> &[u64] {
        bytemuck::cast_slice(&self.0)
    }
}
