//! The kernels for compute capability 8.0 and later, by products of warps.

use elinvar_core::{DType, DeviceProperties, MetalFile, Parameter};

use super::tensor_cores::{Buffers, Kernel, Kernels, OUTPUTS};
use crate::{
    Argument,
    attention::{
        Params,
        scoring::{MaskView, ScoreParams, View},
        tensor_cores::SCORING,
    },
    cuda::{CudaArchitecture, NUMBERS, WARPS},
    metal::metal_file,
};

const FILES: &[MetalFile] = &[
    NUMBERS,
    View::METAL,
    MaskView::METAL,
    ScoreParams::METAL,
    Params::METAL,
    SCORING,
    WARPS,
    metal_file!("attention/gradient/ampere/products.cu"),
    OUTPUTS,
    metal_file!("attention/gradient/ampere/tiles.cu"),
    metal_file!("attention/gradient/ampere/backward.cu"),
];

const ARCHITECTURE: CudaArchitecture = CudaArchitecture::From(80);

/// Rows of a thread block's own tile, elements of the tiles that it walks over, and threads of a team: as in products.cu.
const ROWS: u64 = 64;
const BLOCK_ELEMENTS: u64 = 4096;
const THREADS: u32 = 128;

/// Teams that share a tile of keys: few thread blocks have one, and the first keys are attended by all queries.
const TEAMS: u64 = 2;

/// The kernels, if the device has the instructions.
pub(super) fn kernels(s: &ScoreParams, buffers: &Buffers, device: &DeviceProperties) -> Option<Kernels> {
    if !ARCHITECTURE.is_of(device) {
        return None;
    }
    let block = BLOCK_ELEMENTS / s.width;
    // Tiles of own rows, a number of each, and a range; of each team tiles of two stages, and four numbers of each query of one.
    let pitch = 2 * s.width + 16;
    let memory = |teams: u64| 2 * ROWS * pitch + 4 * ROWS + 16 + teams * (4 * block * pitch + 2 * 16 * block);
    let kernel = |entry, [rows, heads, teams]: [u64; 3], buffers| Kernel {
        entry,
        files: FILES,
        architecture: ARCHITECTURE,
        groups: rows.div_ceil(ROWS) * heads * s.batch,
        threads: THREADS * teams as u32,
        memory: memory(teams),
        buffers,
    };
    let [q, k, v, _, positions, lengths, y, dy, dq, dk, dv] = buffers.clone();
    let statistics = |parameter| (parameter, Argument::Scratch(0));
    let given = [q, k, v, positions, lengths];
    let of_queries = given.clone().into_iter().chain([y, dy.clone(), dq, statistics(Parameter::write("statistics", DType::F32))]);
    let of_keys = given.into_iter().chain([dy, statistics(Parameter::read("statistics", DType::F32)), dk, dv]);
    let kernels = vec![
        kernel("attention_backward_queries", [s.queries, s.heads, 1], of_queries.collect()),
        kernel("attention_backward_keys", [s.keys, s.kv_heads, TEAMS], of_keys.collect()),
    ];
    Some(Kernels { kernels, scratch: vec![(8 * s.batch * s.heads * s.queries) as usize] })
}
