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
    prefill::{BLOCK, LAYOUT, ROWS, memory},
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

/// What all have, before and after the parameter block.
const BEFORE: [MetalFile; 8] = [NUMBERS, INSTRUCTIONS, LAUNCHES, View::METAL, MaskView::METAL, ScoreParams::METAL, Params::METAL, SplitParams::METAL];
const AFTER: [MetalFile; 8] = [
    SCORING,
    LAYOUT,
    STATE,
    hopper::MEMORY,
    hopper::COPY,
    hopper::COMPUTE,
    metal_file!("attention/blocks/rows.cu"),
    metal_file!("attention/blocks/blocks.cu"),
];

const WHOLE: &[MetalFile] = &{
    let ([a, b, c, d, e, f, g, h], [i, j, k, l, m, n, o, p]) = (BEFORE, AFTER);
    [a, b, c, d, e, f, g, h, AttentionSplitParams::METAL, i, j, k, l, m, n, o, hopper::IN_ONE_PIECE, p, metal_file!("attention/blocks/whole.cu")]
};
const PAGED: &[MetalFile] = &{
    let ([a, b, c, d, e, f, g, h], [i, j, k, l, m, n, o, p]) = (BEFORE, AFTER);
    [
        a,
        b,
        c,
        d,
        e,
        f,
        g,
        h,
        PagedParams::METAL,
        PagedSplitParams::METAL,
        i,
        j,
        k,
        l,
        m,
        n,
        o,
        hopper::IN_PAGES,
        p,
        metal_file!("attention/blocks/paged.cu"),
    ]
};
const COMBINE: &[MetalFile] = &{
    let [a, _, c, d, e, f, g, h] = BEFORE;
    [a, c, d, e, f, g, h, AttentionSplitParams::METAL, SCORING, LAYOUT, STATE, metal_file!("attention/blocks/combine.cu")]
};

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
    split: SplitParams,
    /// Thread blocks.
    groups: u32,
}

impl Instance {
    fn of(params: &Params, types: [DType; 2], precision: Precision, device: &DeviceProperties) -> Option<Self> {
        let s = &params.score;
        let small = [s.keys, s.queries * s.group() as u64].into_iter().all(|extent| extent <= 1 << 30);
        let has = hopper::ARCHITECTURE.is_of(device) && memory(s.width) <= device.threadgroup_memory;
        if precision != Precision::Invariant || !has || !is_plain(params) || !small || s.queries * s.heads * s.batch == 0 {
            return None;
        }
        let defines = defines(types[0], types[1], s.width)?;
        let units = device.compute_units.max(1) as u64;
        let tiles = (s.queries * s.group() as u64).div_ceil(ROWS) * s.kv_heads * s.batch;
        let blocks = s.keys.div_ceil(BLOCK);
        // Blocks are shared out where there are fewer tiles than multiprocessors.
        let is_split = tiles < units && blocks > 1 && params.rows() * blocks * (s.width + 2) * 4 <= MOST_LEFT;
        let split = SplitParams { group: s.group() as u32, parts: if is_split { blocks as u32 } else { 0 } };
        let items = u32::try_from(if is_split { tiles * blocks } else { tiles }).ok().filter(|&items| items <= i32::MAX as u32 / 2)?;
        Some(Self { params: *params, types, defines, split, groups: items.min(units as u32) })
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
        let key = KernelKey::new(entry, &self.types).with("width", self.params.score.width as u32);
        Launch::on_cuda(key, CudaForm::Source(source), params, buffers)
    }

    /// The launch of an entry, and the one that combines what it leaves, if it leaves anything; `places` are the positions and the lengths.
    fn plan<P: bytemuck::NoUninit>(
        &self,
        entry: &'static str,
        files: &'static [MetalFile],
        rejection: Option<&'static str>,
        params: &P,
        buffers: impl IntoIterator<Item = (Parameter, Argument)>,
        places: [(Parameter, Argument); 2],
    ) -> Plan {
        let y = (Parameter::write("y", self.types[0]), Argument::Output(0));
        let left = |parameter: Parameter| (parameter.or_absent(), if self.split.parts > 0 { Argument::Scratch(0) } else { Argument::Absent });
        let whole = if self.split.parts > 0 { Argument::Absent } else { y.1 };
        let buffers = buffers.into_iter().chain([(y.0.clone().or_absent(), whole), left(Parameter::write("found", DType::F32))]);
        let launch = self.launch(entry, files, rejection, params, buffers).with_threadgroup_memory(memory(self.params.score.width));
        let launch = launch.over(Extent::linear(self.groups), Extent::linear(hopper::THREADS));
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
