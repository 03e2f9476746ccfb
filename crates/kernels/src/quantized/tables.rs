//! Blocks whose 4-bit numbers choose from a table.

use super::{half_at, nibble};

/// The numbers of IQ4: closer together around zero.
const NONLINEAR: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// Twice the numbers of a 4-bit float with two bits of exponent and one of mantissa.
const E2M1: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// Scale, 32 4-bit numbers: `d t`.
pub(super) fn iq4_nl(block: &[u8; 18], values: &mut [f32; 32]) {
    choose(half_at(block, 0), &NONLINEAR, &block[2..], values);
}

/// `d`, the upper two bits of eight scales, their lower four bits, 128 bytes of 4-bit numbers in groups of 32: `(d (s − 32)) t`.
pub(super) fn iq4_xs(block: &[u8; 136], values: &mut [f32; 256]) {
    let d = half_at(block, 0);
    let high = u16::from_le_bytes([block[2], block[3]]);
    for (group, values) in values.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let low = block[4 + group / 2] >> (group % 2 * 4) & 15;
        let scale = u16::from(low) | (high >> (group * 2) & 3) << 4;
        choose(d * (f32::from(scale) - 32.0), &NONLINEAR, &block[8 + group * 16..], values);
    }
}

/// The exponent of a power of two, 32 4-bit floats.
pub(super) fn mxfp4(block: &[u8; 17], values: &mut [f32; 32]) {
    // Half the power, 2^(e − 128), because the table is doubled: the two smallest are subnormal.
    let half_power = match block[0] {
        e @ 0..2 => 0x0020_0000 << e,
        e => (u32::from(e) - 1) << 23,
    };
    choose(f32::from_bits(half_power), &E2M1, &block[1..], values);
}

fn choose(scale: f32, table: &[i8; 16], numbers: &[u8], values: &mut [f32; 32]) {
    for (i, value) in values.iter_mut().enumerate() {
        *value = scale * f32::from(table[usize::from(nibble(numbers, i))]);
    }
}
