//! The plainest loops that use all of a machine's memory or arithmetic, to compare figures with. They use the instructions of [`simd::level`].

use std::{hint::black_box, thread};

use crate::simd;

/// Times that a thread goes through its chains.
const ROUNDS: usize = 4_000_000;

/// Chains of a thread: enough for the latency of an operation, few enough for the registers.
const CHAINS: usize = 12;

/// Floating-point operations of one thread in [`multiply_add`].
pub fn operations() -> f64 {
    (ROUNDS * CHAINS * lanes() * 2) as f64
}

/// Runs independent chains of fused multiply-adds of f32 on every thread.
pub fn multiply_add(threads: usize) {
    together(threads, |_| {
        black_box(chains(ROUNDS));
    });
}

/// Reads all of `words`, each thread its part.
pub fn read(words: &[u64], threads: usize) {
    let part = words.len().div_ceil(threads).max(1);
    together(threads, |index| {
        black_box(xor(words.chunks(part).nth(index).unwrap_or_default()));
    });
}

/// Runs `work` on each of `threads` threads, the calling one among them, until the last is done.
fn together(threads: usize, work: impl Fn(usize) + Sync) {
    thread::scope(|scope| {
        for index in 1..threads {
            let work = &work;
            scope.spawn(move || work(index));
        }
        work(0);
    });
}

simd! {
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

/// Elements of a link of a chain: a vector register, or two of NEON's, which has as many registers as AVX-512.
#[inline(always)]
fn lanes() -> usize {
    match simd::level() {
        simd::Level::Avx512 => 16,
        simd::Level::Avx2 | simd::Level::Baseline => 8,
    }
}

simd! {
    fn chains(rounds: usize) -> f32 {
        if lanes() == 16 { multiply_add_by::<16>(rounds) } else { multiply_add_by::<8>(rounds) }
    }
}

#[inline(always)]
fn multiply_add_by<const LANES: usize>(rounds: usize) -> f32 {
    let (a, b) = (black_box([0.999_f32; LANES]), black_box([0.001_f32; LANES]));
    let [mut s0, mut s1, mut s2, mut s3, mut s4, mut s5] = [[1.0f32; LANES]; CHAINS / 2];
    let [mut s6, mut s7, mut s8, mut s9, mut s10, mut s11] = [[1.0f32; LANES]; CHAINS / 2];
    for _ in 0..rounds {
        for i in 0..LANES {
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
