//! Conversions of one element, which loops inline.

use half::{bf16, f16};

#[inline(always)]
pub(super) fn bf16_to_f32(value: bf16) -> f32 {
    f32::from_bits(u32::from(value.to_bits()) << 16)
}

#[inline(always)]
pub(super) fn bf16_from_f32(value: f32) -> bf16 {
    let bits = value.to_bits();
    let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1));
    let quiet = bits | 0x0040_0000;
    bf16::from_bits((if value.is_nan() { quiet } else { rounded } >> 16) as u16)
}

#[inline(always)]
pub(super) fn f16_to_f32(value: f16) -> f32 {
    let bits = u32::from(value.to_bits());
    let magnitude = bits & 0x7fff;
    // Scaling by 2^112 moves the exponent's bias from 15 to 127 and normalises denormals, exactly.
    let scaled = f32::from_bits(magnitude << 13) * f32::from_bits((127 + 112) << 23);
    let special = f32::from_bits(0x7f80_0000 | magnitude << 13);
    let value = if magnitude >= 0x7c00 { special } else { scaled };
    f32::from_bits(value.to_bits() | (bits & 0x8000) << 16)
}

#[inline(always)]
pub(super) fn f16_from_f32(value: f32) -> f16 {
    let bits = value.to_bits();
    let sign = (bits >> 16) & 0x8000;
    let magnitude = bits & 0x7fff_ffff;
    // Normal results: rebias and round in integers; a carry into the exponent is what rounding up means.
    let normal = magnitude.wrapping_sub(112 << 23).wrapping_add(0xfff + ((magnitude >> 13) & 1)) >> 13;
    // Denormal results: adding 0.5 puts the last kept bit at f32's last place, so the addition itself rounds.
    let denormal = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0.5f32.to_bits());
    let finite = if magnitude < (113 << 23) { denormal } else { normal };
    let overflow = if magnitude > 0x7f80_0000 { 0x7e00 | (magnitude >> 13) & 0x3ff } else { 0x7c00 };
    let result = if magnitude >= 0x477f_f000 { overflow } else { finite };
    f16::from_bits((sign | result) as u16)
}
