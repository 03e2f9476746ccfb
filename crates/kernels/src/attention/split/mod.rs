//! Attention of few queries on tensor cores: CUDA kernels for compute capability 8.0 and later, of fast precision.

use elinvar_core::{CudaArchitecture, CudaForm, CudaSource, DType, DeviceProperties, Extent, KernelKey, MetalFile, Parameter, Result};

use super::{
    Params, Types, gpu,
    scoring::{MaskView, ScoreParams, View},
    tensor_cores::{NUMBERS, SCORING, defines, is_plain},
};
use crate::{
    Argument, Launch, Plan, Precision,
    metal::{metal_file, params},
};

const fn files(kernel: MetalFile) -> [MetalFile; 9] {
    let launches = metal_file!("attention/split/launches.cu");
    [NUMBERS, View::METAL, MaskView::METAL, ScoreParams::METAL, Params::METAL, SplitParams::METAL, SCORING, launches, kernel]
}

const SPLIT: &[MetalFile] = &files(metal_file!("attention/split/split.cu"));
const MERGE: &[MetalFile] = &files(metal_file!("attention/split/merge.cu"));

const ARCHITECTURE: CudaArchitecture = CudaArchitecture::From(80);

params! {
    /// What the kernels get besides their buffers.
    struct SplitParams {
        /// Attention.
        pub attention: Params,
        /// Query heads for each key head.
        pub group: u32,
        /// Parts of the keys.
        pub parts: u32,
    }
}

/// Rows of a tile, warps of a threadgroup, and threadgroups that a multiprocessor has at once: as in split.cu.
const ROWS: u64 = 8;
const WARPS: u64 = 4;
const RESIDENT: u64 = 3;

/// Keys of which each warp has a step.
const LEAST: u64 = WARPS * 16;

/// The launches, where the kernels serve: as many parts of the keys as the GPU has room for at once.
pub(super) fn plan(params: &Params, types: Types, precision: Precision, device: &DeviceProperties) -> Result<Option<Plan>> {
    let s = &params.score;
    let [tiles, heads] = [(s.queries * s.group() as u64).div_ceil(ROWS), s.kv_heads * s.batch];
    let serves = precision == Precision::Fast && ARCHITECTURE.is_of(device) && is_plain(params) && gpu::is_split(params, tiles * heads);
    let Some(defines) = defines(types, s.width).filter(|_| serves && tiles * heads > 0) else { return Ok(None) };
    gpu::check_extents(params, device)?;
    let parts = (RESIDENT * device.compute_units as u64 / (tiles * heads)).clamp(1, s.keys.div_ceil(LEAST));
    let block = SplitParams { attention: *params, group: s.group() as u32, parts: parts as u32 };
    let [q, early @ ..] = types.inputs();
    let early = early.map(|(parameter, argument)| (parameter.early(), argument));
    let sums = [("values", 0), ("states", 1)];
    let found = sums.map(|(name, index)| (Parameter::write(name, DType::F32), Argument::Scratch(index)));
    let launch = launch(SPLIT, "attention_split_fast", types, defines, &block, [q].into_iter().chain(early).chain(found));
    let grid = Extent([parts as u32, tiles as u32, heads as u32]);
    let memory = 16 * 32 * (s.width / 32) + 4 * WARPS * ROWS * (2 + s.width + 4);
    let split = launch.over(grid, Extent::linear(32 * WARPS as u32)).with_threadgroup_memory(memory as usize);

    let found = sums.map(|(name, index)| (Parameter::read(name, DType::F32), Argument::Scratch(index)));
    let y = (Parameter::write("y", types.q), Argument::Output(0));
    let launch = self::launch(MERGE, "attention_merge_fast", types, defines, &block, found.into_iter().chain([y]));
    let grid = Extent([(s.width / 32) as u32, params.rows() as u32, 1]);
    let merge = launch.over(grid, Extent::linear(32 * WARPS as u32));
    let floats = |n: u64| (4 * params.rows() * parts * n) as usize;
    Ok(Some(Plan { launches: vec![split, merge], scratch: vec![floats(s.width), floats(2)] }))
}

fn launch(
    files: &'static [MetalFile],
    entry: &'static str,
    types: Types,
    defines: &'static [(&'static str, &'static str)],
    block: &SplitParams,
    buffers: impl IntoIterator<Item = (Parameter, Argument)>,
) -> Launch {
    let source = CudaSource { files, entry, defines, architecture: ARCHITECTURE, overlaps: true };
    let key = KernelKey::new(entry, &[types.q, types.kv]).with("width", block.attention.score.width as u32);
    Launch::on_cuda(key, CudaForm::Source(source), block, buffers)
}
