//! Attention of invariant precision on tensor cores: CUDA kernels for compute capability 9.0, of any number of queries, over keys in one piece or in pages.
//!
//! Keys lie in blocks of 128, from the first one on, whatever is attended of them. Of a block: scores are chains of a tensor core over the elements of a query,
//! rounded to the keys' type, and a key; weights are powers of two relative to the block's greatest score, rounded to the keys' type for the sums of values, which
//! are chains over the block's keys. Blocks are combined in their order, in f32. So an output's bits depend on its query and on the keys alone: neither on other
//! queries nor on how many thread blocks share the keys.

use elinvar_core::{DType, DeviceProperties, Extent, KernelKey, MetalFile, Parameter};

use super::{
    Inputs, Params, hopper,
    paged::{self, PagedParams},
    prefill::{self, BLOCK},
    scoring::{MaskView, ScoreParams, View},
    split::{AttentionSplitParams, SplitParams},
    tensor_cores::{SCORING, defines, is_plain},
};
use crate::{
    Argument, Launch, Plan, Precision,
    cuda::{CudaForm, CudaSource, INSTRUCTIONS, LAUNCHES, NUMBERS},
    metal::{metal_file, params},
};

const STATE: MetalFile = metal_file!("attention/blocks/state.cu");

/// What all have, before and after the parameter block; the extents of tiles come between.
const BEFORE: [MetalFile; 8] = [NUMBERS, INSTRUCTIONS, LAUNCHES, View::METAL, MaskView::METAL, ScoreParams::METAL, Params::METAL, SplitParams::METAL];
const AFTER: [MetalFile; 6] = [SCORING, STATE, hopper::MEMORY, hopper::COPY, hopper::COMPUTE, metal_file!("attention/blocks/rows.cu")];
const BLOCKS: MetalFile = metal_file!("attention/blocks/blocks.cu");

const fn whole(layout: MetalFile) -> [MetalFile; 19] {
    let ([a, b, c, d, e, f, g, h], [i, j, k, l, m, n]) = (BEFORE, AFTER);
    let entry = metal_file!("attention/blocks/whole.cu");
    [a, b, c, d, e, f, g, h, AttentionSplitParams::METAL, layout, i, j, k, l, m, n, hopper::IN_ONE_PIECE, BLOCKS, entry]
}
const fn paged(layout: MetalFile) -> [MetalFile; 20] {
    let ([a, b, c, d, e, f, g, h], [i, j, k, l, m, n]) = (BEFORE, AFTER);
    let entry = metal_file!("attention/blocks/paged.cu");
    [a, b, c, d, e, f, g, h, PagedParams::METAL, PagedSplitParams::METAL, layout, i, j, k, l, m, n, hopper::IN_PAGES, BLOCKS, entry]
}
const FEW: MetalFile = metal_file!("attention/blocks/few.cu");
/// Of few rows and of many.
const WHOLE: [&[MetalFile]; 2] = [&whole(FEW), &whole(prefill::LAYOUT)];
const PAGED: [&[MetalFile]; 2] = [&paged(FEW), &paged(prefill::LAYOUT)];
const COMBINE: &[MetalFile] = &{
    let [a, _, c, d, e, f, g, h] = BEFORE;
    [a, c, d, e, f, g, h, AttentionSplitParams::METAL, FEW, SCORING, STATE, metal_file!("attention/blocks/combine.cu")]
};

/// Rows of a tile, thread blocks of a multiprocessor at most, and items of the ring: as in the layouts of few rows and of many.
const ROWS: [u64; 2] = [64, prefill::ROWS];
const RESIDENT: [usize; 2] = [2, 1];
const STAGES: [u64; 2] = [4, prefill::STAGES];

params! {
    /// What the kernel over pages gets besides its buffers.
    struct PagedSplitParams {
        /// Attention over pages.
        pub paged: PagedParams,
        /// Its parts.
        pub split: SplitParams,
    }
}

/// Bytes of what blocks of keys leave to be combined, at most.
const MOST_LEFT: u64 = 256 << 20;

/// An instance of the kernels, where they serve.
struct Instance {
    params: Params,
    types: [DType; 2],
    defines: &'static [(&'static str, &'static str)],
    /// Whether rows are more than a small tile has.
    many: usize,
    split: SplitParams,
    /// Thread blocks, and bytes of shared memory of one.
    groups: u32,
    memory: usize,
}

