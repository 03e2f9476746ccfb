//! Attention's launches on a GPU: one for many queries, two for few.

use elinvar_core::{DType, DeviceProperties, Error, Extent, KernelKey, MetalFile, MetalForm, Parameter, Result};

use super::{
    Params, Types,
    scoring::{self, MaskView, ScoreParams, View},
};
use crate::{
    Argument, Launch, Plan, math,
    metal::{self, metal_file},
    order,
};

const STATES: MetalFile = metal_file!("attention/states.metal");
const TILE: MetalFile = metal_file!("attention/tile.metal");

/// The files of a kernel that works on tiles.
const fn of_tiles(kernel: MetalFile) -> [MetalFile; 13] {
    let [view, mask, score, params] = [View::METAL, MaskView::METAL, ScoreParams::METAL, Params::METAL];
    [metal::TYPES, metal::LAUNCHES, math::METAL, order::METAL, order::LANES, view, mask, score, params, scoring::METAL, STATES, TILE, kernel]
}

const WHOLE: MetalForm = MetalForm::new(&of_tiles(metal_file!("attention/attention.metal")), "attention");
const SPLIT: MetalForm = MetalForm::new(&of_tiles(metal_file!("attention/split.metal")), "attention_split");
const MERGE: MetalForm = MetalForm::new(
    &[
        metal::TYPES,
        metal::LAUNCHES,
        math::METAL,
        View::METAL,
        MaskView::METAL,
        ScoreParams::METAL,
        Params::METAL,
        scoring::METAL,
        STATES,
        metal_file!("attention/merge.metal"),
    ],
    "attention_merge",
);

/// Keys of a block.
const BLOCK: u64 = 256;

/// Rows of a tile at most.
const ROWS: u64 = 8;

/// Tiles below which a GPU is kept busy by splitting the keys.
const BUSY: u64 = 64;

/// Blocks that are merged at a time.
const MERGED: usize = 128;

/// How tiles are laid out: the kernels' constants.
struct Shape {
    rows: u64,
    lanes: u64,
    columns: u64,
    chunks: u64,
}

impl Shape {
    fn new(params: &Params) -> Self {
        let s = &params.score;
        let columns = params.value_width.div_ceil(32).next_power_of_two().clamp(2, 4);
        Self {
            rows: (s.queries * s.group() as u64).next_power_of_two().min(ROWS),
            lanes: s.width.div_ceil(8).next_power_of_two().min(32),
            columns,
            chunks: params.value_width.div_ceil(32 * columns),
        }
    }

    /// Tiles of all sequences and key heads.
    fn tiles(&self, params: &Params) -> u64 {
        let s = &params.score;
        (s.queries * s.group() as u64).div_ceil(self.rows) * s.kv_heads * s.batch
    }

    fn key(&self, operator: &'static str, types: Types) -> KernelKey {
        let constant = |n: u64| n as u32;
        KernelKey::new(operator, &[types.q, types.kv, types.mask.unwrap_or(DType::Bool)])
            .with("rows", constant(self.rows))
            .with("lanes", constant(self.lanes))
            .with("columns", constant(self.columns))
            .with("chunks", constant(self.chunks))
    }

    /// Weights of a block, what the simdgroups' sums meet in, queries, and a row's flags, range, factors and scale.
    fn memory(&self) -> usize {
        4 * (self.rows * BLOCK + 8 * 256 + self.rows * 8 * self.lanes + self.rows * (8 + 2 + 2 + 1)) as usize
    }
}

pub(super) fn plan(params: &Params, types: Types, device: &DeviceProperties) -> Result<Plan> {
    let s = &params.score;
    let largest = [s.keys, s.queries * s.group() as u64, s.width, params.value_width].into_iter().max().unwrap_or(0);
    if largest > i32::MAX as u64 {
        return Err(Error::unsupported(format!("attention with an extent of {largest} on {}: less than 2^31 expected", device.name)));
    }
    let reach = [s.k.token, params.v.token].map(|token| u128::from(token.unsigned_abs()) * u128::from(s.keys));
    if let Some(reach) = reach.into_iter().find(|&reach| reach > i32::MAX as u128) {
        return Err(Error::unsupported(format!("attention to keys {reach} elements apart on {}: less than 2^31 expected", device.name)));
    }
    if params.rows() * params.value_width == 0 {
        return Ok(Plan::default());
    }
    let shape = Shape::new(params);
    let blocks = s.keys.div_ceil(BLOCK);
    if blocks > 1 && shape.tiles(params) <= BUSY { split(params, types, &shape, blocks) } else { whole(params, types, &shape) }
}

fn whole(params: &Params, types: Types, shape: &Shape) -> Result<Plan> {
    let buffers = types.inputs().into_iter().chain([(Parameter::write("y", types.q), Argument::Output(0))]);
    let launch = Launch::on_gpu(shape.key("attention", types), WHOLE, params, buffers);
    Ok(over(launch, shape.tiles(params), 256, shape.memory())?.into())
}

fn split(params: &Params, types: Types, shape: &Shape, blocks: u64) -> Result<Plan> {
    let partial = [(Parameter::update("values", DType::F32), Argument::Scratch(0)), (Parameter::update("states", DType::F32), Argument::Scratch(1))];
    let first = Launch::on_gpu(shape.key("attention_split", types), SPLIT, params, types.inputs().into_iter().chain(partial));
    let [.., positions, lengths] = types.inputs();
    let buffers = [
        (Parameter::read("values", DType::F32), Argument::Scratch(0)),
        (Parameter::read("states", DType::F32), Argument::Scratch(1)),
        positions,
        lengths,
        (Parameter::write("y", types.q), Argument::Output(0)),
    ];
    let second = Launch::on_gpu(KernelKey::new("attention_merge", &[types.q]), MERGE, params, buffers);
    let (rows, chunks) = (params.rows(), params.value_width.div_ceil(32));
    // Products of 32 columns, two factors and a sum for each block, and the greatest score of each simdgroup's blocks.
    let merging = 4 * (MERGED * (32 + 2 + 1) + 8);
    let launches = vec![over(first, shape.tiles(params) * blocks, 256, shape.memory())?, over(second, rows * chunks, 256, merging)?];
    let floats = |n: u64| (4 * rows * blocks * n) as usize;
    Ok(Plan { launches, scratch: vec![floats(params.value_width), floats(2)] })
}

fn over(launch: Launch, threadgroups: u64, threads: u32, memory: usize) -> Result<Launch> {
    let count =
        u32::try_from(threadgroups).map_err(|_| Error::unsupported(format!("attention over {threadgroups} tiles: too many for one launch")))?;
    Ok(launch.over(Extent::linear(count), Extent::linear(threads)).with_threadgroup_memory(memory))
}
