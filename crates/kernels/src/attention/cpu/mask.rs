//! From dot products to the scores of one query and one block of keys.

use std::ops::Range;

use elinvar_core::{HostArguments, Result};

use crate::{
    attention::{
        ScoreParams,
        scoring::{BOOL_MASK, NO_MASK},
    },
    float::Float,
    math,
    matmul::{
        self,
        cpu::operand::{Values, with_values},
    },
};

/// The mask's elements in their own type.
#[derive(Clone, Copy)]
pub(crate) enum Mask<'a> {
    None,
    Bool(&'a [u8]),
    Added(Values<'a>),
}

impl<'a> Mask<'a> {
    /// The mask bound at `index`, of the type that the parameters tell.
    pub(crate) fn bound(arguments: &HostArguments<'a>, index: usize, p: &ScoreParams) -> Result<Self> {
        Ok(match p.mask_type {
            NO_MASK => Mask::None,
            BOOL_MASK => Mask::Bool(arguments.input(index)?),
            code => Mask::Added(matmul::values(arguments, index, code)?),
        })
    }

    /// Masks scores of consecutive keys; the first one's element is at `start`, the next `stride` further.
    #[inline(always)]
    pub(crate) fn apply(self, start: usize, stride: i64, scores: &mut [f32]) {
        match self {
            Mask::None => {}
            Mask::Bool(mask) => select(mask, start, stride, scores, |m, s| if m == 0 { f32::NEG_INFINITY } else { s }),
            Mask::Added(mask) => with_values!(mask, |mask| select(mask, start, stride, scores, |m, s| s + Float::to_f32(m))),
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

/// Turns the dot products of query `[b, h, t]` with the keys from `first` on into scores; all but those of `attended` become −∞.
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
