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

/// The files of all of these kernels.
const COMMON: [MetalFile; 8] = [
    NUMBERS,
    View::METAL,
    MaskView::METAL,
    ScoreParams::METAL,
    Params::METAL,
    SplitParams::METAL,
    SCORING,
    metal_file!("attention/split/launches.cu"),
];

/// The files of kernels that work on parts of the keys, before those of one.
pub(super) const PARTS: [MetalFile; 10] = {
    let [a, b, c, d, e, f, g, h] = COMMON;
    [a, b, c, d, e, f, g, h, metal_file!("attention/split/step.cu"), metal_file!("attention/split/part.cu")]
};
const SPLIT: &[MetalFile] = &{
    let [a, b, c, d, e, f, g, h, i, j] = PARTS;
    [a, b, c, d, e, f, g, h, i, j, AttentionSplitParams::METAL, metal_file!("attention/split/split.cu")]
};
const MERGE: &[MetalFile] = &{
    let [a, b, c, d, e, f, g, h] = COMMON;
    [a, b, c, d, e, f, g, h, AttentionSplitParams::METAL, metal_file!("attention/split/merge.cu")]
};

const ARCHITECTURE: CudaArchitecture = CudaArchitecture::From(80);

params! {
    /// How keys are split.
    pub(crate) struct SplitParams {
        /// Query heads for each key head.
        pub group: u32,
        /// Parts of the keys.
        pub parts: u32,
    }
}

params! {
    /// What the kernels get besides their buffers.
    struct AttentionSplitParams {
        /// Attention.
        pub attention: Params,
        /// Its parts.
        pub split: SplitParams,
    }
}

/// Rows of a tile, warps of a threadgroup, and threadgroups that a multiprocessor has at once: as in part.cu.
const ROWS: u64 = 8;
const WARPS: u64 = 4;
const RESIDENT: u64 = 3;

/// Keys of which each warp has a step.
const LEAST: u64 = WARPS * 16;

/// Attention whose keys are split: into as many parts as the GPU has room for at once.
pub(super) struct Split<'a> {
    params: &'a Params,
    types: Types,
    defines: &'static [(&'static str, &'static str)],
    tiles: u64,
    pub(super) block: SplitParams,
}

impl<'a> Split<'a> {
    /// Where the kernels serve.
    pub(super) fn new(params: &'a Params, types: Types, precision: Precision, device: &DeviceProperties) -> Result<Option<Self>> {
        let s = &params.score;
        let (tiles, heads) = ((s.queries * s.group() as u64).div_ceil(ROWS), s.kv_heads * s.batch);
        let serves = precision == Precision::Fast && ARCHITECTURE.is_of(device) && is_plain(params) && gpu::is_split(params, tiles * heads);
        let Some(defines) = defines(types, s.width).filter(|_| serves && tiles * heads > 0) else { return Ok(None) };
        gpu::check_extents(params, device)?;
        let parts = (RESIDENT * device.compute_units as u64 / (tiles * heads)).clamp(1, s.keys.div_ceil(LEAST));
        Ok(Some(Self { params, types, defines, tiles, block: SplitParams { group: s.group() as u32, parts: parts as u32 } }))
    }

    /// The launch of a kernel for each part, with `memory` bytes beside those of part.cu, and the one that merges what it leaves in its last buffers.
    pub(super) fn plan<P: bytemuck::NoUninit>(
        &self,
        source: CudaSource,
        params: &P,
        buffers: impl IntoIterator<Item = (Parameter, Argument)>,
        memory: usize,
    ) -> Plan {
        let s = &self.params.score;
        let (parts, width, rows) = (u64::from(self.block.parts), s.width, self.params.rows());
        let sums = [("values", 0), ("states", 1)];
        let found = sums.map(|(name, index)| (Parameter::write(name, DType::F32), Argument::Scratch(index)));
        let threads = Extent::linear(32 * WARPS as u32);
        let own = 16 * 32 * (width / 32) + 4 * (WARPS * ROWS * (2 + width + 4) + ROWS + width);
        let split = self.launch(source, params, buffers.into_iter().chain(found)).with_threadgroup_memory(own as usize + memory);
        let split = split.over(Extent([parts as u32, self.tiles as u32, (s.kv_heads * s.batch) as u32]), threads);

        let found = sums.map(|(name, index)| (Parameter::read(name, DType::F32), Argument::Scratch(index)));
        let y = (Parameter::write("y", self.types.q), Argument::Output(0));
        let block = AttentionSplitParams { attention: *self.params, split: self.block };
        let merge = self.launch(self.source(MERGE, "attention_merge_fast"), &block, found.into_iter().chain([y]));
        let merge = merge.over(Extent([(width / 32) as u32, rows as u32, 1]), threads);
        let floats = |n: u64| (4 * rows * parts * n) as usize;
        Plan { launches: vec![split, merge], scratch: vec![floats(width), floats(2)] }
    }

    /// An instance of a kernel that may begin before the launches ahead have ended.
    pub(super) fn source(&self, files: &'static [MetalFile], entry: &'static str) -> CudaSource {
        CudaSource { files, entry, defines: self.defines, architecture: ARCHITECTURE, overlaps: true, refusal: None }
    }

    fn launch<P: bytemuck::NoUninit>(&self, source: CudaSource, params: &P, buffers: impl IntoIterator<Item = (Parameter, Argument)>) -> Launch {
        let key = KernelKey::new(source.entry, &[self.types.q, self.types.kv]).with("width", self.params.score.width as u32);
        Launch::on_cuda(key, CudaForm::Source(source), params, buffers)
    }
}

/// The launches, where the kernels serve.
pub(super) fn plan(params: &Params, types: Types, precision: Precision, device: &DeviceProperties) -> Result<Option<Plan>> {
    let Some(split) = Split::new(params, types, precision, device)? else { return Ok(None) };
    let [q, early @ ..] = types.inputs();
    let early = early.map(|(parameter, argument)| (parameter.early(), argument));
    let block = AttentionSplitParams { attention: *params, split: split.block };
    Ok(Some(split.plan(split.source(SPLIT, "attention_split_fast"), &block, [q].into_iter().chain(early), 0)))
}
