//! Rows of queries that share keys: what they attend, and their scores, block by block.

use std::ops::Range;

use elinvar_core::{HostArguments, Result};

use super::{
    blocks::BLOCK,
    mask::{Mask, finish},
    pages::Pages,
    rows::{Cache, LANES, Span, pack, padded, widen},
    scores::{Dots, PanelKeys, Waiting},
};
use crate::{
    attention::{ScoreParams, View, operands::AT},
    matmul::{
        self,
        cpu::{
            level::Level,
            operand::Values,
            simd::{Simd, Work},
        },
    },
};

/// Rows of queries (times heads of a group) that a tile takes.
pub(crate) const ROWS: u64 = 64;

/// A launch's queries and keys.
pub(crate) struct Scorer<'a> {
    pub(crate) level: Level,
    pub(crate) p: ScoreParams,
    q: Values<'a>,
    k: Cache<'a>,
    mask: Mask<'a>,
    positions: Option<&'a [i32]>,
    lengths: Option<&'a [i32]>,
    pages: Option<Pages<'a>>,
}

impl<'a> Scorer<'a> {
    /// Queries and keys are bound first, mask, positions and lengths from `first` on.
    pub(crate) fn bound(arguments: &HostArguments<'a>, p: ScoreParams, first: usize) -> Result<Self> {
        Ok(Self {
            level: Level::best(),
            p,
            q: matmul::values(arguments, AT.q, p.types[0])?,
            k: Cache::bound(arguments, AT.k, p.types[1])?,
            mask: Mask::bound(arguments, first, &p)?,
            positions: arguments.optional(first + 1)?,
            lengths: arguments.optional(first + 2)?,
            pages: None,
        })
    }

    /// The same over pages, with the positions at `index` and without mask and lengths.
    pub(crate) fn paged(arguments: &HostArguments<'a>, p: ScoreParams, pages: Pages<'a>, index: usize) -> Result<Self> {
        let (q, k) = (matmul::values(arguments, AT.q, p.types[0])?, Cache::bound(arguments, AT.k, p.types[1])?);
        let positions: &[i32] = arguments.input(index)?;
        for b in 0..p.batch as usize {
            pages.check(b, any_of((0..p.queries as usize).map(|t| p.attended(b, t, Some(positions), None))))?;
        }
        Ok(Self { level: Level::best(), p, q, k, mask: Mask::None, positions: Some(positions), lengths: None, pages: Some(pages) })
    }

    /// Number of tiles.
    pub(crate) fn tiles(&self) -> usize {
        ((self.p.queries * self.p.group() as u64).div_ceil(ROWS) * self.p.kv_heads * self.p.batch) as usize
    }

    /// Tiles in descending order of their queries: the last queries attend most keys, and should not be left for the end.
    pub(crate) fn tile(&'a self, index: usize) -> Tile<'a> {
        let (p, index) = (&self.p, self.tiles() - 1 - index);
        let heads = (p.batch * p.kv_heads) as usize;
        let (tile, head) = (index / heads, index % heads);
        let (batch, kv_head) = (head / p.kv_heads as usize, head % p.kv_heads as usize);
        let (first, group) = (tile * ROWS as usize, p.group());
        let last = (first + ROWS as usize).min(p.queries as usize * group);
        let attended: Vec<_> = (first..last).map(|row| p.attended(batch, row / group, self.positions, self.lengths)).collect();
        let keys = any_of(attended.iter().cloned());
        Tile { scorer: self, batch, kv_head, first, attended, keys }
    }
}

/// From the first to the last key of any of these ranges.
fn any_of(ranges: impl Iterator<Item = Range<usize>>) -> Range<usize> {
    let both = |a: Range<usize>, b: Range<usize>| a.start.min(b.start)..a.end.max(b.end);
    ranges.filter(|range| !range.is_empty()).reduce(both).unwrap_or(0..0)
}

/// Up to 64 rows of one sequence and key head. Row `i` is query `i / group` of head `i % group` of the group.
pub(crate) struct Tile<'a> {
    scorer: &'a Scorer<'a>,
    batch: usize,
    kv_head: usize,
    first: usize,
    /// The keys each row may attend.
    attended: Vec<Range<usize>>,
    /// The keys that any of them may.
    pub(crate) keys: Range<usize>,
}

