//! Attention of many queries on tensor cores: CUDA kernels for compute capability 9.0, of fast precision, over keys in one piece or in pages.

use elinvar_core::{DType, DeviceProperties, Extent, KernelKey, MetalFile, Parameter};

use super::{
    Inputs, Params, hopper,
    paged::{self, PagedParams},
    scoring::{MaskView, ScoreParams, View},
    tensor_cores::{SCORING, defines, is_plain},
};
use crate::{
    Argument, Launch, Plan, Precision,
    collective::{self, Push},
    cuda::{COPIES, CudaForm, CudaSource, INSTRUCTIONS, NUMBERS, TENSOR_MAPS},
    metal::{self, metal_file, params},
};

/// Extents of tiles and of the ring.
pub(super) const LAYOUT: MetalFile = metal_file!("attention/prefill/layout.cu");

params! {
    /// Over keys in one piece.
    struct PrefillParams {
        pub attention: Params,
        /// What is pushed to the ranks of a group.
        pub push: Push,
    }
}

/// What both have, before and after the parameter block.
const BEFORE: [MetalFile; 6] = [NUMBERS, INSTRUCTIONS, View::METAL, MaskView::METAL, ScoreParams::METAL, Params::METAL];
const AFTER: [MetalFile; 8] =
    [SCORING, LAYOUT, hopper::MEMORY, hopper::COPY, hopper::RING, hopper::COMPUTE, hopper::QUERIES, metal_file!("attention/prefill/prefill.cu")];

const fn whole(pushes: usize) -> [MetalFile; 25] {
    let last = [COPIES, TENSOR_MAPS, hopper::ROWS, hopper::BOXES, metal_file!("attention/prefill/whole.cu")];
    metal::joined(&[&BEFORE, &collective::PEERS[pushes], &[PrefillParams::METAL], &AFTER, &last])
}
const WHOLE: CudaSource = CudaSource { pushing: Some(&whole(1)), ..CudaSource::new(&whole(0), "attention_prefill", &[], hopper::ARCHITECTURE) };

const fn paged() -> [MetalFile; 22] {
    let last = [hopper::IN_PAGES, metal_file!("attention/prefill/paged.cu")];
    metal::joined(&[&BEFORE, &collective::PEERS[0], &[PagedParams::METAL], &AFTER, &last])
}
// It cannot push: its error flag reports pages.
const PAGED: CudaSource =
    CudaSource { rejection: Some(paged::REJECTION), ..CudaSource::new(&paged(), "attention_paged_prefill", &[], hopper::ARCHITECTURE) };

/// Queries below which half of a tile would be idle.
const LEAST: u64 = 64;

/// Queries of a tile, keys that are copied at once, and items of the ring: as in layout.cu.
pub(super) const ROWS: u64 = 128;
pub(super) const BLOCK: u64 = 128;
pub(super) const STAGES: u64 = 6;

/// Bytes of shared memory for the rows of a tile, and items of the ring, of a width.
pub(super) const fn memory(rows: u64, stages: u64, width: u64) -> usize {
    1024 + 2 * ((rows + stages * BLOCK) * width) as usize
}

/// An instance of the kernels, where they serve.
struct Instance {
    types: [DType; 3],
    width: u64,
    defines: &'static [(&'static str, &'static str)],
    /// Thread blocks.
    groups: u32,
    /// Bytes of shared memory.
    memory: usize,
}

impl Instance {
    fn of(params: &Params, types: [DType; 3], precision: Precision, device: &DeviceProperties) -> Option<Self> {
        let s = &params.score;
        let small = s.keys <= 1 << 30 && s.queries <= 1 << 30;
        let memory = memory(ROWS, STAGES, s.width);
        if !precision.is_fast()
            || !hopper::ARCHITECTURE.is_of(device)
            || !is_plain(params)
            || !small
            || s.queries < LEAST
            || memory > device.threadgroup_memory
            || hopper::THREADS as usize > device.max_threads_per_threadgroup
        {
            return None;
        }
        let tiles = u32::try_from(s.queries.div_ceil(ROWS) * s.heads * s.batch).ok().filter(|&tiles| tiles <= i32::MAX as u32 / 2)?;
        let (defines, groups) = (defines(types, s.width)?, tiles.min(device.compute_units as u32));
        Some(Self { types, width: s.width, defines, groups, memory })
    }

    fn output(&self) -> (Parameter, Argument) {
        (Parameter::write("y", self.types[2]), Argument::Output(0))
    }

    fn launch<P: bytemuck::NoUninit>(&self, source: CudaSource, params: &P, buffers: impl IntoIterator<Item = (Parameter, Argument)>) -> Launch {
        let source = CudaSource { defines: self.defines, ..source };
        let key = KernelKey::new(source.entry, &self.types).with("width", self.width as u32);
        let launch = Launch::on_cuda(key, CudaForm::Source(source), params, buffers);
        launch.over(Extent::linear(self.groups), Extent::linear(hopper::THREADS)).with_threadgroup_memory(self.memory)
    }
}

/// The launch over keys in one piece, where the kernel serves; `y` is the type of the output.
pub(super) fn plan(params: &Params, inputs: Inputs, y: DType, precision: Precision, device: &DeviceProperties) -> Option<Plan> {
    let instance = Instance::of(params, [inputs.q.dtype, inputs.k.dtype, y], precision, device)?;
    let maps = (Parameter::write("maps", DType::U8), Argument::Scratch(0));
    let buffers = inputs.buffers().into_iter().chain([instance.output(), maps]);
    // Of a token all heads, which a group gathers side by side.
    let push = Push::of_rows(params.score.heads * params.value_width);
    Some(Plan {
        launches: vec![instance.launch(WHOLE, &PrefillParams { attention: *params, push }, buffers)],
        scratch: vec![instance.groups as usize * hopper::MAPS],
    })
}

/// The launch over keys in pages, where the kernel serves; `buffers` are the operator's inputs.
pub(super) fn plan_paged(
    params: &PagedParams,
    types: [DType; 3],
    buffers: [(Parameter, Argument); 5],
    precision: Precision,
    device: &DeviceProperties,
) -> Option<Plan> {
    let instance = Instance::of(&params.attention, types, precision, device)?;
    let buffers = buffers.into_iter().chain([instance.output()]);
    Some(instance.launch(PAGED, params, buffers).into())
}
