//! Attention of invariant precision on tensor cores: CUDA kernels for compute capability 9.0, of any number of queries, over keys in one piece or in pages; in pages
//! fast precision has them, too, for few queries.
//!
//! Keys lie in blocks of 128, from the first one on, whatever is attended of them. Of a block: scores are chains of a tensor core over the elements of a query,
//! rounded to the keys' type, and a key; weights are powers of two relative to the block's greatest score, rounded to the keys' type for the sums of values, which
//! are chains over the block's keys. Blocks are combined in their order, in f32. So an output's bits depend on its query and on the keys alone: neither on other
//! queries nor on how many thread blocks share the keys.

use std::ops::RangeInclusive;

use elinvar_core::{DType, DeviceProperties, Extent, KernelKey, MetalFile, Parameter};

use super::{
    Inputs, Params, decode,
    decode::{DecodeParams, DecodeSplitParams},
    hopper,
    paged::{
        self, PagedParams,
        decode::{PagedDecodeParams, PagedDecodeSplitParams},
    },
    prefill::{self, BLOCK},
    scoring::{MaskView, ScoreParams, View},
    split::{AttentionSplitParams, SplitParams},
    tensor_cores::{SCORING, defines, function_of_defines, is_plain},
};
use crate::{
    Argument, Launch, Plan, Precision,
    collective::{self, Push},
    cuda::{CLUSTERS, CudaForm, CudaSource, EIGHTS, INSTRUCTIONS, LAUNCHES, NUMBERS},
    kv_append,
    metal::{self, metal_file, params},
};

/// What all have first.
#[rustfmt::skip]
const COMMON: [MetalFile; 13] = [
    NUMBERS, INSTRUCTIONS, LAUNCHES, View::METAL, MaskView::METAL, ScoreParams::METAL, Params::METAL, SplitParams::METAL, AttentionSplitParams::METAL,
    PagedParams::METAL, PagedSplitParams::METAL, SCORING, metal_file!("attention/blocks/state.cu"),
];
const FEW_LAYOUT: MetalFile = metal_file!("attention/blocks/few_layout.cu");
const COMBINED: MetalFile = metal_file!("attention/blocks/combined.cu");

/// Of few rows: a block.
const fn block() -> [MetalFile; 17] {
    let ([a, b, c, d, e, f, g, h, i, j, k, l, m], kernel) = (COMMON, metal_file!("attention/blocks/few.cu"));
    [a, b, c, d, e, f, g, h, i, j, k, l, m, EIGHTS, FEW_LAYOUT, hopper::COPY, kernel]
}
const fn few(places: MetalFile, entry: MetalFile) -> [MetalFile; 20] {
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q] = block();
    [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, places, metal_file!("attention/blocks/all.cu"), entry]
}
/// Of new tokens: a cluster of so many thread blocks for each text and key head.
macro_rules! parts {
    ($count:literal) => {
        MetalFile { name: "attention/decode/parts", text: concat!("constexpr int PARTS = ", $count, ";\n") }
    };
}
const fn of_tokens([params, of_parts, places, entry]: [MetalFile; 4], parts: MetalFile) -> [MetalFile; 29] {
    let ([a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q], [r, s, t, u]) = (block(), decode::ROTATED);
    let kernel = metal_file!("attention/decode/blocks.cu");
    [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, params, of_parts, CLUSTERS, COMBINED, parts, places, kernel, entry]
}
const TOKEN_WHOLE: [MetalFile; 4] = [DecodeParams::METAL, DecodeSplitParams::METAL, hopper::IN_ONE_PIECE, metal_file!("attention/decode/whole.cu")];
const TOKENS_PAGED: [MetalFile; 4] =
    [PagedDecodeParams::METAL, PagedDecodeSplitParams::METAL, hopper::IN_PAGES, metal_file!("attention/decode/paged.cu")];
/// By the logarithm of a cluster's thread blocks.
const OF_TOKEN: [&[MetalFile]; 4] =
    [&of_tokens(TOKEN_WHOLE, parts!(1)), &of_tokens(TOKEN_WHOLE, parts!(2)), &of_tokens(TOKEN_WHOLE, parts!(4)), &of_tokens(TOKEN_WHOLE, parts!(8))];
