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
    cuda::{COPIES, CudaForm, CudaSource, INSTRUCTIONS, NUMBERS, TENSOR_MAPS},
    metal::metal_file,
};

/// Extents of tiles and of the ring.
pub(super) const LAYOUT: MetalFile = metal_file!("attention/prefill/layout.cu");

/// What both have, before and after the parameter block of pages.
const BEFORE: [MetalFile; 6] = [NUMBERS, INSTRUCTIONS, View::METAL, MaskView::METAL, ScoreParams::METAL, Params::METAL];
const AFTER: [MetalFile; 8] =
    [SCORING, LAYOUT, hopper::MEMORY, hopper::COPY, hopper::RING, hopper::COMPUTE, hopper::QUERIES, metal_file!("attention/prefill/prefill.cu")];

const WHOLE: &[MetalFile] = &{
    let ([a, b, c, d, e, f], [g, h, i, j, k, l, m, n]) = (BEFORE, AFTER);
    [a, b, c, d, e, f, g, h, i, j, k, l, m, n, COPIES, TENSOR_MAPS, hopper::ROWS, hopper::BOXES, metal_file!("attention/prefill/whole.cu")]
};
const PAGED: &[MetalFile] = &{
    let ([a, b, c, d, e, f], [g, h, i, j, k, l, m, n]) = (BEFORE, AFTER);
    [a, b, c, d, e, f, PagedParams::METAL, g, h, i, j, k, l, m, n, hopper::IN_PAGES, metal_file!("attention/prefill/paged.cu")]
};

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

    /// The launch of an entry.
    fn launch<P: bytemuck::NoUninit>(
        &self,
        entry: &'static str,
        files: &'static [MetalFile],
        rejection: Option<&'static str>,
        params: &P,
        buffers: impl IntoIterator<Item = (Parameter, Argument)>,
    ) -> Launch {
        let source = CudaSource { rejection, ..CudaSource::new(files, entry, self.defines, hopper::ARCHITECTURE) };
        let key = KernelKey::new(entry, &self.types).with("width", self.width as u32);
        let launch = Launch::on_cuda(key, CudaForm::Source(source), params, buffers);
        launch.over(Extent::linear(self.groups), Extent::linear(hopper::THREADS)).with_threadgroup_memory(self.memory)
    }
}

/// The launch over keys in one piece, where the kernel serves; `y` is the type of the output.
pub(super) fn plan(params: &Params, inputs: Inputs, y: DType, precision: Precision, device: &DeviceProperties) -> Option<Plan> {
    let instance = Instance::of(params, [inputs.q.dtype, inputs.k.dtype, y], precision, device)?;
    let maps = (Parameter::write("maps", DType::U8), Argument::Scratch(0));
    let buffers = inputs.buffers().into_iter().chain([instance.output(), maps]);
    Some(Plan {
        launches: vec![instance.launch("attention_prefill", WHOLE, None, params, buffers)],
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
    Some(instance.launch("attention_paged_prefill", PAGED, Some(paged::REJECTION), params, buffers).into())
}
