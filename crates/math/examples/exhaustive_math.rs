//! Measures the strict functions of `elinvar_math`: their error over all 2^32 inputs (`pow`: as many random pairs)
//! against the `f64` oracles, and their time per element. Prints Markdown.
//!
//! ```text
//! cargo run --release -p elinvar-math --features reference --example exhaustive_math            # everything, minutes
//! cargo run --release -p elinvar-math --features reference --example exhaustive_math -- exp pow # some functions
//! cargo run --release -p elinvar-math --features reference --example exhaustive_math -- speed   # only the times
//! ```

use std::hint::black_box;
use std::time::Instant;

use elinvar_math::reference::{Compiled, apply_pow, compiled, error_in_ulp};
use elinvar_math::{self as math, functions::Binary, simd};
use rayon::prelude::*;

const BLOCK: u32 = 1 << 16;

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let chosen = |name: &str| wanted.is_empty() || wanted.iter().any(|w| w == name);
    println!("SIMD level: {:?}\n", simd::level());
    if wanted.iter().all(|w| w != "speed") {
        println!("| function | bound, ulp | max, ulp | at x | bits of x | mean, ulp | mismatches | s |");
        println!("|---|---|---|---|---|---|---|---|");
        for function in compiled().iter().filter(|f| chosen(f.name)) {
            let start = Instant::now();
            let errors = every_input(function);
            let at = f32::from_bits(errors.at[0]);
            let row = format!("{at:e} | {:#010x}", errors.at[0]);
            errors.print(function.name, function.bound, &row, start);
        }
        if chosen("pow") {
            let start = Instant::now();
            let errors = random_powers();
            let [x, y] = errors.at.map(f32::from_bits);
            errors.print("pow", Binary::Pow.error().ulp, &format!("{x:e}, {y:e} | {:#010x}, {:#010x}", errors.at[0], errors.at[1]), start);
        }
        println!();
    }
    speed();
}

/// Errors over many inputs. A mismatch is an error no bound can excuse: NaN against a number, a wrong sign, a missed exact zero or infinity.
#[derive(Clone, Copy, Default)]
struct Errors {
    max: f64,
    at: [u32; 2],
    sum: f64,
    count: u64,
    mismatches: u64,
}

impl Errors {
    fn add(&mut self, error: f64, at: [u32; 2]) {
        self.count += 1;
        if error.is_infinite() {
            self.mismatches += 1;
            return;
        }
        self.sum += error;
        if error > self.max {
            (self.max, self.at) = (error, at);
        }
    }

    fn merge(self, other: Self) -> Self {
        let worse = if other.max > self.max { other } else { self };
        Self { sum: self.sum + other.sum, count: self.count + other.count, mismatches: self.mismatches + other.mismatches, ..worse }
    }

    fn print(&self, name: &str, bound: f64, at: &str, start: Instant) {
        let mean = self.sum / self.count as f64;
        let seconds = start.elapsed().as_secs_f64();
        println!("| {name} | {bound} | {:.4} | {at} | {mean:.4} | {} | {seconds:.0} |", self.max, self.mismatches);
    }
}

fn every_input(function: &Compiled) -> Errors {
    let block = |block: u32| {
        let x: Vec<f32> = (0..BLOCK).map(|i| f32::from_bits(block * BLOCK + i)).collect();
        let mut y = vec![0.0; x.len()];
        (function.apply)(&x, &mut y);
        let mut errors = Errors::default();
        for (&x, &y) in x.iter().zip(&y).filter(|(x, _)| (function.domain)(**x)) {
            errors.add(error_in_ulp(y, (function.reference)(f64::from(x))), [x.to_bits(), 0]);
        }
        errors
    };
    (0..u32::MAX / BLOCK + 1).into_par_iter().map(block).reduce(Errors::default, Errors::merge)
}

/// 2^32 pairs: in one block of 16 any bits at all, else a positive `x` and a `y` for which `-152 < y·log2(x) < 130`.
fn random_powers() -> Errors {
    let block = |block: u32| {
        let mut state = u64::from(block);
        let pair = |_| {
            let random = next(&mut state);
            let x = f32::from_bits(random as u32);
            if block.is_multiple_of(16) {
                return (x, f32::from_bits((random >> 32) as u32));
            }
            let x = if x.is_finite() && x != 0.0 { x.abs() } else { 2.0 };
            let exponent = (random >> 32) as f64 * 2f64.powi(-32) * 282.0 - 152.0;
            (x, (exponent / f64::from(x).log2()) as f32)
        };
        let (x, y): (Vec<f32>, Vec<f32>) = (0..BLOCK).map(pair).unzip();
        let mut z = vec![0.0; x.len()];
        apply_pow(&x, &y, &mut z);
        let mut errors = Errors::default();
        for ((&x, &y), &z) in x.iter().zip(&y).zip(&z) {
            errors.add(error_in_ulp(z, f64::from(x).powf(f64::from(y))), [x.to_bits(), y.to_bits()]);
        }
        errors
    };
    (0..u32::MAX / BLOCK + 1).into_par_iter().map(block).reduce(Errors::default, Errors::merge)
}

/// SplitMix64 (Steele, Lea and Flood, 2014).
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

simd! {
    /// The sine of small angles over a slice.
    fn apply_sin_fast(x: &[f32], y: &mut [f32]) {
        for (y, &x) in y.iter_mut().zip(x) {
            *y = math::sin_fast(x);
        }
    }
}

/// One thread over 4096 elements in cache, the best of many repetitions.
fn speed() {
    println!("| function | ns per element | elements per ns |");
    println!("|---|---|---|");
    let positive = |name: &str| matches!(name, "log" | "log2" | "log1p" | "rsqrt");
    for function in compiled() {
        let low = if positive(function.name) { 0.01 } else { -8.0 };
        let x: Vec<f32> = (0..4096).map(|i| low + (8.0 - low) * i as f32 / 4096.0).collect();
        let mut y = vec![0.0; x.len()];
        print_time(function.name, best_time(|| (function.apply)(black_box(&x), black_box(&mut y))));
    }
    let x: Vec<f32> = (0..4096).map(|i| 0.01 + i as f32 / 1024.0).collect();
    let mut y = vec![0.0; x.len()];
    print_time("sin_fast", best_time(|| apply_sin_fast(black_box(&x), black_box(&mut y))));
    let y: Vec<f32> = x.iter().rev().copied().collect();
    let mut z = vec![0.0; x.len()];
    print_time("pow", best_time(|| apply_pow(black_box(&x), black_box(&y), black_box(&mut z))));
}

fn print_time(name: &str, nanoseconds: f64) {
    println!("| {name} | {nanoseconds:.3} | {:.2} |", 1.0 / nanoseconds);
}

/// Nanoseconds per element of a call that computes 4096.
fn best_time(mut call: impl FnMut()) -> f64 {
    let mut batch = || {
        let start = Instant::now();
        (0..32).for_each(|_| call());
        start.elapsed().as_secs_f64() * 1e9 / (32.0 * 4096.0)
    };
    (0..200).map(|_| batch()).fold(f64::INFINITY, f64::min)
}