const OF_TOKENS: [&[MetalFile]; 4] = [
    &of_tokens(TOKENS_PAGED, parts!(1)),
    &of_tokens(TOKENS_PAGED, parts!(2)),
    &of_tokens(TOKENS_PAGED, parts!(4)),
    &of_tokens(TOKENS_PAGED, parts!(8)),
];
const fn many(places: MetalFile, entry: MetalFile) -> [MetalFile; 22] {
    let ([a, b, c, d, e, f, g, h, i, j, k, l, m], rows) = (COMMON, metal_file!("attention/blocks/rows.cu"));
    let kernel = metal_file!("attention/blocks/blocks.cu");
    [a, b, c, d, e, f, g, h, i, j, k, l, m, prefill::LAYOUT, hopper::MEMORY, hopper::COPY, hopper::RING, hopper::COMPUTE, rows, places, kernel, entry]
}
const WHOLE: MetalFile = metal_file!("attention/blocks/whole.cu");
const PAGED: MetalFile = metal_file!("attention/blocks/paged.cu");
/// Over keys in one piece and in pages.
const FEW: [&[MetalFile]; 2] = [&few(hopper::IN_ONE_PIECE, WHOLE), &few(hopper::IN_PAGES, PAGED)];
const MANY: [&[MetalFile]; 2] = [&many(hopper::IN_ONE_PIECE, WHOLE), &many(hopper::IN_PAGES, PAGED)];
const fn combine(pushes: usize) -> [MetalFile; 23] {
    let own = [collective::EXCHANGE, CombineParams::METAL, FEW_LAYOUT, COMBINED, metal_file!("attention/blocks/combine.cu")];
    metal::joined(&[&COMMON, &collective::PEERS[pushes], &own])
}
const COMBINE: CudaSource =
    CudaSource { overlaps: true, pushing: Some(&combine(1)), ..CudaSource::new(&combine(0), "attention_blocks_combine", &[], hopper::ARCHITECTURE) };

/// Rows of the tiles of few rows, which all are in one.
const COLUMNS: [u64; 4] = [8, 16, 32, 64];
type Defines = fn([DType; 3], u64) -> Option<&'static [(&'static str, &'static str)]>;
const OF_COLUMNS: [Defines; 4] = {
    function_of_defines!(eight, "EIGHTS" = "1", "COLUMNS" = "8");
    function_of_defines!(sixteen, "EIGHTS" = "2", "COLUMNS" = "16");
    function_of_defines!(thirty_two, "EIGHTS" = "4", "COLUMNS" = "32");
    function_of_defines!(sixty_four, "EIGHTS" = "8", "COLUMNS" = "64");
    [eight, sixteen, thirty_two, sixty_four]
};
/// Thread blocks of a multiprocessor and their threads where rows are few: as in few_layout.cu.
const RESIDENT: usize = 3;
const THREADS: u32 = 128;
/// The most keys that a cluster takes in less time than all thread blocks and two more launches.
const CLUSTERED: u64 = 4096;
/// Thread blocks of a grid's third dimension.
const MOST_TEXTS: u64 = 65_535;
/// Thread blocks of a cluster where there is room for any number: four combine what few blocks of keys left in less time than fewer do.
const LARGE: RangeInclusive<u64> = 4..=8;
/// Blocks of keys that are so few for a thread block that it may as well wait for others to end.
const FEW_BLOCKS: u64 = 2;

/// Bytes of shared memory of few rows: keys, values, rows and weights; what four warps exchange of each row; and where they begin on a multiple of 1024.
const fn few_memory(columns: u64, width: u64) -> usize {
    (1024 + 4 * BLOCK * width + 2 * columns * (width + BLOCK) + columns * (4 * (4 + 4 * 8) + 8)) as usize
}

params! {
    /// What the kernel over pages gets besides its buffers.
    struct PagedSplitParams {
        /// Attention over pages.
        pub paged: PagedParams,
        /// Its parts.
        pub split: SplitParams,
    }
}

params! {
    /// What the kernel that combines gets besides its buffers.
    struct CombineParams {
        /// Attention.
        pub attention: Params,
        /// Its parts.
        pub split: SplitParams,
        /// What is pushed to the ranks of a group.
        pub push: Push,
    }
}

/// Bytes of what blocks of keys leave to be combined, at most.
const MOST_LEFT: u64 = 256 << 20;