/// A thread's memory, kept from tile to tile.
#[derive(Default)]
pub(crate) struct Scratch {
    queries: Vec<f32>,
    decoded: Vec<f32>,
    panel: Vec<f32>,
    waiting: Waiting,
    /// Scores of each row and the keys of a block.
    pub(crate) scores: Vec<f32>,
}

impl Tile<'_> {
    /// Number of rows.
    pub(crate) fn rows(&self) -> usize {
        self.attended.len()
    }

    /// Sequence, head and query of a row.
    pub(crate) fn place(&self, row: usize) -> [usize; 3] {
        let (row, group) = (self.first + row, self.scorer.p.group());
        [self.batch, self.kv_head * group + row % group, row / group]
    }

    /// The blocks its keys lie in.
    pub(crate) fn blocks(&self) -> Range<usize> {
        self.keys.start / BLOCK..self.keys.end.div_ceil(BLOCK)
    }

    /// Rows of keys or values, of one group of 32 keys if the cache is in pages.
    pub(crate) fn span(&self, view: &View, width: u64, keys: Range<usize>) -> Span {
        let token = self.scorer.pages.as_ref().map_or(keys.start, |pages| pages.slot(self.batch, keys.start));
        Span { start: view.at(self.batch, self.kv_head, token), stride: view.token, width: width as usize, count: keys.len() }
    }

    /// Widens the queries: to be called before [`Tile::score`].
    pub(crate) fn begin(&self, scratch: &mut Scratch) {
        let Scorer { level, p, q, .. } = self.scorer;
        let (width, padded) = (p.width as usize, padded(p.width as usize));
        scratch.queries.resize(self.rows() * padded, 0.0);
        scratch.scores.resize(self.rows() * BLOCK, 0.0);
        for (row, to) in scratch.queries.chunks_exact_mut(padded).enumerate() {
            let [b, h, t] = self.place(row);
            // −0.0 times a key's padding of +0.0 changes no accumulator.
            widen(*level, *q, Span { start: p.q.at(b, h, t), stride: 0, width, count: 1 }, -0.0, to);
        }
    }

    /// The scores of one block; −∞ where a row does not attend a key.
    pub(crate) fn score(&self, scratch: &mut Scratch, block: usize) {
        let Scorer { level, p, k, .. } = self.scorer;
        let (lanes, padded, first) = (level.run(PanelKeys), padded(p.width as usize), block * BLOCK);
        scratch.panel.resize(padded * LANES, 0.0);
        for start in (self.keys.start.max(first) / lanes * lanes..self.keys.end.min(first + BLOCK)).step_by(lanes) {
            let keys = start..self.keys.end.min(start + lanes);
            let (rows, span) = k.floats(self.span(&p.k, p.width, keys.clone()), &mut scratch.decoded);
            pack(*level, rows, span, &mut scratch.panel);
            let Scratch { queries, panel, waiting, scores, .. } = scratch;
            let out = &mut scores[start - first..];
            level.run(Dots { panel, queries, padded, attended: &self.attended, keys, out, stride: BLOCK, waiting });
        }
        level.run(Finish { tile: self, first, scores: &mut scratch.scores });
    }
}

/// Turns the dot products of a block into scores.
struct Finish<'a> {
    tile: &'a Tile<'a>,
    first: usize,
    scores: &'a mut [f32],
}

impl Work for Finish<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _simd: S) {
        let Self { tile, first, scores } = self;
        for (row, scores) in scores.chunks_exact_mut(BLOCK).enumerate() {
            let attended = &tile.attended[row];
            let attended = attended.start.clamp(first, first + BLOCK) - first..attended.end.clamp(first, first + BLOCK) - first;
            finish(&tile.scorer.p, tile.scorer.mask, tile.place(row), first, attended, scores);
        }
    }
}
