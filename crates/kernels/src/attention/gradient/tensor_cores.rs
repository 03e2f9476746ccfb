//! The gradient on tensor cores: CUDA kernels for compute capability 8.0 and later, of fast precision.

use elinvar_core::{DType, DeviceProperties, Extent, KernelKey, MetalFile, Parameter};

use super::operands::{AT, Inputs};
use crate::{
    Argument, Launch, Plan,
    attention::{
        Params,
        scoring::{MaskView, ScoreParams, View},
        tensor_cores::{NUMBERS, SCORING, is_plain},
    },
    cuda::{CudaArchitecture, CudaForm, CudaSource},
    metal::metal_file,
};

const FILES: &[MetalFile] = &[
    NUMBERS,
    View::METAL,
    MaskView::METAL,
    ScoreParams::METAL,
    Params::METAL,
    SCORING,
    metal_file!("attention/gradient/products.cu"),
    metal_file!("attention/gradient/tiles.cu"),
    metal_file!("attention/gradient/backward.cu"),
];

const ARCHITECTURE: CudaArchitecture = CudaArchitecture::From(80);

/// Rows of a thread block's own tile, elements of the tiles that it walks over, and threads of a team: as in products.cu.
const ROWS: u64 = 64;
const BLOCK_ELEMENTS: u64 = 4096;
const THREADS: u32 = 128;

/// Teams that share a tile of keys: few thread blocks have one, and the first keys are attended by all queries.
const TEAMS: u64 = 2;

/// The macros of an instance, if there is one.
fn defines(dtype: DType, width: u64) -> Option<&'static [(&'static str, &'static str)]> {
    Some(match (dtype, width) {
        (DType::F16, 64) => &[("E", "f16"), ("WIDTH", "64")],
        (DType::F16, 128) => &[("E", "f16"), ("WIDTH", "128")],
        (DType::BF16, 64) => &[("E", "bf16"), ("WIDTH", "64")],
        (DType::BF16, 128) => &[("E", "bf16"), ("WIDTH", "128")],
        _ => return None,
    })
}

/// The launches, where the kernels serve: for queries, keys and values of one type of 16 bits.
pub(super) fn plan(params: &Params, inputs: Inputs, buffers: [(Parameter, Argument); AT.dv + 1], device: &DeviceProperties) -> Option<Plan> {
    let s = &params.score;
    let block = BLOCK_ELEMENTS / s.width.max(1);
    // Tiles of own rows, a number of each, and a range; of each team tiles of two stages, and four numbers of each query of one.
    let pitch = 2 * s.width + 16;
    let memory = |teams: u64| 2 * ROWS * pitch + 4 * ROWS + 16 + teams * (4 * block * pitch + 2 * 16 * block);
    let is_small = s.queries.max(s.keys) <= 1 << 30;
    let serves = ARCHITECTURE.is_of(device) && is_plain(params) && inputs.q.dtype == inputs.k.dtype && is_small;
    if !serves || s.queries == 0 || s.keys == 0 || memory(TEAMS) > device.threadgroup_memory as u64 {
        return None;
    }
    let defines = defines(inputs.q.dtype, s.width)?;
    let launch = |entry, [rows, heads, teams]: [u64; 3], buffers: Vec<(Parameter, Argument)>| {
        let source = CudaSource { files: FILES, entry, defines, architecture: ARCHITECTURE, overlaps: false, rejection: None };
        let key = KernelKey::new(entry, &[inputs.q.dtype]).with("width", s.width as u32);
        let groups = u32::try_from(rows.div_ceil(ROWS) * heads * s.batch).ok().filter(|&groups| groups <= i32::MAX as u32)?;
        let launch = Launch::on_cuda(key, CudaForm::Source(source), params, buffers);
        Some(launch.over(Extent::linear(groups), Extent::linear(THREADS * teams as u32)).with_threadgroup_memory(memory(teams) as usize))
    };
    let [q, k, v, _, positions, lengths, y, dy, dq, dk, dv] = buffers;
    let statistics = |parameter| (parameter, Argument::Scratch(0));
    let given = [q, k, v, positions, lengths];
    let queries = given.clone().into_iter().chain([y, dy.clone(), dq, statistics(Parameter::write("statistics", DType::F32))]);
    let keys = given.into_iter().chain([dy, statistics(Parameter::read("statistics", DType::F32)), dk, dv]);
    let launches = vec![
        launch("attention_backward_queries", [s.queries, s.heads, 1], queries.collect())?,
        launch("attention_backward_keys", [s.keys, s.kv_heads, TEAMS], keys.collect())?,
    ];
    Some(Plan { launches, scratch: vec![(8 * s.batch * s.heads * s.queries) as usize] })
}
