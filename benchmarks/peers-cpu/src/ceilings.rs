//! What the machine can do at most: fused multiply-adds on registers, and reading memory.

use std::hint::black_box;

use rayon::prelude::*;

/// Fused multiply-adds of one call of [`multiply_add`], in floating-point operations.
pub const OPERATIONS: f64 = 2.0 * (STEPS * CHAINS * 16) as f64;

const STEPS: usize = 500_000;
const CHAINS: usize = 24;

/// Runs independent chains of fused multiply-adds on every thread.
pub fn multiply_add() {
    rayon::broadcast(|_| black_box(chains(black_box(STEPS))));
}

#[cfg(target_arch = "x86_64")]
fn chains(steps: usize) -> f32 {
    if is_x86_feature_detected!("avx512f") {
        // SAFETY: the processor has AVX-512 F.
        return unsafe { chains_avx512(steps) };
    }
    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
        // SAFETY: the processor has AVX2 and FMA.
        return unsafe { chains_avx2(steps) };
    }
    plain(steps)
}

#[cfg(not(target_arch = "x86_64"))]
fn chains(steps: usize) -> f32 {
    plain(steps)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn chains_avx512(steps: usize) -> f32 {
    use std::arch::x86_64::*;
    let (factor, term) = (_mm512_set1_ps(black_box(0.999)), _mm512_set1_ps(black_box(0.001)));
    let mut sums = [_mm512_set1_ps(0.5); CHAINS];
    for _ in 0..steps {
        for sum in &mut sums {
            *sum = _mm512_fmadd_ps(*sum, factor, term);
        }
    }
    sums.into_iter().map(|sum| _mm512_reduce_add_ps(sum)).sum()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn chains_avx2(steps: usize) -> f32 {
    use std::arch::x86_64::*;
    let (factor, term) = (_mm256_set1_ps(black_box(0.999)), _mm256_set1_ps(black_box(0.001)));
    let mut sums = [_mm256_set1_ps(0.5); 12];
    // Half the width and half the chains: four times the steps are the same work.
    for _ in 0..4 * steps {
        for sum in &mut sums {
            *sum = _mm256_fmadd_ps(*sum, factor, term);
        }
    }
    let mut total = [0.0; 8];
    for sum in sums {
        // SAFETY: eight floats are written.
        unsafe { _mm256_storeu_ps(total.as_mut_ptr(), sum) };
    }
    total.iter().sum()
}

fn plain(steps: usize) -> f32 {
    let (factor, term) = (black_box(0.999f32), black_box(0.001f32));
    let mut sums = [[0.5f32; 16]; CHAINS];
    for _ in 0..steps {
        for sum in sums.as_flattened_mut() {
            *sum = sum.mul_add(factor, term);
        }
    }
    sums.as_flattened().iter().sum()
}

/// Reads all of `memory` on all threads.
pub fn read(memory: &[u8]) {
    black_box(memory.par_chunks(1 << 20).map(sum).reduce(|| 0, u64::wrapping_add));
}

#[cfg(target_arch = "x86_64")]
fn sum(memory: &[u8]) -> u64 {
    #[target_feature(enable = "avx512f")]
    fn avx512(memory: &[u8]) -> u64 {
        body(memory)
    }
    #[target_feature(enable = "avx2")]
    fn avx2(memory: &[u8]) -> u64 {
        body(memory)
    }
    if is_x86_feature_detected!("avx512f") {
        // SAFETY: the processor has AVX-512 F.
        unsafe { avx512(memory) }
    } else if is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2.
        unsafe { avx2(memory) }
    } else {
        body(memory)
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn sum(memory: &[u8]) -> u64 {
    body(memory)
}

#[inline(always)]
fn body(memory: &[u8]) -> u64 {
    let mut sums = [0u64; 64];
    for block in bytemuck::cast_slice::<u8, [u64; 64]>(memory) {
        for (sum, word) in sums.iter_mut().zip(block) {
            *sum = sum.wrapping_add(*word);
        }
    }
    sums.into_iter().fold(0, u64::wrapping_add)
}
