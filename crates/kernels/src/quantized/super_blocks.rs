//! Blocks of 256 weights in groups of 16 or 32, whose scales are small integers below a common f16 scale.

use super::half_at;

/// The `i`-th of 256 2-bit numbers: each 32 bytes hold 128, the first 32 in the lowest bits.
fn two_bits(bytes: &[u8], i: usize) -> u8 {
    bytes[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3
}

/// The `i`-th of 256 4-bit numbers: each 32 bytes hold 64, the first 32 in the low halves.
fn four_bits(bytes: &[u8], i: usize) -> u8 {
    bytes[i / 64 * 32 + i % 32] >> (i % 64 / 32 * 4) & 15
}

/// 16 bytes of 4-bit scales and minima, 2-bit numbers, `d`, `dmin`: `(d s) q − dmin m`.
pub(super) fn q2_k(block: &[u8; 84], values: &mut [f32; 256]) {
    let (d, dmin) = (half_at(block, 80), half_at(block, 82));
    for (group, values) in values.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        let (scale, min) = (d * f32::from(block[group] & 15), dmin * f32::from(block[group] >> 4));
        for (i, value) in values.iter_mut().enumerate() {
            *value = scale * f32::from(two_bits(&block[16..80], group * 16 + i)) - min;
        }
    }
}

/// 32 bytes of third bits, 2-bit numbers, 12 bytes of 6-bit scales, `d`: `(d (s − 32)) (q − 4)`, with the third bit of `q` set for no subtraction.
pub(super) fn q3_k(block: &[u8; 110], values: &mut [f32; 256]) {
    let d = half_at(block, 108);
    let scales = &block[96..108];
    for (group, values) in values.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        let low = scales[group % 8] >> (group / 8 * 4) & 15;
        let high = scales[8 + group % 4] >> (group / 4 * 2) & 3;
        let scale = d * (f32::from(low | high << 4) - 32.0);
        for (i, value) in values.iter_mut().enumerate() {
            let i = group * 16 + i;
            let third = block[i % 32] >> (i / 32) & 1;
            *value = scale * (f32::from(two_bits(&block[32..96], i) | third << 2) - 4.0);
        }
    }
}

/// The 6-bit scale and minimum of a group of 32: 12 bytes hold eight of each. Those of the first four groups are the lower six bits of the first eight
/// bytes; the others have four bits in the last four bytes and two above those six.
fn scale_and_min(bytes: &[u8], group: usize) -> (f32, f32) {
    let (scale, min) = match group.checked_sub(4) {
        None => (bytes[group] & 63, bytes[group + 4] & 63),
        Some(late) => (bytes[group + 4] & 15 | bytes[late] >> 6 << 4, bytes[group + 4] >> 4 | bytes[group] >> 6 << 4),
    };
    (scale.into(), min.into())
}

/// `(d s) q − dmin m` in groups of 32, with the block's first 16 bytes `d`, `dmin` and 6-bit scales and minima.
fn grouped(block: &[u8], values: &mut [f32; 256], number: impl Fn(usize) -> u8) {
    let (d, dmin) = (half_at(block, 0), half_at(block, 2));
    for (group, values) in values.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let (scale, min) = scale_and_min(&block[4..16], group);
        let (scale, min) = (d * scale, dmin * min);
        for (i, value) in values.iter_mut().enumerate() {
            *value = scale * f32::from(number(group * 32 + i)) - min;
        }
    }
}

/// `d`, `dmin`, scales and minima, 4-bit numbers.
pub(super) fn q4_k(block: &[u8; 144], values: &mut [f32; 256]) {
    grouped(block, values, |i| four_bits(&block[16..], i));
}

/// `d`, `dmin`, scales and minima, 32 bytes of fifth bits, 4-bit numbers.
pub(super) fn q5_k(block: &[u8; 176], values: &mut [f32; 256]) {
    grouped(block, values, |i| four_bits(&block[48..], i) | (block[16 + i % 32] >> (i / 32) & 1) << 4);
}

/// The lower four bits of all numbers (each 64 bytes hold 128, the first 64 in the low halves), the upper two, signed 8-bit scales of 16, `d`:
/// `(d s) (q − 32)`.
pub(super) fn q6_k(block: &[u8; 210], values: &mut [f32; 256]) {
    let d = half_at(block, 208);
    for (group, values) in values.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        let scale = d * f32::from(block[192 + group] as i8);
        for (i, value) in values.iter_mut().enumerate() {
            let i = group * 16 + i;
            let low = block[i / 128 * 64 + i % 64] >> (i % 128 / 64 * 4) & 15;
            *value = scale * (f32::from(low | two_bits(&block[128..192], i) << 4) - 32.0);
        }
    }
}