/// An instance of the kernels, where they serve.
struct Instance {
    params: Params,
    types: [DType; 3],
    /// Rows of a tile.
    rows: u64,
    /// Of the kernels over keys in one piece and in pages, and of the one that combines.
    files: [&'static [MetalFile]; 2],
    defines: &'static [(&'static str, &'static str)],
    combining: &'static [(&'static str, &'static str)],
    split: SplitParams,
    /// Thread blocks, their threads, and bytes of shared memory of one.
    groups: u32,
    threads: u32,
    memory: usize,
}

impl Instance {
    fn of(params: &Params, types: [DType; 3], places: Places, precision: Precision, device: &DeviceProperties) -> Option<Self> {
        let s = &params.score;
        let rows = s.queries * s.group() as u64;
        let small = [s.keys, rows].into_iter().all(|extent| extent <= 1 << 30);
        let serves = places.serve(precision) && hopper::ARCHITECTURE.is_of(device) && is_plain(params);
        if !serves || !small || rows * s.kv_heads * s.batch == 0 {
            return None;
        }
        let (blocks, combining) = (s.keys.div_ceil(BLOCK), defines(types, s.width)?);
        let can_split = blocks > 0 && params.rows() * blocks * (s.width + 2) * 4 <= MOST_LEFT;
        let few = COLUMNS.iter().position(|&columns| can_split && rows <= columns);
        let (rows_of_tile, files, defines, memory, resident, threads) = match few {
            Some(at) => {
                let defines = OF_COLUMNS[at](types, s.width)?;
                (COLUMNS[at], FEW, defines, few_memory(COLUMNS[at], s.width), RESIDENT, THREADS)
            }
            None => (prefill::ROWS, MANY, combining, prefill::memory(prefill::ROWS, prefill::STAGES, s.width), 1, hopper::THREADS),
        };
        let places = (device.threadgroup_memory / memory).min(resident) as u64 * device.compute_units.max(1) as u64;
        let tiles = rows.div_ceil(rows_of_tile) * s.kv_heads * s.batch;
        // Blocks are shared out where rows are few, or tiles take at most half of the places for thread blocks: what is left to be combined costs as much as a block.
        let is_split = few.is_some() || 2 * tiles <= places && blocks > 1 && can_split;
        let split = SplitParams { group: s.group() as u32, parts: if is_split { blocks as u32 } else { 0 } };
        let items = u32::try_from(if is_split { tiles * blocks } else { tiles }).ok().filter(|&items| items <= i32::MAX as u32 / 2)?;
        let groups = items.min(places as u32);
        (groups > 0).then_some(Self { params: *params, types, rows: rows_of_tile, files, defines, combining, split, groups, threads, memory })
    }

    fn key(&self, entry: &'static str, rows: u64) -> KernelKey {
        KernelKey::new(entry, &self.types).with("width", self.params.score.width as u32).with("rows", rows as u32)
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
        let y = (Parameter::write("y", self.types[2]), Argument::Output(0));
        let left = |parameter: Parameter| (parameter.or_absent(), if self.split.parts > 0 { Argument::Scratch(0) } else { Argument::Absent });
        let whole = if self.split.parts > 0 { Argument::Absent } else { y.1 };
        let buffers = buffers.into_iter().chain([(y.0.clone().or_absent(), whole), left(Parameter::write("found", DType::F32))]);
        let source = CudaSource { overlaps: true, rejection, ..CudaSource::new(files, entry, self.defines, hopper::ARCHITECTURE) };
        let launch = Launch::on_cuda(self.key(entry, self.rows), CudaForm::Source(source), params, buffers).with_threadgroup_memory(self.memory);
        let launch = launch.over(Extent::linear(self.groups), Extent::linear(self.threads));
        if self.split.parts == 0 {
            return launch.into();
        }
        let (rows, width) = (self.params.rows(), self.params.score.width);
        let [positions, lengths] = places.map(|(parameter, argument)| (parameter.or_absent(), argument));
        // Of a token all heads, which a group gathers side by side.
        let push = Push::of_few(self.params.rows() / self.params.score.heads, self.params.score.heads * width, self.types[2]);
        let block = CombineParams { attention: self.params, split: self.split, push };
        let source = CudaSource { defines: self.combining, ..COMBINE };
        let buffers = [left(Parameter::read("found", DType::F32)), positions, lengths, y];
        let combine = Launch::on_cuda(self.key(source.entry, 1), CudaForm::Source(source), &block, buffers);
        let combine = combine.over(Extent::linear(rows as u32), Extent::linear(width as u32));
        Plan { launches: vec![launch, combine], scratch: vec![self.left()] }
    }

