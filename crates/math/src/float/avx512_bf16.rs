//! Rounding to bf16 by the instruction made for it, which takes denormals for zero: vectors that hold one are rounded in integers.

use std::arch::x86_64::{__m512bh, __m512i, _mm512_cvtne2ps_pbh, _mm512_fpclass_ps_mask, _mm512_loadu_ps, _mm512_storeu_si512};

use half::bf16;

use super::scalar::bf16_from_f32;

/// Elements of a step.
const STEP: usize = 32;

/// The class of denormals.
const DENORMAL: i32 = 0x20;

#[target_feature(enable = "avx512f,avx512dq,avx512bf16")]
pub(super) fn narrow(from: &[f32], to: &mut [bf16]) {
    let ((from, from_rest), (to, to_rest)) = (from.as_chunks::<STEP>(), to.as_chunks_mut::<STEP>());
    for (from, to) in from.iter().zip(to) {
        // SAFETY: 32 floats are two vectors.
        let (low, high) = unsafe { (_mm512_loadu_ps(from.as_ptr()), _mm512_loadu_ps(from.as_ptr().add(STEP / 2))) };
        if _mm512_fpclass_ps_mask::<DENORMAL>(low) | _mm512_fpclass_ps_mask::<DENORMAL>(high) == 0 {
            let rounded = _mm512_cvtne2ps_pbh(high, low);
            // SAFETY: 32 bf16 are one vector, of plain bits.
            unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), std::mem::transmute::<__m512bh, __m512i>(rounded)) };
        } else {
            narrow_each(from, to);
        }
    }
    narrow_each(from_rest, to_rest);
}

#[inline(always)]
fn narrow_each(from: &[f32], to: &mut [bf16]) {
    for (from, to) in from.iter().zip(to) {
        *to = bf16_from_f32(*from);
    }
}
