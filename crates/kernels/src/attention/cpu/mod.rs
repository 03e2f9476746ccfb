//! The CPU kernel. A task takes up to 64 rows (queries times the heads of a group) that share keys and values, and walks over their blocks:
//! dot products against panels of transposed keys, weights, groups of values, combine. Where there are fewer tasks than threads need, the
//! blocks are spread over threads instead and combined afterwards in the same order.

pub(crate) mod blocks;
pub(crate) mod mask;
pub(super) mod pages;
pub(crate) mod rows;
pub(crate) mod scores;
mod task;
pub(crate) mod tile;
pub(crate) mod values;

use elinvar_core::{Error, HostArguments, Result};
use rayon::prelude::*;

use self::{
    blocks::Partial,
    rows::Cache,
    task::{Launch, Task, Workspace},
    tile::Scorer,
};
use super::{Params, operands::AT};
use crate::matmul::{self, cpu::operand::Target};

/// Multiplications below which a second thread costs more than it gives.
pub(crate) const SERIAL: u64 = 1 << 16;

pub(super) fn run(arguments: &mut HostArguments<'_>) -> Result<()> {
    let p: Params = arguments.params()?;
    let scorer = Scorer::bound(arguments, p.score, AT.mask)?;
    compute(arguments, p, scorer, AT.y)
}

/// Attention of what is bound as for [`Attention`](super::Attention), with the output at `y`.
pub(super) fn compute(arguments: &mut HostArguments<'_>, p: Params, scorer: Scorer<'_>, y: usize) -> Result<()> {
    let s = &p.score;
    let rows = (s.batch * s.heads * s.queries) as usize;
    let y = target(arguments, y, s.types[0], [rows, p.value_width as usize])?;
    let launch = Launch { p, scorer, v: Cache::bound(arguments, AT.v, s.types[1])?, y };
    let count = launch.scorer.tiles();
    let task = |index: usize| Task { launch: &launch, tile: launch.scorer.tile(index) };
    let threads = rayon::current_num_threads();
    if threads == 1 || rows as u64 * s.keys * (s.width + p.value_width) <= SERIAL {
        let mut space = Workspace::default();
        (0..count).for_each(|i| task(i).whole(&mut space));
    } else if count >= 2 * threads {
        (0..count).into_par_iter().for_each_init(Workspace::default, |space, i| task(i).whole(space));
    } else {
        (0..count).into_par_iter().for_each(|i| split(&task(i)));
    }
    Ok(())
}

/// The output bound at `index`, of the type that `code` stands for, as rows.
pub(crate) fn target<'a>(arguments: &mut HostArguments<'a>, index: usize, code: u32, [rows, columns]: [usize; 2]) -> Result<Target<'a>> {
    Target::new(matmul::values_mut(arguments, index, code)?, [rows, columns], columns).ok_or_else(|| Error::invalid_launch("the output is too small"))
}

/// Spreads the blocks of one task over threads.
fn split(task: &Task<'_>) {
    let blocks = task.tile.blocks();
    let mut partials: Vec<Partial> = blocks.clone().map(|_| Partial::default()).collect();
    let run = blocks.len().div_ceil(2 * rayon::current_num_threads()).max(1);
    let parts = partials.par_chunks_mut(run).enumerate();
    parts.for_each_init(Workspace::default, |space, (i, partials)| task.part(space, blocks.start + i * run, partials));
    task.combine(&partials);
}