    /// Bytes of what is left to be combined.
    fn left(&self) -> usize {
        (4 * self.params.rows() * u64::from(self.split.parts) * (self.params.score.width + 2)) as usize
    }
}

/// Attention of new tokens, one of each text, which go into the caches first: a cluster of thread blocks for each text and key head.
pub(super) struct OfTokens {
    instance: Instance,
    source: CudaSource,
    /// Thread blocks of a cluster, and bytes of shared memory of one.
    cluster: u64,
    memory: usize,
}

/// Where keys and values are.
#[derive(Clone, Copy)]
pub(super) enum Places {
    Whole,
    Pages,
}

impl Places {
    /// Over keys in one piece fast precision has kernels of its own, in pages those for many queries alone.
    fn serve(self, precision: Precision) -> bool {
        match (self, precision) {
            (_, Precision::Strict) | (Self::Whole, Precision::Fast) => false,
            (_, Precision::Invariant) | (Self::Pages, Precision::Fast) => true,
        }
    }
}

impl OfTokens {
    /// Where the kernel serves over keys in one piece, or in pages.
    pub(super) fn new(params: &Params, types: [DType; 3], places: Places, precision: Precision, device: &DeviceProperties) -> Option<Self> {
        let instance = Instance::of(params, types, places, precision, device)?;
        let (s, blocks) = (&params.score, u64::from(instance.split.parts));
        if s.queries != 1 || instance.rows >= prefill::ROWS || s.keys > CLUSTERED || s.batch > MOST_TEXTS {
            return None;
        }
        let (entry, files, rejection) = match places {
            Places::Whole => ("attention_decode_blocks", OF_TOKEN, kv_append::REJECTION),
            Places::Pages => ("attention_paged_decode_blocks", OF_TOKENS, paged::decode::REJECTION),
        };
        // One for each block of keys, and four at least, unless there would be more of them than multiprocessors.
        let (tiles, units) = (s.batch * s.kv_heads, device.compute_units as u64);
        let [least, most] = [blocks.div_ceil(FEW_BLOCKS), blocks.max(*LARGE.start())].map(|blocks| blocks.next_power_of_two().min(*LARGE.end()));
        let cluster = (1 << (units / tiles).max(1).ilog2()).clamp(least, most);
        if blocks > FEW_BLOCKS && tiles * cluster > RESIDENT as u64 * units {
            return None;
        }
        // Beside the others' memory the cosines and sines of each pair, and what is left of each row and block.
        let memory = instance.memory + (4 * (s.width + instance.rows * blocks.div_ceil(cluster) * (s.width + 2))) as usize;
        let (files, defines) = (files[cluster.ilog2() as usize], instance.defines);
        let source = CudaSource { overlaps: true, rejection: Some(rejection), ..CudaSource::new(files, entry, defines, hopper::ARCHITECTURE) };
        (memory <= device.threadgroup_memory).then_some(Self { instance, source, cluster, memory })
    }

    pub(super) fn split(&self) -> SplitParams {
        self.instance.split
    }

    /// The launch; the buffers are those of the operator but for the output.
    pub(super) fn plan<P: bytemuck::NoUninit>(&self, params: &P, buffers: impl IntoIterator<Item = (Parameter, Argument)>) -> Plan {
        let Self { instance, source, cluster, memory } = self;
        let (s, y) = (&instance.params.score, (Parameter::write("y", instance.types[2]), Argument::Output(0)));
        let cluster = *cluster as u32;
        let key = instance.key(source.entry, instance.rows).with("cluster", cluster);
        let launch = Launch::on_cuda(key, CudaForm::Source(*source), params, buffers.into_iter().chain([y]));
        launch.with_threadgroup_memory(*memory).over(Extent([cluster, s.kv_heads as u32, s.batch as u32]), Extent::linear(THREADS)).into()
    }
}

/// The plan over keys in one piece, where the kernels serve; `y` is the type of the output.
pub(super) fn plan(params: &Params, inputs: Inputs, y: DType, precision: Precision, device: &DeviceProperties) -> Option<Plan> {
    let instance = Instance::of(params, [inputs.q.dtype, inputs.k.dtype, y], Places::Whole, precision, device)?;
    let (block, [.., positions, lengths]) = (AttentionSplitParams { attention: *params, split: instance.split }, inputs.buffers());
    Some(instance.plan("attention_blocks", instance.files[0], None, &block, inputs.buffers(), [positions, lengths]))
}

/// The plan over keys in pages, where the kernels serve; `buffers` are the operator's inputs, `lengths` those of attention.
pub(super) fn plan_paged(
    params: &PagedParams,
    types: [DType; 3],
    buffers: [(Parameter, Argument); 5],
    lengths: (Parameter, Argument),
    precision: Precision,
    device: &DeviceProperties,
) -> Option<Plan> {
    let instance = Instance::of(&params.attention, types, Places::Pages, precision, device)?;
    let (block, positions) = (PagedSplitParams { paged: *params, split: instance.split }, buffers[4].clone());
    Some(instance.plan("attention_paged_blocks", instance.files[1], Some(paged::REJECTION), &block, buffers, [positions, lengths]))
}

#[cfg(test)]
mod tests {
    use elinvar_core::Result;

