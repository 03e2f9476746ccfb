//! Blocks of 32 weights with one scale, and in some formats an offset.

use super::{half_at, nibble};

fn fill(values: &mut [f32; 32], value: impl Fn(usize) -> f32) {
    values.iter_mut().enumerate().for_each(|(i, v)| *v = value(i));
}

/// Scale, 32 4-bit numbers: `d (q − 8)`.
pub(super) fn q4_0(block: &[u8; 18], values: &mut [f32; 32]) {
    let d = half_at(block, 0);
    fill(values, |i| d * (f32::from(nibble(&block[2..], i)) - 8.0));
}

/// Scale, offset, 32 4-bit numbers: `d q + m`.
pub(super) fn q4_1(block: &[u8; 20], values: &mut [f32; 32]) {
    let (d, m) = (half_at(block, 0), half_at(block, 2));
    fill(values, |i| d * f32::from(nibble(&block[4..], i)) + m);
}

/// The `i`-th 5-bit number: `bytes` hold the highest bits of all, four bytes, then the lower four bits.
fn five_bits(bytes: &[u8], i: usize) -> u8 {
    nibble(&bytes[4..], i) | (bytes[i / 8] >> (i % 8) & 1) << 4
}

/// Scale, 32 5-bit numbers: `d (q − 16)`.
pub(super) fn q5_0(block: &[u8; 22], values: &mut [f32; 32]) {
    let d = half_at(block, 0);
    fill(values, |i| d * (f32::from(five_bits(&block[2..], i)) - 16.0));
}

/// Scale, offset, 32 5-bit numbers: `d q + m`.
pub(super) fn q5_1(block: &[u8; 24], values: &mut [f32; 32]) {
    let (d, m) = (half_at(block, 0), half_at(block, 2));
    fill(values, |i| d * f32::from(five_bits(&block[4..], i)) + m);
}

/// Scale, 32 signed bytes: `d q`.
pub(super) fn q8_0(block: &[u8; 34], values: &mut [f32; 32]) {
    let d = half_at(block, 0);
    fill(values, |i| d * f32::from(block[2 + i] as i8));
}
