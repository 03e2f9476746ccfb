//! Attention of many queries by simdgroup matrices, of fast precision: for Apple's GPUs, and the simulator that checks it.

use elinvar_core::{DType, DeviceKind, DeviceProperties, Extent, KernelKey, MetalForm, Parameter};

use super::{
    Inputs, Params, gpu,
    scoring::{self, MaskView, ScoreParams, View},
};
use crate::{
    Argument, Launch, Plan, Precision, math,
    metal::{self, metal_file},
};

const FORM: MetalForm = MetalForm::new(
    &[
        metal::TYPES,
        math::METAL,
        View::METAL,
        MaskView::METAL,
        ScoreParams::METAL,
        Params::METAL,
        scoring::METAL,
        metal_file!("attention/tiled/tiled.metal"),
    ],
    "attention_tiled",
);

/// Rows of a tile and keys that are staged at once, as in tiled.metal.
const ROWS: u64 = 32;
const KEYS: u64 = 32;
const THREADS: u32 = 128;

/// Elements of a key or value at most: a thread holds a quarter of their number of its simdgroup's queries and sums each, in f32, in registers.
const WIDEST: u64 = 128;

/// Rows of a key head below which more than half of a tile would be idle.
const LEAST: u64 = ROWS / 2;

/// The launch, where the kernel serves: elsewhere it is the strict kernel's, which also splits the keys of few queries.
pub(super) fn plan(params: &Params, inputs: Inputs, precision: Precision, device: &DeviceProperties) -> Option<Plan> {
    let s = &params.score;
    let of_metal = matches!(device.kind, DeviceKind::Metal | DeviceKind::MetalSim);
    let rows = s.queries * s.group() as u64;
    let [width, value_width] = [s.width, params.value_width].map(|n| n.next_multiple_of(8));
    // Strips of four simdgroups, and keys or values.
    let memory = ROWS * (4 * KEYS + 16) + KEYS * (width.max(value_width) * inputs.k.dtype.size() as u64 + 16);
    let many = rows >= LEAST && !gpu::is_split(params, gpu::tiles(params)) && rows * params.value_width * s.batch > 0;
    let fits = width.max(value_width) <= WIDEST && memory <= device.threadgroup_memory as u64;
    let counted = rows.max(s.keys) <= 1 << 30;
    let packed = inputs.k.dtype == DType::U8;
    if !precision.is_fast() || !of_metal || !many || !fits || !counted || packed {
        return None;
    }
    let tiles = u32::try_from(rows.div_ceil(ROWS) * s.kv_heads * s.batch).ok()?;
    let key = KernelKey::new("attention_tiled", &inputs.of_tile()).with("width", width as u32).with("value_width", value_width as u32);
    let buffers = inputs.buffers().into_iter().chain([(Parameter::write("y", inputs.q.dtype), Argument::Output(0))]);
    let launch = Launch::on_gpu(key, FORM, params, buffers);
    Some(launch.over(Extent::linear(tiles), Extent::linear(THREADS)).with_threadgroup_memory(memory as usize).into())
}
