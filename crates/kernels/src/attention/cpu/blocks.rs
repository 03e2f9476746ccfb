//! The softmax of one block, and the merging of blocks.

use crate::{math, order};

/// Keys of a block.
pub(crate) const BLOCK: usize = 256;

/// What the blocks so far come to, for one query: the greatest score, the sum of weights, and beside it the sum of weighted values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct State {
    pub(crate) max: f32,
    pub(crate) sum: f32,
}

impl State {
    /// No key yet.
    pub(crate) const EMPTY: State = State { max: f32::NEG_INFINITY, sum: 0.0 };

    /// Whether no key was attended.
    pub(crate) fn is_empty(self) -> bool {
        self.max == f32::NEG_INFINITY
    }
}

/// Turns the scores of a block into weights, and gives their maximum and sum.
#[inline(always)]
pub(crate) fn weights(scores: &mut [f32; BLOCK]) -> State {
    let mut partial = [f32::NEG_INFINITY; 16];
    for chunk in scores.chunks_exact(16) {
        for (partial, score) in partial.iter_mut().zip(chunk) {
            *partial = order::max(*score, *partial);
        }
    }
    let max = partial.into_iter().fold(f32::NEG_INFINITY, order::max);
    if max == f32::NEG_INFINITY {
        scores.fill(0.0);
        return State::EMPTY;
    }
    for score in scores.iter_mut() {
        *score = math::exp(*score - max);
    }
    State { max, sum: order::combine_group(scores, order::add) }
}

/// Merges the next block into what came before.
#[inline(always)]
pub(crate) fn merge(state: &mut State, values: &mut [f32], block: State, block_values: &[f32]) {
    if block.is_empty() {
        return;
    }
    if state.is_empty() {
        *state = block;
        values.copy_from_slice(block_values);
        return;
    }
    let max = order::max(state.max, block.max);
    let (a, b) = (math::exp(state.max - max), math::exp(block.max - max));
    *state = State { max, sum: state.sum.mul_add(a, block.sum * b) };
    for (value, new) in values.iter_mut().zip(block_values) {
        *value = value.mul_add(a, new * b);
    }
}
