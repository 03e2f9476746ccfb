//! The CPU twin. A task takes up to 64 rows (queries times the heads of a group) that share keys and values, and walks over their blocks:
//! dot products against panels of transposed keys, weights, groups of values, merge. Where there are fewer tasks than threads need, the
//! blocks are spread over threads instead and merged afterwards in the same order.

pub(crate) mod blocks;
pub(crate) mod mask;
pub(crate) mod output;
pub(crate) mod scores;
mod task;
pub(crate) mod values;

use elinvar_core::{DType, Error, HostArguments, HostKernel, Result};
use half::{bf16, f16};
use rayon::prelude::*;

use self::{
    mask::Mask,
    output::Output,
    task::{Blocks, Merge, Partial, Task, Whole, Workspace},
};
use super::{Params, ROWS};
use crate::{
    float::Float,
    matmul::cpu::{operand::Float as Load, simd::Level},
};

pub(super) fn twin(q: DType, kv: DType) -> Result<HostKernel> {
    Ok(match (q, kv) {
        (DType::F32, DType::F32) => run::<f32, f32>,
        (DType::F32, DType::F16) => run::<f32, f16>,
        (DType::F32, DType::BF16) => run::<f32, bf16>,
        (DType::F16, DType::F16) => run::<f16, f16>,
        (DType::BF16, DType::BF16) => run::<bf16, bf16>,
        _ => return Err(Error::unsupported(format!("attention of {q} queries over {kv} keys"))),
    })
}

/// Multiplications below which a second thread costs more than it gives.
const SERIAL: u64 = 1 << 16;

/// One launch: its parameters and buffers.
pub(super) struct Launch<'a, Q, T> {
    p: Params,
    q: &'a [Q],
    k: &'a [T],
    v: &'a [T],
    mask: Mask<'a>,
    positions: Option<&'a [i32]>,
    lengths: Option<&'a [i32]>,
    y: Output<'a, Q>,
}

fn run<Q: Float + Load, T: Float + Load>(arguments: &mut HostArguments<'_>) -> Result<()> {
    let p: Params = arguments.params()?;
    let launch = Launch {
        p,
        q: arguments.input::<Q>(0)?,
        k: arguments.input::<T>(1)?,
        v: arguments.input::<T>(2)?,
        mask: Mask::bound(arguments, 3, p.score.mask_kind)?,
        positions: arguments.optional(4)?,
        lengths: arguments.optional(5)?,
        y: Output::new(arguments.output::<Q>(6)?),
    };
    let (level, s) = (Level::best(), &p.score);
    let tiles = (s.queries * s.group() as u64).div_ceil(ROWS);
    let count = (tiles * s.kv_heads * s.batch) as usize;
    // The last queries attend most keys: they go first, so that no thread is left with the longest task at the end.
    let task = |index: usize| Task::new(&launch, count - 1 - index);
    let threads = rayon::current_num_threads();
    if threads == 1 || s.queries * s.heads * s.batch * s.keys * (s.width + p.value_width) <= SERIAL {
        let mut space = Workspace::default();
        (0..count).for_each(|i| level.run(Whole { task: task(i), space: &mut space }));
    } else if count >= 2 * threads {
        (0..count).into_par_iter().for_each_init(Workspace::default, |space, i| level.run(Whole { task: task(i), space }));
    } else {
        (0..count).into_par_iter().for_each(|i| split(level, &task(i)));
    }
    Ok(())
}

/// Spreads the blocks of one task over threads.
fn split<Q: Float + Load, T: Float + Load>(level: Level, task: &Task<'_, Q, T>) {
    let blocks = task.blocks();
    let mut partials: Vec<Partial> = blocks.clone().map(|_| Partial::default()).collect();
    let run = blocks.len().div_ceil(2 * rayon::current_num_threads()).max(1);
    partials.par_chunks_mut(run).enumerate().for_each_init(Workspace::default, |space, (i, partials)| {
        level.run(Blocks { task, first: blocks.start + i * run, partials, space });
    });
    level.run(Merge { task, partials: &partials });
}
