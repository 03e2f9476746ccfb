//! Attention of many queries on tensor cores: a CUDA kernel for compute capability 9.0, of fast precision.

use elinvar_core::{DeviceProperties, Extent, KernelKey, MetalFile, Parameter};

use super::{
    Inputs, Params,
    scoring::{MaskView, ScoreParams, View},
    tensor_cores::{NUMBERS, SCORING, defines, is_plain},
};
use crate::{
    Argument, Launch, Plan, Precision,
    cuda::{CudaArchitecture, CudaForm, CudaSource},
    metal::metal_file,
};

const FILES: &[MetalFile] = &[
    NUMBERS,
    metal_file!("attention/prefill/hopper.cu"),
    View::METAL,
    MaskView::METAL,
    ScoreParams::METAL,
    Params::METAL,
    SCORING,
    metal_file!("attention/prefill/schedule.cu"),
    metal_file!("attention/prefill/copy.cu"),
    metal_file!("attention/prefill/compute.cu"),
    metal_file!("attention/prefill/prefill.cu"),
];

const ARCHITECTURE: CudaArchitecture = CudaArchitecture::Only(90);

/// Queries below which half of a tile would be idle.
const LEAST: u64 = 64;

/// Queries of a tile, keys that are copied at once, and buffers for them: as in schedule.cu.
const ROWS: u64 = 128;
const KEYS: u64 = 128;
const STAGES: u64 = 6;

/// Threads: a warpgroup that copies and two that compute.
const THREADS: u32 = 3 * 128;

/// The launch, where the kernel serves.
pub(super) fn plan(params: &Params, inputs: Inputs, precision: Precision, device: &DeviceProperties) -> Option<Plan> {
    let s = &params.score;
    let small = s.keys <= 1 << 30 && s.queries <= 1 << 30;
    let memory = 1024 + 2 * (ROWS + STAGES * KEYS) * s.width;
    if precision == Precision::Strict
        || !ARCHITECTURE.is_of(device)
        || !is_plain(params)
        || !small
        || s.queries < LEAST
        || memory > device.threadgroup_memory as u64
        || THREADS as usize > device.max_threads_per_threadgroup
    {
        return None;
    }
    let tiles = u32::try_from(s.queries.div_ceil(ROWS) * s.heads * s.batch).ok().filter(|&tiles| tiles <= i32::MAX as u32 / 2)?;
    let source = CudaSource {
        files: FILES,
        entry: "attention_prefill",
        defines: defines(inputs, s.width)?,
        architecture: ARCHITECTURE,
        overlaps: false,
        rejection: None,
    };
    let key = KernelKey::new("attention_prefill", &[inputs.q.dtype, inputs.k.dtype]).with("width", s.width as u32);
    let buffers = inputs.buffers().into_iter().chain([(Parameter::write("y", inputs.q.dtype), Argument::Output(0))]);
    let launch = Launch::on_cuda(key, CudaForm::Source(source), params, buffers);
    let groups = tiles.min(device.compute_units as u32);
    Some(launch.over(Extent::linear(groups), Extent::linear(THREADS)).with_threadgroup_memory(memory as usize).into())
}
