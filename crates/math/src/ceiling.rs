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

/// Floating-point operations of one thread in [`multiply_add_pairs`].
pub fn operations_of_pairs() -> f64 {
    2.0 * operations()
}

/// Runs independent chains of dot products of pairs of bf16 on every thread; whether the processor has the instruction (AVX-512 BF16).
pub fn multiply_add_pairs(threads: usize) -> bool {
    #[cfg(target_arch = "x86_64")]
    if simd::level() == simd::Level::Avx512 && is_x86_feature_detected!("avx512bf16") {
        together(threads, |_| {
            // SAFETY: the processor has these instructions.
            black_box(unsafe { pairs(ROUNDS) });
        });
        return true;
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = threads;
    false
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bf16")]
fn pairs(rounds: usize) -> f32 {
    use std::arch::x86_64::{__m512, __m512bh, _mm512_dpbf16_ps, _mm512_reduce_add_ps, _mm512_set1_ps};
    // SAFETY: vectors of plain bits.
    let [a, b] = [0.999_f32, 0.001].map(|x| unsafe { std::mem::transmute::<__m512, __m512bh>(black_box(_mm512_set1_ps(x))) });
    let mut sums = [_mm512_set1_ps(1.0); CHAINS];
    for _ in 0..rounds {
        for sum in &mut sums {
            *sum = _mm512_dpbf16_ps(*sum, a, b);
        }
    }
    sums.into_iter().map(|sum| _mm512_reduce_add_ps(sum)).sum()
}

/// Reads all of `words`, each thread its part.
pub fn read(words: &[u64], threads: usize) {
    let part = words.len().div_ceil(threads).max(1);
    together(threads, |index| {
        black_box(xor(words.chunks(part).nth(index).unwrap_or_default()));
    });
}

/// A line of the caches.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
pub struct Line([u64; 8]);

/// Writes the sums of the lines of `N` arrays, each thread its part, past the caches where the processor has stores for that.
pub fn write<const N: usize>(from: [&[Line]; N], to: &mut [Line], threads: usize) {
    let part = to.len().div_ceil(threads).max(1);
    thread::scope(|scope| {
        for (index, to) in to.chunks_mut(part).enumerate() {
            let from = from.map(|lines| lines.get(index * part..).unwrap_or_default());
            scope.spawn(move || sum(from, to));
        }
    });
}

fn sum<const N: usize>(from: [&[Line]; N], to: &mut [Line]) {
    for (index, to) in to.iter_mut().enumerate() {
        let mut sum = [0u64; 8];
        for lines in from {
            let Some(Line(words)) = lines.get(index) else { return };
            sum.iter_mut().zip(words).for_each(|(sum, word)| *sum = sum.wrapping_add(*word));
        }
        store(sum, to);
    }
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE is part of x86-64.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn store(words: [u64; 8], Line(to): &mut Line) {
    use std::arch::x86_64::{_mm_set_epi64x, _mm_stream_si128};
    for (pair, to) in words.as_chunks::<2>().0.iter().zip(to.as_chunks_mut::<2>().0) {
        // SAFETY: SSE2 is part of x86-64; a quarter of a line is aligned as these stores demand.
        unsafe { _mm_stream_si128(to.as_mut_ptr().cast(), _mm_set_epi64x(pair[1] as i64, pair[0] as i64)) };
    }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn store(words: [u64; 8], to: &mut Line) {
    *to = Line(words);
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
