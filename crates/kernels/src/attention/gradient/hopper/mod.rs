//! The kernels for compute capability 9.0, by products of warpgroups.

use elinvar_core::{DType, DeviceProperties, MetalFile, Parameter};

use super::tensor_cores::{Buffers, Kernel, Kernels, OUTPUTS};
use crate::{
    Argument,
    attention::{
        Params, hopper,
        scoring::{MaskView, ScoreParams, View},
        tensor_cores::SCORING,
    },
    cuda::{COPIES, INSTRUCTIONS, NUMBERS, TENSOR_MAPS},
    metal::metal_file,
};

/// What one kernel finds for the other.
const TILES: MetalFile = metal_file!("attention/gradient/hopper/tiles.cu");

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
    COPIES,
    hopper::RING,
    hopper::COMPUTE,
    hopper::QUERIES,
    OUTPUTS,
    TENSOR_MAPS,
    hopper::ROWS,
    hopper::BOXES,
    TILES,
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
    COPIES,
    hopper::RING,
    hopper::COMPUTE,
    OUTPUTS,
    TENSOR_MAPS,
    hopper::ROWS,
    TILES,
    metal_file!("attention/gradient/hopper/keys.cu"),
];

/// Queries or keys of a tile, and the bytes of what is known of 64 queries: as in the layouts and in tiles.cu.
const ROWS: u64 = 128;
const TILE: u64 = 64;
const OF_A_TILE: u64 = 16 * TILE + 16;

/// Queries below which half of a tile would be idle.
const LEAST: u64 = 64;

/// The kernels, where they serve.
pub(super) fn kernels(s: &ScoreParams, buffers: &Buffers, device: &DeviceProperties) -> Option<Kernels> {
    if !hopper::ARCHITECTURE.is_of(device) || s.queries < LEAST {
        return None;
    }
    let kernel = |entry, files, groups, memory, buffers| Kernel {
        entry,
        files,
        architecture: hopper::ARCHITECTURE,
        groups,
        threads: hopper::THREADS,
        memory,
        buffers,
    };
    let tiles = |rows: u64, heads: u64| rows.div_ceil(ROWS) * heads * s.batch;
    let [q, k, v, _, positions, lengths, y, dy, dq, dk, dv] = buffers.clone();
    let made = [Parameter::write("tiles", DType::F32), Parameter::write("maps", DType::U8)];
    let given = [Parameter::read("tiles", DType::F32), Parameter::read("maps", DType::U8)];
    let scratch = |parameters: [Parameter; 2]| parameters.into_iter().zip([Argument::Scratch(0), Argument::Scratch(1)]);
    let inputs = [q, k, v, positions, lengths];
    let of_queries = inputs.clone().into_iter().chain([y, dy.clone(), dq]).chain(scratch(made));
    let of_keys = inputs.into_iter().chain([dy]).chain(scratch(given)).chain([dk, dv]);
    // A header, two own tiles and a ring: five items of 128 rows, or eight of 64.
    let queries = tiles(s.queries, s.heads).min(device.compute_units as u64);
    let kernels = vec![
        kernel("attention_gradient_queries", QUERIES, queries, 1024 + 2 * s.width * (2 * ROWS + 5 * 128), of_queries.collect()),
        kernel("attention_gradient_keys", KEYS, tiles(s.keys, s.kv_heads), 6 * 1024 + 2 * s.width * (2 * ROWS + 8 * 64), of_keys.collect()),
    ];
    let scratch = [OF_A_TILE * s.queries.div_ceil(TILE) * s.heads * s.batch, hopper::MAPS as u64 * (1 + queries)];
    Some(Kernels { kernels, scratch: scratch.map(|bytes| bytes as usize).to_vec() })
}
