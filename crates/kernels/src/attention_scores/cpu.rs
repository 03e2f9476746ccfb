//! The CPU kernel: the tiles of attention, their scores gathered row by row.

use elinvar_core::{HostArguments, Result};
use rayon::prelude::*;

use super::{Params, operands::AT};
use crate::{
    attention::cpu::{
        SERIAL,
        blocks::BLOCK,
        target,
        tile::{Scorer, Scratch, Tile},
    },
    math,
    matmul::cpu::operand::Target,
    order, simd,
};

pub(super) fn run(arguments: &mut HostArguments<'_>) -> Result<()> {
    let p: Params = arguments.params()?;
    let s = &p.score;
    let rows = (s.batch * s.heads * s.queries) as usize;
    let y = target(arguments, AT.y, s.types[0], [rows, s.keys as usize])?;
    let scorer = Scorer::bound(arguments, p.score, AT.mask)?;
    let one = |space: &mut Workspace, index| space.tile(&scorer, &scorer.tile(index), p.softmax != 0, &y);
    if rows as u64 * s.keys * s.width <= SERIAL {
        let mut space = Workspace::default();
        (0..scorer.tiles()).for_each(|i| one(&mut space, i));
    } else {
        (0..scorer.tiles()).into_par_iter().for_each_init(Workspace::default, one);
    }
    Ok(())
}

#[derive(Default)]
struct Workspace {
    scratch: Scratch,
    rows: Vec<f32>,
}

impl Workspace {
    fn tile(&mut self, scorer: &Scorer<'_>, tile: &Tile<'_>, softmax: bool, y: &Target<'_>) {
        let (p, keys) = (&scorer.p, scorer.p.keys as usize);
        self.rows.clear();
        self.rows.resize(tile.rows() * keys, f32::NEG_INFINITY);
        tile.begin(&mut self.scratch);
        for block in tile.blocks() {
            tile.score(&mut self.scratch, block);
            let inside = block * BLOCK..keys.min((block + 1) * BLOCK);
            for (row, scores) in self.rows.chunks_exact_mut(keys).zip(self.scratch.scores.chunks_exact(BLOCK)) {
                row[inside.clone()].copy_from_slice(&scores[..inside.len()]);
            }
        }
        for (index, row) in self.rows.chunks_exact_mut(keys.max(1)).enumerate() {
            if softmax {
                probabilities(row);
            }
            let [b, h, t] = tile.place(index);
            // SAFETY: this tile alone has this row.
            unsafe { y.store((b * p.heads as usize + h) * p.queries as usize + t, 0, row) };
        }
    }
}

simd! {
    /// The softmax of a row, in place; zeros for a row of −∞ alone.
    fn probabilities(row: &mut [f32]) {
        let max = order::fold(&*row, f32::NEG_INFINITY, order::max, order::max);
        if max == f32::NEG_INFINITY {
            return row.fill(0.0);
        }
        for score in row.iter_mut() {
            *score = math::exp(*score - max);
        }
        let scale = 1.0 / order::sum(&*row, order::add);
        for weight in row.iter_mut() {
            *weight *= scale;
        }
    }
}
