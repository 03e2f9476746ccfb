//! The kernels for compute capability 9.0, by products of warpgroups.

use elinvar_core::{DeviceProperties, MetalFile};

use super::tensor_cores::{Kernel, OUTPUTS};
use crate::{
    attention::{
        Params, hopper,
        scoring::{MaskView, ScoreParams, View},
        tensor_cores::SCORING,
    },
    cuda::{INSTRUCTIONS, NUMBERS},
    metal::metal_file,
};

const QUERIES: &[MetalFile] = &[
    NUMBERS,
    INSTRUCTIONS,
    View::METAL,
    MaskView::METAL,
    ScoreParams::METAL,
    Params::METAL,
    SCORING,
    metal_file!("attention/gradient/hopper/queries_layout.cu"),
    hopper::MEMORY,
    hopper::COPY,
    hopper::RING,
    hopper::COMPUTE,
    hopper::QUERIES,
    OUTPUTS,
    metal_file!("attention/gradient/hopper/queries.cu"),
];

const KEYS: &[MetalFile] = &[
    NUMBERS,
    INSTRUCTIONS,
    View::METAL,
    MaskView::METAL,
    ScoreParams::METAL,
    Params::METAL,
    SCORING,
    metal_file!("attention/gradient/hopper/keys_layout.cu"),
    hopper::MEMORY,
    hopper::COPY,
    hopper::RING,
    hopper::COMPUTE,
    metal_file!("attention/gradient/hopper/keys.cu"),
];

/// Queries or keys of a tile; as in the layouts.
const ROWS: u64 = 128;

/// Queries below which half of a tile would be idle.
const LEAST: u64 = 64;

/// The kernels, where they serve.
pub(super) fn kernels(s: &ScoreParams, device: &DeviceProperties) -> Option<[Kernel; 2]> {
    let kernel = |entry, files, groups, memory| Kernel { entry, files, architecture: hopper::ARCHITECTURE, groups, threads: hopper::THREADS, memory };
    let tiles = |rows: u64, heads: u64| rows.div_ceil(ROWS) * heads * s.batch;
    // A header, two own tiles and a ring: five items of 128 rows, or eight of 64.
    let queries = tiles(s.queries, s.heads).min(device.compute_units as u64);
    let kernels = [
        kernel("attention_gradient_queries", QUERIES, queries, 1024 + 2 * s.width * (2 * ROWS + 5 * 128)),
        kernel("attention_gradient_keys", KEYS, tiles(s.keys, s.kv_heads), 6 * 1024 + 2 * s.width * (2 * ROWS + 8 * 64)),
    ];
    (hopper::ARCHITECTURE.is_of(device) && s.queries >= LEAST).then_some(kernels)
}
