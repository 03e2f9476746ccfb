//! One task of attention: a tile of rows, block by block.

use super::{
    blocks::{BLOCK, Combine, Partial, Weigh},
    rows::{Cache, padded},
    tile::{Scorer, Scratch, Tile},
    values::{self, GROUP},
};
use crate::{attention::Params, matmul::cpu::operand::Target};

/// One launch: its parameters and buffers.
pub(super) struct Launch<'a> {
    pub(super) p: Params,
    pub(super) scorer: Scorer<'a>,
    pub(super) v: Cache<'a>,
    pub(super) y: Target<'a>,
}

/// A tile of a launch.
pub(super) struct Task<'a> {
    pub(super) launch: &'a Launch<'a>,
    pub(super) tile: Tile<'a>,
}

/// A thread's memory, kept from task to task.
#[derive(Default)]
pub(super) struct Workspace {
    scratch: Scratch,
    decoded: Vec<f32>,
    wide: Vec<f32>,
    block: Partial,
    total: Partial,
}

impl Task<'_> {
    /// Computes every row.
    pub(super) fn whole(&self, space: &mut Workspace) {
        self.tile.begin(&mut space.scratch);
        space.total.reset(self.tile.rows(), self.width());
        for block in self.tile.blocks() {
            self.fold(space, block);
            self.launch.scorer.level.run(Combine { total: &mut space.total, block: &space.block });
        }
        self.store(&mut space.total);
    }

    /// Folds the blocks from `first` on into a partial each.
    pub(super) fn part(&self, space: &mut Workspace, first: usize, partials: &mut [Partial]) {
        self.tile.begin(&mut space.scratch);
        for (i, partial) in partials.iter_mut().enumerate() {
            self.fold(space, first + i);
            std::mem::swap(partial, &mut space.block);
        }
    }

    /// Combines the partials of all blocks, in order.
    pub(super) fn combine(&self, partials: &[Partial]) {
        let mut total = Partial::default();
        total.reset(self.tile.rows(), self.width());
        for block in partials {
            self.launch.scorer.level.run(Combine { total: &mut total, block });
        }
        self.store(&mut total);
    }

    /// Elements of a padded value.
    fn width(&self) -> usize {
        padded(self.launch.p.value_width as usize)
    }

    /// Folds one block into `space.block`.
    fn fold(&self, space: &mut Workspace, block: usize) {
        let (Launch { p, scorer, v, .. }, first) = (self.launch, block * BLOCK);
        self.tile.score(&mut space.scratch, block);
        space.block.reset(self.tile.rows(), self.width());
        let weights = &mut space.scratch.scores;
        scorer.level.run(Weigh { scores: weights, states: &mut space.block.states });
        let keys = self.tile.keys.start.max(first)..self.tile.keys.end.min(first + BLOCK);
        for group in keys.start / GROUP..keys.end.div_ceil(GROUP) {
            let keys = keys.start.max(group * GROUP)..keys.end.min((group + 1) * GROUP);
            let (weights, span) = (&weights[keys.start - first..], self.tile.span(&p.v, p.value_width, keys));
            let (rows, span) = v.floats(span, &mut space.decoded);
            values::add_group(scorer.level, rows, span, weights, BLOCK, &mut space.wide, &mut space.block.values);
        }
    }

    fn store(&self, total: &mut Partial) {
        let (p, padded) = (&self.launch.p, self.width());
        let width = p.value_width as usize;
        if width == 0 {
            return;
        }
        for (row, (state, values)) in total.states.iter().zip(total.values.chunks_exact_mut(padded)).enumerate() {
            let factor = if state.is_empty() { 0.0 } else { 1.0 / state.sum };
            values.iter_mut().for_each(|value| *value *= factor);
            let [b, h, t] = self.tile.place(row);
            // SAFETY: this task alone has this row.
            unsafe { self.launch.y.store(p.y.at(b, h, t) / width, 0, &mut values[..width]) };
        }
    }
}
