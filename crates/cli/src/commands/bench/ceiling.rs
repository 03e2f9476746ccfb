//! What the host's memory and arithmetic can do, measured by the plainest loops: the ceilings that CPU figures are compared with.

use std::{hint::black_box, thread, time::Instant};

use super::timing::median;

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
    let words = vec![1u64; BYTES / 8];
    let part = words.len() / threads;
    let pass = |index: usize| {
        // Eight streams keep more lines in flight than one.
        let slice = &words[index * part..(index + 1) * part];
        let stream = slice.len() / 8;
        let mut sums = [0u64; 8];
        for block in (0..stream / 8 * 8).step_by(8) {
            for (s, sum) in sums.iter_mut().enumerate() {
                let line = &slice[s * stream + block..s * stream + block + 8];
                *sum = line.iter().fold(*sum, |a, b| a ^ b);
            }
        }
        black_box(sums);
    };
    together(threads, pass);
    BYTES as f64 / median((0..7).map(|_| together(threads, pass)).collect())
}

elinvar::kernels::simd! {
    /// `rounds` times 24 vectors of 16 fused multiply-adds.
    fn multiply_add(rounds: usize) -> f32 {
        let mut sums = [[1.0f32; 16]; 24];
        let (a, b) = (black_box(0.999_f32), black_box(0.001_f32));
        for _ in 0..rounds {
            for sum in &mut sums {
                for lane in sum {
                    *lane = lane.mul_add(a, b);
                }
            }
        }
        sums.iter().flatten().sum()
    }
}

fn arithmetic(threads: usize) -> f64 {
    const ROUNDS: usize = 2_000_000;
    let pass = |_| {
        black_box(multiply_add(ROUNDS));
    };
    let operations = (threads * ROUNDS * 24 * 16 * 2) as f64;
    operations / median((0..5).map(|_| together(threads, pass)).collect())
}
