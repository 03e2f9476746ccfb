//! One task: rows that share keys and values, block by block.

use std::ops::Range;

use elinvar_core::DType;

use super::{
    Launch,
    blocks::{self, BLOCK, State},
    mask, scores,
    values::{self, GROUP, Values},
};
use crate::{
    attention::ROWS,
    float::Float,
    matmul::cpu::{
        operand::Float as Load,
        simd::{Simd, Work},
    },
};

/// Elements of a row are padded to whole vectors of any level.
const PAD: usize = 16;

/// Up to 64 rows of one sequence and key head. Row `i` is query `i / group` of head `i % group` of the group.
pub(super) struct Task<'a, Q, T> {
    launch: &'a Launch<'a, Q, T>,
    batch: usize,
    kv_head: usize,
    first: usize,
    /// The keys each row may attend.
    attended: Vec<Range<usize>>,
}

/// A thread's memory, kept from task to task.
#[derive(Default)]
pub(super) struct Workspace {
    queries: Vec<f32>,
    panel: Vec<f32>,
    weights: Vec<f32>,
    wide: Vec<f32>,
    block: Partial,
}

/// States and weighted sums of values of a task's rows.
#[derive(Default)]
pub(super) struct Partial {
    states: Vec<State>,
    values: Vec<f32>,
}

impl Partial {
    fn reset(&mut self, rows: usize, padded: usize) {
        self.states.clear();
        self.states.resize(rows, State::EMPTY);
        self.values.clear();
        self.values.resize(rows * padded, 0.0);
    }

    fn merge(&mut self, other: &Partial, padded: usize) {
        let rows = self.states.iter_mut().zip(self.values.chunks_exact_mut(padded));
        for ((state, values), (new, new_values)) in rows.zip(other.states.iter().zip(other.values.chunks_exact(padded))) {
            blocks::merge(state, values, *new, new_values);
        }
    }
}

impl<'a, Q: Float + Load, T: Float + Load> Task<'a, Q, T> {
    /// Task `index` of a launch: tiles of rows outermost, so that tasks of like length are neighbours.
    pub(super) fn new(launch: &'a Launch<'a, Q, T>, index: usize) -> Self {
        let p = &launch.p.score;
        let heads = (p.batch * p.kv_heads) as usize;
        let (tile, head) = (index / heads, index % heads);
        let (batch, kv_head) = (head / p.kv_heads as usize, head % p.kv_heads as usize);
        let (first, group) = (tile * ROWS as usize, p.group());
        let last = (first + ROWS as usize).min(p.queries as usize * group);
        let attended = (first..last).map(|row| p.attended(batch, row / group, launch.positions, launch.lengths)).collect();
        Self { launch, batch, kv_head, first, attended }
    }

    /// Keys that any row may attend.
    fn keys(&self) -> Range<usize> {
        let some = || self.attended.iter().filter(|r| !r.is_empty());
        some().map(|r| r.start).min().unwrap_or(0)..some().map(|r| r.end).max().unwrap_or(0)
    }

    /// The blocks they lie in.
    pub(super) fn blocks(&self) -> Range<usize> {
        let keys = self.keys();
        keys.start / BLOCK..keys.end.div_ceil(BLOCK)
    }

    fn padded_values(&self) -> usize {
        scores::padded(self.launch.p.value_width as usize, PAD)
    }

    /// Batch, head and query of a row.
    fn place(&self, row: usize) -> [usize; 3] {
        let (row, group) = (self.first + row, self.launch.p.score.group());
        [self.batch, self.kv_head * group + row % group, row / group]
    }

