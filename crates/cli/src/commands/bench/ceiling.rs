//! What the host's memory and arithmetic can do, the best of several passes of the plainest loops: the ceilings that CPU figures are compared with.

use std::{hint::black_box, thread, time::Instant};

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
        Self { read: read_bandwidth(threads), arithmetic: arithmetic(threads) }
    }
}

/// Runs `work` on each of `threads` threads at once and gives the seconds until the last is done.
fn together(threads: usize, work: impl Fn(usize) + Sync) -> f64 {
    let start = Instant::now();
    thread::scope(|scope| {
        for index in 0..threads {
            let work = &work;
            scope.spawn(move || work(index));
        }
    });
    start.elapsed().as_secs_f64()
}

fn read_bandwidth(threads: usize) -> f64 {
    const BYTES: usize = 1 << 30;
    let Some(words) = Words::new(BYTES) else { return f64::NAN };
    let part = words.get().len() / threads;
    let pass = |index: usize| {
        black_box(xor(&words.get()[index * part..(index + 1) * part]));
    };
    together(threads, pass);
    let passes = (0..9).map(|_| together(threads, pass));
    BYTES as f64 / passes.fold(f64::INFINITY, f64::min)
}

elinvar::kernels::simd! {
    /// Reads everything once.
    fn xor(words: &[u64]) -> u64 {
        let mut sums = [0u64; 64];
        for block in words.chunks_exact(64) {
            for (sum, word) in sums.iter_mut().zip(block) {
                *sum ^= *word;
            }
        }
        sums.iter().fold(0, |a, b| a ^ b)
    }
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

elinvar::kernels::simd! {
    /// `rounds` times 12 vectors of 16 fused multiply-adds.
    fn multiply_add(rounds: usize) -> f32 {
        let (a, b) = (black_box([0.999_f32; 16]), black_box([0.001_f32; 16]));
        let [mut s0, mut s1, mut s2, mut s3, mut s4, mut s5] = [[1.0f32; 16]; 6];
        let [mut s6, mut s7, mut s8, mut s9, mut s10, mut s11] = [[1.0f32; 16]; 6];
        for _ in 0..rounds {
            for i in 0..16 {
                s0[i] = s0[i].mul_add(a[i], b[i]);
                s1[i] = s1[i].mul_add(a[i], b[i]);
                s2[i] = s2[i].mul_add(a[i], b[i]);
                s3[i] = s3[i].mul_add(a[i], b[i]);
                s4[i] = s4[i].mul_add(a[i], b[i]);
                s5[i] = s5[i].mul_add(a[i], b[i]);
                s6[i] = s6[i].mul_add(a[i], b[i]);
                s7[i] = s7[i].mul_add(a[i], b[i]);
                s8[i] = s8[i].mul_add(a[i], b[i]);
                s9[i] = s9[i].mul_add(a[i], b[i]);
                s10[i] = s10[i].mul_add(a[i], b[i]);
                s11[i] = s11[i].mul_add(a[i], b[i]);
            }
        }
        [s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, s10, s11].iter().flatten().sum()
    }
}

fn arithmetic(threads: usize) -> f64 {
    const ROUNDS: usize = 4_000_000;
    let pass = |_| {
        black_box(multiply_add(ROUNDS));
    };
    together(threads, pass);
    let operations = (threads * ROUNDS * 12 * 16 * 2) as f64;
    operations / (0..5).map(|_| together(threads, pass)).fold(f64::INFINITY, f64::min)
}
