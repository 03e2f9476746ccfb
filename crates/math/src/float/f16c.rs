//! Conversions of f16 by the instructions made for them.

use std::arch::x86_64::{
    _MM_FROUND_TO_NEAREST_INT, _mm_loadu_si128, _mm_storeu_si128, _mm256_cvtph_ps, _mm256_cvtps_ph, _mm256_loadu_ps, _mm256_storeu_ps,
};

use half::f16;

use super::scalar::{f16_from_f32, f16_to_f32};

/// Elements of a step.
const STEP: usize = 8;

#[target_feature(enable = "avx,f16c")]
pub(super) fn widen(from: &[f16], to: &mut [f32]) {
    let ((from, from_rest), (to, to_rest)) = (from.as_chunks::<STEP>(), to.as_chunks_mut::<STEP>());
    for (from, to) in from.iter().zip(to) {
        // SAFETY: both are arrays of eight.
        unsafe { _mm256_storeu_ps(to.as_mut_ptr(), _mm256_cvtph_ps(_mm_loadu_si128(from.as_ptr().cast()))) };
    }
    for (from, to) in from_rest.iter().zip(to_rest) {
        *to = f16_to_f32(*from);
    }
}

#[target_feature(enable = "avx,f16c")]
pub(super) fn narrow(from: &[f32], to: &mut [f16]) {
    let ((from, from_rest), (to, to_rest)) = (from.as_chunks::<STEP>(), to.as_chunks_mut::<STEP>());
    for (from, to) in from.iter().zip(to) {
        // SAFETY: both are arrays of eight.
        unsafe { _mm_storeu_si128(to.as_mut_ptr().cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm256_loadu_ps(from.as_ptr()))) };
    }
    for (from, to) in from_rest.iter().zip(to_rest) {
        *to = f16_from_f32(*from);
    }
}