    fn key(&self, index: usize) -> &'a [T] {
        let p = &self.launch.p.score;
        &self.launch.k[p.k.at(self.batch, self.kv_head, index)..][..p.width as usize]
    }

    fn value(&self, index: usize) -> &'a [T] {
        let p = &self.launch.p;
        &self.launch.v[p.v.at(self.batch, self.kv_head, index)..][..p.value_width as usize]
    }

    #[inline(always)]
    fn widen_queries<S: Simd>(&self, simd: S, queries: &mut Vec<f32>) {
        let p = &self.launch.p.score;
        let (width, padded) = (p.width as usize, scores::padded(p.width as usize, PAD));
        queries.resize(self.attended.len() * padded, 0.0);
        for (row, to) in queries.chunks_exact_mut(padded).enumerate() {
            let [b, h, t] = self.place(row);
            scores::widen_query(simd, &self.launch.q[p.q.at(b, h, t)..][..width], to);
        }
    }

    /// Folds one block into `space.block`.
    #[inline(always)]
    fn fold<S: Simd>(&self, simd: S, space: &mut Workspace, block: usize) {
        let (base, keys) = (block * BLOCK, self.keys());
        let inside = |r: &Range<usize>| r.start.clamp(base, base + BLOCK) - base..r.end.clamp(base, base + BLOCK) - base;
        let keys = inside(&keys);
        space.block.reset(self.attended.len(), self.padded_values());
        space.weights.resize(self.attended.len() * BLOCK, 0.0);
        self.dots(simd, space, base, keys.clone());
        let rows = space.weights.as_chunks_mut::<BLOCK>().0.iter_mut().zip(&mut space.block.states);
        for (row, (weights, state)) in rows.enumerate() {
            let attended = inside(&self.attended[row]);
            if attended.is_empty() {
                weights.fill(0.0);
                continue;
            }
            mask::finish(&self.launch.p.score, self.launch.mask, self.place(row), base, attended, weights);
            *state = blocks::weights(weights);
        }
        for group in keys.start / GROUP..keys.end.div_ceil(GROUP) {
            let group = keys.start.max(group * GROUP)..keys.end.min((group + 1) * GROUP);
            self.add_group(simd, space, base, group);
        }
    }

    #[inline(always)]
    fn dots<S: Simd>(&self, simd: S, space: &mut Workspace, base: usize, keys: Range<usize>) {
        let padded = scores::padded(self.launch.p.score.width as usize, PAD);
        space.panel.resize(padded * S::LANES, 0.0);
        for start in (keys.start / S::LANES * S::LANES..keys.end).step_by(S::LANES) {
            let end = keys.end.min(start + S::LANES);
            scores::pack(simd, end - start, |i| self.key(base + start + i), &mut space.panel);
            for (i, attended) in self.attended.chunks(scores::ROWS).enumerate() {
                if attended.iter().any(|r| r.start < base + end && r.end > base + start) {
                    let row = i * scores::ROWS;
                    let queries = &space.queries[row * padded..][..attended.len() * padded];
                    scores::dots(simd, &space.panel, queries, padded, &mut space.weights[row * BLOCK + start..], BLOCK);
                }
            }
        }
    }

    #[inline(always)]
    fn add_group<S: Simd>(&self, simd: S, space: &mut Workspace, base: usize, keys: Range<usize>) {
        let (width, padded) = (self.launch.p.value_width as usize, self.padded_values());
        if width == 0 {
            return;
        }
        let values = if T::DTYPE == DType::F32 && width == padded && self.launch.p.v.token >= width as i64 {
            let start = self.launch.p.v.at(self.batch, self.kv_head, base + keys.start);
            Values { wide: bytemuck::cast_slice(&self.launch.v[start..]), stride: self.launch.p.v.token as usize, padded }
        } else {
            space.wide.resize(GROUP * padded, 0.0);
            values::widen(simd, keys.len(), |i| self.value(base + keys.start + i), &mut space.wide, padded);
            Values { wide: &space.wide, stride: padded, padded }
        };
        values::add_group(simd, values, keys.len(), &space.weights[keys.start..], BLOCK, &mut space.block.values);
    }

    #[inline(always)]
    fn store(&self, total: &Partial) {
        let p = &self.launch.p;
        let width = p.value_width as usize;
        for (row, state) in total.states.iter().enumerate() {
            let [b, h, t] = self.place(row);
            // SAFETY: this task alone has this row.
            let y = unsafe { self.launch.y.row(p.y.at(b, h, t), width) };
            let factor = if state.is_empty() { 0.0 } else { 1.0 / state.sum };
            for (y, value) in y.iter_mut().zip(&total.values[row * self.padded_values()..]) {
                *y = Q::from_f32(value * factor);
            }
        }
    }
}

/// A whole task.
pub(super) struct Whole<'a, Q, T> {
    pub(super) task: Task<'a, Q, T>,
    pub(super) space: &'a mut Workspace,
}

impl<Q: Float + Load, T: Float + Load> Work for Whole<'_, Q, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { task, space } = self;
        let (rows, padded) = (task.attended.len(), task.padded_values());
        let mut total = Partial::default();
        total.reset(rows, padded);
        task.widen_queries(simd, &mut space.queries);
        for block in task.blocks() {
            task.fold(simd, space, block);
            total.merge(&space.block, padded);
        }
        task.store(&total);
    }
}

/// Some blocks of a task, unmerged.
pub(super) struct Blocks<'a, Q, T> {
    pub(super) task: &'a Task<'a, Q, T>,
    pub(super) first: usize,
    pub(super) partials: &'a mut [Partial],
    pub(super) space: &'a mut Workspace,
}

impl<Q: Float + Load, T: Float + Load> Work for Blocks<'_, Q, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        self.task.widen_queries(simd, &mut self.space.queries);
        for (i, partial) in self.partials.iter_mut().enumerate() {
            self.task.fold(simd, self.space, self.first + i);
            std::mem::swap(partial, &mut self.space.block);
        }
    }
}

/// Merges the blocks of a task in order.
pub(super) struct Merge<'a, Q, T> {
    pub(super) task: &'a Task<'a, Q, T>,
    pub(super) partials: &'a [Partial],
}

impl<Q: Float + Load, T: Float + Load> Work for Merge<'_, Q, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _simd: S) {
        let mut total = Partial::default();
        total.reset(self.task.attended.len(), self.task.padded_values());
        self.partials.iter().for_each(|partial| total.merge(partial, self.task.padded_values()));
        self.task.store(&total);
    }
}
