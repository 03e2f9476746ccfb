//! The softmax of one block, and the combining of blocks.

use crate::{
    math,
    matmul::cpu::simd::{Simd, Work},
    order,
};

/// Keys of a block.
pub(crate) const BLOCK: usize = 256;

/// The greatest score and the sum of weights of one query over some blocks; beside it stands the sum of weighted values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct State {
    pub(crate) max: f32,
    pub(crate) sum: f32,
}

impl State {
    /// No key.
    pub(crate) const EMPTY: State = State { max: f32::NEG_INFINITY, sum: 0.0 };

    /// Whether no key was attended.
    #[inline(always)]
    pub(crate) fn is_empty(self) -> bool {
        self.max == f32::NEG_INFINITY
    }
}

/// Turns each row's scores of a block into weights, and gives their maxima and sums.
pub(crate) struct Weigh<'a> {
    pub(crate) scores: &'a mut [f32],
    pub(crate) states: &'a mut [State],
}

impl Work for Weigh<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _simd: S) {
        for (scores, state) in self.scores.as_chunks_mut().0.iter_mut().zip(self.states) {
            *state = weigh(scores);
        }
    }
}

#[inline(always)]
fn weigh(scores: &mut [f32; BLOCK]) -> State {
    let mut partial = [f32::NEG_INFINITY; 16];
    for chunk in scores.chunks_exact(16) {
        for (partial, score) in partial.iter_mut().zip(chunk) {
            *partial = order::max(*score, *partial);
        }
    }
    let mut max = f32::NEG_INFINITY;
    for partial in partial {
        max = order::max(max, partial);
    }
    if max == f32::NEG_INFINITY {
        scores.fill(0.0);
        return State::EMPTY;
    }
    for score in scores.iter_mut() {
        *score = math::exp_nonpositive(*score - max);
    }
    State { max, sum: order::combine_group(scores, order::add) }
}

/// States of some rows, and their sums of weighted values.
#[derive(Default)]
pub(crate) struct Partial {
    pub(crate) states: Vec<State>,
    pub(crate) values: Vec<f32>,
}

impl Partial {
    /// Rows without a key, with sums of `width` elements.
    pub(crate) fn reset(&mut self, rows: usize, width: usize) {
        self.states.clear();
        self.states.resize(rows, State::EMPTY);
        self.values.clear();
        self.values.resize(rows * width, 0.0);
    }
}

/// Combines the next block into what came before.
pub(crate) struct Combine<'a> {
    pub(crate) total: &'a mut Partial,
    pub(crate) block: &'a Partial,
}

impl Work for Combine<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _simd: S) {
        let Self { total, block } = self;
        let width = total.values.len() / total.states.len();
        for (row, (state, new)) in total.states.iter_mut().zip(&block.states).enumerate() {
            let (values, new_values) = (&mut total.values[row * width..][..width], &block.values[row * width..][..width]);
            if new.is_empty() {
                continue;
            }
            if state.is_empty() {
                *state = *new;
                values.copy_from_slice(new_values);
                continue;
            }
            let max = order::max(state.max, new.max);
            let (a, b) = (math::exp_nonpositive(state.max - max), math::exp_nonpositive(new.max - max));
            *state = State { max, sum: state.sum.mul_add(a, new.sum * b) };
            for (value, new) in values.iter_mut().zip(new_values) {
                *value = value.mul_add(a, new * b);
            }
        }
    }
}