    use super::*;
    use crate::{
        Operator, TensorInfo,
        attention::paged::{PagedAttention, decode::PagedDecodeAttention},
        cuda::gpu,
    };

    /// The thread blocks and threads of each launch for sequences of 8,192 keys at most, four heads to a key head.
    fn launches(batch: usize, queries: usize, width: usize) -> Result<Vec<[u128; 2]>> {
        let operator = PagedAttention { precision: Precision::Invariant, ..PagedAttention::default() };
        let tensor = |dtype, dims: &[usize]| TensorInfo::new(dtype, dims).map(Some);
        let pool = || tensor(DType::BF16, &[8, 256 * 32, width]);
        let inputs = [
            tensor(DType::F32, &[batch, 32, queries, width])?,
            pool()?,
            pool()?,
            tensor(DType::I32, &[batch, 256])?,
            tensor(DType::I32, &[batch, queries])?,
        ];
        let outputs = operator.infer(&inputs)?;
        let plan = operator.plan(&inputs, &outputs, &gpu(90))?;
        Ok(plan.launches.iter().map(|launch| [launch.grid.count(), launch.threadgroup.count()]).collect())
    }

    /// The thread blocks of the launches for a token of each of so many sequences of `pages` pages, in as many dimensions as they have.
    fn of_tokens(batch: usize, pages: usize) -> Result<Vec<Extent>> {
        let operator = PagedDecodeAttention { precision: Precision::Invariant, ..PagedDecodeAttention::default() };
        let tensor = |dtype, dims: &[usize]| TensorInfo::new(dtype, dims).map(Some);
        let pool = || tensor(DType::BF16, &[8, 256 * 32, 128]);
        let rows = |heads: usize| tensor(DType::F32, &[batch, heads, 128]);
        let integers = || tensor(DType::I32, &[batch]);
        let table = tensor(DType::I32, &[batch, pages])?;
        let inputs = [pool()?, rows(8)?, integers()?, tensor(DType::F32, &[64])?, pool()?, rows(8)?, rows(32)?, integers()?, table];
        let plan = operator.plan(&inputs, &operator.infer(&inputs)?, &gpu(90))?;
        Ok(plan.launches.iter().map(|launch| launch.grid).collect())
    }

    #[test]
    fn tokens_have_clusters_as_large_as_there_is_room_for_or_their_keys_need() -> Result<()> {
        for (batch, pages, cluster) in [(1, 8, 4), (4, 8, 4), (8, 8, 2), (16, 8, 1), (64, 8, 1), (16, 16, 2), (1, 32, 8), (8, 32, 4), (6, 128, 8)] {
            assert_eq!(of_tokens(batch, pages)?, [Extent([cluster, 8, batch as u32])], "{batch} texts of {pages} pages");
        }
        // Longer texts than a cluster gains by, and more thread blocks than run at once.
        for (batch, pages) in [(1, 256), (64, 16), (64, 32), (8, 128)] {
            assert!(of_tokens(batch, pages)?.len() > 1, "{batch} texts of {pages} pages");
        }
        Ok(())
    }

    #[test]
    fn few_rows_have_small_tiles_of_which_several_are_on_a_multiprocessor() -> Result<()> {
        for (queries, resident) in [(1, 3), (2, 3), (4, 3), (8, 2), (16, 2)] {
            assert_eq!(launches(8, queries, 128)?[0], [132 * resident, u128::from(THREADS)], "{queries} queries");
        }
        // One tile for each key head, two, and as many as all but four places.
        let many = u128::from(hopper::THREADS);
        assert_eq!(launches(8, 17, 128)?[0], [132, many]);
        assert_eq!(launches(1, 33, 128)?, [[132, many], [32 * 33, 128]]);
        assert_eq!(launches(1, 512, 128)?, [[128, many]]);
        assert_eq!(launches(1, 1, 64)?, [[132 * 3, u128::from(THREADS)], [32, 64]]);
        Ok(())
    }
}
