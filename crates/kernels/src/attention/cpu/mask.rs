//! From dot products to the scores of one query and one block of keys.

use std::ops::Range;

use elinvar_core::{HostArguments, Result};
use half::{bf16, f16};

use crate::{
    attention::{ScoreParams, scoring::NO_MASK},
    float::Float,
    math,
};

/// The mask's elements in their own type.
#[derive(Clone, Copy)]
pub(crate) enum Mask<'a> {
    None,
    Bool(&'a [u8]),
    F32(&'a [f32]),
    F16(&'a [f16]),
    Bf16(&'a [bf16]),
}

impl<'a> Mask<'a> {
    /// The mask bound at `index`, of the type that the parameters tell.
    pub(crate) fn bound(arguments: &HostArguments<'a>, index: usize, kind: u32) -> Result<Self> {
        Ok(match kind {
            NO_MASK => Mask::None,
            1 => Mask::Bool(arguments.input(index)?),
            2 => Mask::F32(arguments.input(index)?),
            3 => Mask::F16(arguments.input(index)?),
            _ => Mask::Bf16(arguments.input(index)?),
        })
    }

    /// Masks scores of consecutive keys; the first one's element is at `start`, the next `stride` further.
    #[inline(always)]
    fn apply(self, start: usize, stride: i64, scores: &mut [f32]) {
        match self {
            Mask::None => {}
            Mask::Bool(mask) => select(mask, start, stride, scores, |m, s| if m == 0 { f32::NEG_INFINITY } else { s }),
            Mask::F32(mask) => select(mask, start, stride, scores, |m, s| s + m),
            Mask::F16(mask) => select(mask, start, stride, scores, |m, s| s + Float::to_f32(m)),
            Mask::Bf16(mask) => select(mask, start, stride, scores, |m, s| s + Float::to_f32(m)),
        }
    }
}

#[inline(always)]
fn select<T: Copy>(mask: &[T], start: usize, stride: i64, scores: &mut [f32], apply: impl Fn(T, f32) -> f32) {
    if stride == 1 {
        for (score, mask) in scores.iter_mut().zip(&mask[start..]) {
            *score = apply(*mask, *score);
        }
    } else {
        for (i, score) in scores.iter_mut().enumerate() {
            *score = apply(mask[(start as i64 + i as i64 * stride) as usize], *score);
        }
    }
}

/// Turns the dot products of query `(b, h, t)` with the keys `first + attended` into scores; every other entry becomes −∞.
#[inline(always)]
pub(crate) fn finish(p: &ScoreParams, mask: Mask<'_>, [b, h, t]: [usize; 3], first: usize, attended: Range<usize>, scores: &mut [f32]) {
    scores[..attended.start].fill(f32::NEG_INFINITY);
    scores[attended.end..].fill(f32::NEG_INFINITY);
    let start = first + attended.start;
    let scores = &mut scores[attended];
    for score in scores.iter_mut() {
        *score *= p.scale;
    }
    if p.softcap > 0.0 {
        for score in scores.iter_mut() {
            *score = p.softcap * math::tanh(*score / p.softcap);
        }
    }
    if !scores.is_empty() {
        mask.apply((p.mask.view.at(b, h, t) as i64 + start as i64 * p.mask.key) as usize, p.mask.key, scores);
    }
}
