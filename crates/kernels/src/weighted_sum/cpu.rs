//! The CPU kernel: tiles of up to 64 rows that share values, group by group.

use elinvar_core::{HostArguments, Result};
use rayon::prelude::*;

use super::{Params, operands::AT};
use crate::{
    attention::cpu::{
        SERIAL,
        rows::{Span, padded, widen},
        target,
        tile::ROWS,
        values::{GROUP, add_group},
    },
    matmul::{
        self,
        cpu::{
            level::Level,
            operand::{Target, Values},
        },
    },
};

pub(super) fn run(arguments: &mut HostArguments<'_>) -> Result<()> {
    let params: Params = arguments.params()?;
    let rows = (params.batch * params.heads * params.queries) as usize;
    let launch = Launch {
        level: Level::best(),
        p: matmul::values(arguments, AT.p, params.types[0])?,
        v: matmul::values(arguments, AT.v, params.types[1])?,
        y: target(arguments, AT.y, params.types[0], [rows, params.width as usize])?,
        params,
    };
    let tiles = (params.queries * (params.heads / params.kv_heads)).div_ceil(ROWS) * params.kv_heads * params.batch;
    if rows as u64 * params.keys * params.width <= SERIAL {
        let mut space = Workspace::default();
        (0..tiles).for_each(|i| launch.tile(&mut space, i as usize));
    } else {
        (0..tiles).into_par_iter().for_each_init(Workspace::default, |space, i| launch.tile(space, i as usize));
    }
    Ok(())
}

struct Launch<'a> {
    level: Level,
    p: Values<'a>,
    v: Values<'a>,
    y: Target<'a>,
    params: Params,
}

#[derive(Default)]
struct Workspace {
    weights: Vec<f32>,
    wide: Vec<f32>,
    sums: Vec<f32>,
}

impl Launch<'_> {
    /// Row `i` of a tile is query `i / group` of head `i % group` of the group.
    fn tile(&self, space: &mut Workspace, index: usize) {
        let params = &self.params;
        let (kv_heads, keys, width) = (params.kv_heads as usize, params.keys as usize, params.width as usize);
        let (group, stride) = (params.heads as usize / kv_heads, padded(keys));
        let (tile, batch, kv_head) = (index / kv_heads / params.batch as usize, index / kv_heads % params.batch as usize, index % kv_heads);
        let rows = tile * ROWS as usize..((tile + 1) * ROWS as usize).min(params.queries as usize * group);
        let place = |row: usize| [batch, kv_head * group + row % group, row / group];
        space.weights.resize(rows.len() * stride, 0.0);
        for (row, to) in rows.clone().zip(space.weights.chunks_exact_mut(stride.max(1))) {
            let [b, h, t] = place(row);
            widen(self.level, self.p, Span { start: params.p.at(b, h, t), stride: 0, width: keys, count: 1 }, 0.0, to);
        }
        space.sums.clear();
        space.sums.resize(rows.len() * padded(width), 0.0);
        for start in (0..keys).step_by(GROUP) {
            let span = Span { start: params.v.at(batch, kv_head, start), stride: params.v.token, width, count: GROUP.min(keys - start) };
            add_group(self.level, self.v, span, &space.weights[start..], stride, &mut space.wide, &mut space.sums);
        }
        for (row, sums) in rows.zip(space.sums.chunks_exact_mut(padded(width).max(1))) {
            let [b, h, t] = place(row);
            // SAFETY: this tile alone has this row.
            unsafe { self.y.store((b * params.heads as usize + h) * params.queries as usize + t, 0, &mut sums[..width]) };
        }
    }
}
