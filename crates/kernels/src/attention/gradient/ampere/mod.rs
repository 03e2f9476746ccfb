//! The kernels for compute capability 8.0 and later, by products of warps.

use elinvar_core::{DeviceProperties, MetalFile};

use super::tensor_cores::{Kernel, OUTPUTS};
use crate::{
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
pub(super) fn kernels(s: &ScoreParams, device: &DeviceProperties) -> Option<[Kernel; 2]> {
    let block = BLOCK_ELEMENTS / s.width;
    // Tiles of own rows, a number of each, and a range; of each team tiles of two stages, and four numbers of each query of one.
    let pitch = 2 * s.width + 16;
    let memory = |teams: u64| 2 * ROWS * pitch + 4 * ROWS + 16 + teams * (4 * block * pitch + 2 * 16 * block);
    let kernel = |entry, [rows, heads, teams]: [u64; 3]| Kernel {
        entry,
        files: FILES,
        architecture: ARCHITECTURE,
        groups: rows.div_ceil(ROWS) * heads * s.batch,
        threads: THREADS * teams as u32,
        memory: memory(teams),
    };
    let kernels = [kernel("attention_backward_queries", [s.queries, s.heads, 1]), kernel("attention_backward_keys", [s.keys, s.kv_heads, TEAMS])];
    ARCHITECTURE.is_of(device).then_some(kernels)
}