impl Instance {
    fn of(params: &Params, types: [DType; 2], precision: Precision, device: &DeviceProperties) -> Option<Self> {
        let s = &params.score;
        let rows = s.queries * s.group() as u64;
        let small = [s.keys, rows].into_iter().all(|extent| extent <= 1 << 30);
        let many = usize::from(rows > ROWS[0]);
        let memory = prefill::memory(ROWS[many], STAGES[many], s.width);
        let has = hopper::ARCHITECTURE.is_of(device) && memory <= device.threadgroup_memory;
        if precision != Precision::Invariant || !has || !is_plain(params) || !small || rows * s.kv_heads * s.batch == 0 {
            return None;
        }
        let defines = defines(types[0], types[1], s.width)?;
        let places = (device.threadgroup_memory / memory).min(RESIDENT[many]) as u64 * device.compute_units.max(1) as u64;
        let (tiles, blocks) = (rows.div_ceil(ROWS[many]) * s.kv_heads * s.batch, s.keys.div_ceil(BLOCK));
        // Blocks are shared out where there are fewer tiles than places for thread blocks.
        let is_split = tiles < places && blocks > 1 && params.rows() * blocks * (s.width + 2) * 4 <= MOST_LEFT;
        let split = SplitParams { group: s.group() as u32, parts: if is_split { blocks as u32 } else { 0 } };
        let items = u32::try_from(if is_split { tiles * blocks } else { tiles }).ok().filter(|&items| items <= i32::MAX as u32 / 2)?;
        Some(Self { params: *params, types, defines, many, split, groups: items.min(places as u32), memory })
    }

    fn launch<P: bytemuck::NoUninit>(
        &self,
        entry: &'static str,
        files: &'static [MetalFile],
        rejection: Option<&'static str>,
        params: &P,
        buffers: impl IntoIterator<Item = (Parameter, Argument)>,
    ) -> Launch {
        let source = CudaSource { files, entry, defines: self.defines, architecture: hopper::ARCHITECTURE, overlaps: true, rejection };
        let key = KernelKey::new(entry, &self.types).with("width", self.params.score.width as u32).with("many", self.many as u32);
        Launch::on_cuda(key, CudaForm::Source(source), params, buffers)
    }

    /// The launch of an entry, and the one that combines what it leaves, if it leaves anything; `places` are the positions and the lengths.
    fn plan<P: bytemuck::NoUninit>(
        &self,
        entry: &'static str,
        files: [&'static [MetalFile]; 2],
        rejection: Option<&'static str>,
        params: &P,
        buffers: impl IntoIterator<Item = (Parameter, Argument)>,
        places: [(Parameter, Argument); 2],
    ) -> Plan {
        let y = (Parameter::write("y", self.types[0]), Argument::Output(0));
        let left = |parameter: Parameter| (parameter.or_absent(), if self.split.parts > 0 { Argument::Scratch(0) } else { Argument::Absent });
        let whole = if self.split.parts > 0 { Argument::Absent } else { y.1 };
        let buffers = buffers.into_iter().chain([(y.0.clone().or_absent(), whole), left(Parameter::write("found", DType::F32))]);
        let launch = self.launch(entry, files[self.many], rejection, params, buffers).with_threadgroup_memory(self.memory);
        let launch = launch.over(Extent::linear(self.groups), Extent::linear(128 + 2 * ROWS[self.many] as u32));
        if self.split.parts == 0 {
            return launch.into();
        }
        let (rows, width) = (self.params.rows(), self.params.score.width);
        let [positions, lengths] = places.map(|(parameter, argument)| (parameter.or_absent(), argument));
        let block = AttentionSplitParams { attention: self.params, split: self.split };
        let combine =
            self.launch("attention_blocks_combine", COMBINE, None, &block, [left(Parameter::read("found", DType::F32)), positions, lengths, y]);
        let combine = combine.over(Extent::linear(rows as u32), Extent::linear(width as u32));
        Plan { launches: vec![launch, combine], scratch: vec![(4 * rows * u64::from(self.split.parts) * (width + 2)) as usize] }
    }
}

/// The plan over keys in one piece, where the kernels serve.
pub(super) fn plan(params: &Params, inputs: Inputs, precision: Precision, device: &DeviceProperties) -> Option<Plan> {
    let instance = Instance::of(params, [inputs.q.dtype, inputs.k.dtype], precision, device)?;
    let (block, [.., positions, lengths]) = (AttentionSplitParams { attention: *params, split: instance.split }, inputs.buffers());
    Some(instance.plan("attention_blocks", WHOLE, None, &block, inputs.buffers(), [positions, lengths]))
}

/// The plan over keys in pages, where the kernels serve; `buffers` are the operator's inputs, `lengths` those of attention.
pub(super) fn plan_paged(
    params: &PagedParams,
    types: [DType; 2],
    buffers: [(Parameter, Argument); 5],
    lengths: (Parameter, Argument),
    precision: Precision,
    device: &DeviceProperties,
) -> Option<Plan> {
    let instance = Instance::of(&params.attention, types, precision, device)?;
    let (block, positions) = (PagedSplitParams { paged: *params, split: instance.split }, buffers[4].clone());
    Some(instance.plan("attention_paged_blocks", PAGED, Some(paged::REJECTION), &block, buffers, [positions, lengths]))
}

/// Whether the kernels serve attention over keys in one piece.
pub(super) fn serves(params: &Params, inputs: Inputs, precision: Precision, device: &DeviceProperties) -> bool {
    Instance::of(params, [inputs.q.dtype, inputs.k.dtype], precision, device).is_some()
}
