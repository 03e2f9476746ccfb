//! Attention of many queries on tensor cores: a CUDA kernel for compute capability 9.0, of fast precision.

use elinvar_core::{DeviceProperties, Extent, KernelKey, MetalFile, Parameter};

use super::{
    Inputs, Params, hopper,
    scoring::{MaskView, ScoreParams, View},
    tensor_cores::{SCORING, defines, is_plain},
};
use crate::{
    Argument, Launch, Plan, Precision,
    cuda::{CudaForm, CudaSource, INSTRUCTIONS, NUMBERS},
    metal::metal_file,
};

const FILES: &[MetalFile] = &[
    NUMBERS,
    INSTRUCTIONS,
    View::METAL,
    MaskView::METAL,
    ScoreParams::METAL,
    Params::METAL,
    SCORING,
    metal_file!("attention/prefill/layout.cu"),
    hopper::MEMORY,
    hopper::COPY,
    hopper::COMPUTE,
    hopper::QUERIES,
    metal_file!("attention/prefill/prefill.cu"),
];

/// Queries below which half of a tile would be idle.
const LEAST: u64 = 64;

/// Queries of a tile, keys that are copied at once, and items of the ring: as in layout.cu.
const ROWS: u64 = 128;
const BLOCK: u64 = 128;
const STAGES: u64 = 6;

/// The launch, where the kernel serves.
pub(super) fn plan(params: &Params, inputs: Inputs, precision: Precision, device: &DeviceProperties) -> Option<Plan> {
    let s = &params.score;
    let small = s.keys <= 1 << 30 && s.queries <= 1 << 30;
    let memory = 1024 + 2 * (ROWS + STAGES * BLOCK) * s.width;
    if !precision.is_fast()
        || !hopper::ARCHITECTURE.is_of(device)
        || !is_plain(params)
        || !small
        || s.queries < LEAST
        || memory > device.threadgroup_memory as u64
        || hopper::THREADS as usize > device.max_threads_per_threadgroup
    {
        return None;
    }
    let tiles = u32::try_from(s.queries.div_ceil(ROWS) * s.heads * s.batch).ok().filter(|&tiles| tiles <= i32::MAX as u32 / 2)?;
    let source = CudaSource {
        files: FILES,
        entry: "attention_prefill",
        defines: defines(inputs.q.dtype, inputs.k.dtype, s.width)?,
        architecture: hopper::ARCHITECTURE,
        overlaps: false,
        rejection: None,
    };
    let key = KernelKey::new("attention_prefill", &[inputs.q.dtype, inputs.k.dtype]).with("width", s.width as u32);
    let buffers = inputs.buffers().into_iter().chain([(Parameter::write("y", inputs.q.dtype), Argument::Output(0))]);
    let launch = Launch::on_cuda(key, CudaForm::Source(source), params, buffers);
    let groups = tiles.min(device.compute_units as u32);
    Some(launch.over(Extent::linear(groups), Extent::linear(hopper::THREADS)).with_threadgroup_memory(memory as usize).into())
}
