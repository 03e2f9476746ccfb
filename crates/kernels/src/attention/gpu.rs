//! Attention's launches on a GPU: one for many queries; for few two, or one of clusters.

use elinvar_core::{DType, DeviceProperties, Error, Extent, KernelKey, MetalFile, MetalForm, Parameter, Result};

use super::{
    Inputs, Params,
    scoring::{self, MaskView, ScoreParams, View},
};
use crate::{
    Argument, Launch, Plan,
    cuda::{CudaArchitecture, LARGEST_CLUSTER},
    math,
    metal::{self, metal_file},
    order,
    quantized::cached,
};

pub(super) const STATES: MetalFile = metal_file!("attention/states.metal");
pub(super) const TILE: MetalFile = metal_file!("attention/tile.metal");
pub(super) const SUMS: MetalFile = metal_file!("attention/block.metal");
pub(super) const WALK: MetalFile = metal_file!("attention/walk.metal");
pub(super) const PANELS: MetalFile = metal_file!("attention/panels.metal");

/// The files of a kernel that works on tiles, and takes them over keys as `walk` does.
const fn of_tiles(walk: MetalFile, kernel: MetalFile) -> [MetalFile; 17] {
    let [view, mask, score, params] = [View::METAL, MaskView::METAL, ScoreParams::METAL, Params::METAL];
    [
        metal::TYPES,
        metal::LAUNCHES,
        metal::CLUSTERS,
        math::METAL,
        order::METAL,
        order::LANES,
        view,
        mask,
        score,
        params,
        scoring::METAL,
        cached::METAL,
        STATES,
        TILE,
        SUMS,
        walk,
        kernel,
    ]
}

const ATTENTION: MetalFile = metal_file!("attention/attention.metal");
const WHOLE: Walks =
    Walks { tiles: MetalForm::new(&of_tiles(WALK, ATTENTION), "attention"), panels: MetalForm::new(&of_tiles(PANELS, ATTENTION), "attention") };
const SPLIT: MetalForm = MetalForm::new(&of_tiles(WALK, metal_file!("attention/split.metal")), "attention_split");
const COMBINE: MetalForm = MetalForm::new(
    &[
        metal::TYPES,
        metal::LAUNCHES,
        math::METAL,
        View::METAL,
        MaskView::METAL,
        ScoreParams::METAL,
        Params::METAL,
        scoring::METAL,
        STATES,
        metal_file!("attention/combine.metal"),
    ],
    "attention_combine",
);

/// Keys of a block.
pub(super) const BLOCK: u64 = 256;

/// Rows of a tile at most; of a panel, which is a tile for GPUs with more memory; and keys of a panel that are staged at once, as panels.metal has them.
const ROWS: u64 = 8;
const PANEL: u64 = 32;
const STAGED: u64 = 128;

/// A kernel that takes tiles over all their keys, and the same for panels.
pub(super) struct Walks {
    pub(super) tiles: MetalForm,
    pub(super) panels: MetalForm,
}

impl Walks {
    /// The launch over panels, or else over tiles of `shape`; `block` holds `params`.
    pub(super) fn launch<P: bytemuck::NoUninit>(
        &self,
        types: &[DType],
        shape: Shape,
        params: &Params,
        block: &P,
        buffers: impl IntoIterator<Item = (Parameter, Argument)>,
        device: &DeviceProperties,
    ) -> Result<Launch> {
        let keys = types[1];
        let (shape, form, memory) = match Shape::panels(params, keys, device) {
            Some(panels) => (panels, self.panels, panels.panel_memory(keys)),
            // A row has factors and a scale besides.
            None => (shape, self.tiles, shape.memory() + 4 * (2 + 1) * shape.rows as usize),
        };
        let launch = Launch::on_gpu(shape.key(form.function, types), form, block, buffers);
        Ok(over(launch, shape.tiles(params))?.with_threadgroup_memory(memory))
    }
}

/// Tiles below which a GPU is kept busy by splitting the keys.
pub(super) const BUSY: u64 = 64;

/// Blocks that are combined at a time.
const COMBINED: usize = 128;

/// How tiles are laid out: the kernels' constants.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    pub(super) rows: u64,
    pub(super) lanes: u64,
    columns: u64,
    chunks: u64,
}

impl Shape {
    pub(super) fn new(params: &Params) -> Self {
        let s = &params.score;
        let columns = params.value_width.div_ceil(32).next_power_of_two().clamp(2, 4);
        Self {
            rows: (s.queries * s.group() as u64).next_power_of_two().min(ROWS),
            lanes: s.width.div_ceil(8).next_power_of_two().min(32),
            columns,
            chunks: params.value_width.div_ceil(32 * columns),
        }
    }

    /// The same for a threadgroup each block, or few blocks. Where a GPU has more units than those need, tiles have fewer rows: keys come from memory once all the same, and
    /// it is the work on a block that takes the time.
    pub(super) fn spread(params: &Params, device: &DeviceProperties) -> Self {
        let (mut shape, units) = (Self::new(params), device.compute_units as u64);
        let blocks = params.score.keys.div_ceil(BLOCK);
        while shape.rows > 1 && 2 * shape.tiles(params) * blocks <= units {
            shape.rows /= 2;
        }
        shape
    }

    /// Panels, where they fit and are enough to keep a GPU busy.
    fn panels(params: &Params, kv: DType, device: &DeviceProperties) -> Option<Self> {
        let shape = Self { rows: PANEL, ..Self::new(params) };
        let s = &params.score;
        // A lane adds up 4 to 32 parts of a key.
        let is_taken = kv.is_float() && (17..=256).contains(&s.width) && s.queries * s.group() as u64 >= PANEL;
        let fits = shape.panel_memory(kv) <= device.threadgroup_memory;
        (is_taken && fits && shape.tiles(params) * 8 >= device.compute_units as u64).then_some(shape)
    }

    /// Bytes of a panel: a tile's, staged keys and totals.
    fn panel_memory(&self, kv: DType) -> usize {
        self.memory() + (STAGED * self.lanes * 8) as usize * kv.size() + 4 * (self.rows * self.padded_width()) as usize
    }

    /// Tiles of all sequences and key heads.
    fn tiles(&self, params: &Params) -> u64 {
        let s = &params.score;
        (s.queries * s.group() as u64).div_ceil(self.rows) * s.kv_heads * s.batch
    }

    /// `launch` for each tile and block of keys.
    pub(super) fn over_blocks(&self, launch: Launch, params: &Params) -> Result<Launch> {
        over(launch, self.tiles(params) * params.score.keys.div_ceil(BLOCK))
    }

    /// Elements of a value with those that only pad it.
    pub(super) fn padded_width(&self) -> u64 {
        32 * self.columns * self.chunks
    }

    pub(super) fn key(&self, operator: &'static str, types: &[DType]) -> KernelKey {
        let constant = |n: u64| n as u32;
        KernelKey::new(operator, types)
            .with("rows", constant(self.rows))
            .with("lanes", constant(self.lanes))
            .with("columns", constant(self.columns))
            .with("chunks", constant(self.chunks))
    }

    /// Weights of a block, what the simdgroups' sums meet in, queries, and a row's flags and range.
    pub(super) fn memory(&self) -> usize {
        let meeting = if self.rows > ROWS { 0 } else { 8 * 256 };
        4 * (self.rows * BLOCK + meeting + self.rows * 8 * self.lanes + self.rows * (8 + 2)) as usize
    }
}

pub(super) fn plan(params: &Params, inputs: Inputs, device: &DeviceProperties) -> Result<Plan> {
    check_extents(params, device)?;
    if params.rows() * params.value_width == 0 {
        return Ok(Plan::default());
    }
    let shape = Shape::new(params);
    if is_split(params, shape.tiles(params)) {
        let (shape, [.., positions, lengths]) = (Shape::spread(params, device), inputs.buffers());
        let end = End::of(&shape, params, shape.memory(), device);
        let key = end.key(shape.key("attention_split", &inputs.of_tile()));
        let launch = Launch::on_gpu(key, end.form(SPLIT), params, inputs.buffers().into_iter().chain(end.buffers(inputs.q.dtype)));
        let launch = shape.over_blocks(launch, params)?.with_threadgroup_memory(shape.memory() + end.memory(&shape));
        return end.plan(launch, params, inputs.q.dtype, [positions, lengths]);
    }
    let buffers = inputs.buffers().into_iter().chain([(Parameter::write("y", inputs.q.dtype), Argument::Output(0))]);
    Ok(WHOLE.launch(&inputs.of_tile(), shape, params, params, buffers, device)?.into())
}

/// Whether the keys of so many tiles are split, to keep the GPU busy.
pub(super) fn is_split(params: &Params, tiles: u64) -> bool {
    params.score.keys > BLOCK && tiles <= BUSY
}

/// The strict kernels' tiles.
pub(super) fn tiles(params: &Params) -> u64 {
    Shape::new(params).tiles(params)
}

/// What the kernels count in 32 bits.
pub(super) fn check_extents(params: &Params, device: &DeviceProperties) -> Result<()> {
    let s = &params.score;
    let largest = [s.keys, s.queries * s.group() as u64, s.width, params.value_width].into_iter().max().unwrap_or(0);
    if largest > i32::MAX as u64 {
        return Err(Error::unsupported(format!("an extent of {largest} on {}: expected less than 2^31", device.name)));
    }
    let reach = [s.k.token, params.v.token].map(|token| u128::from(token.unsigned_abs()) * u128::from(s.keys));
    if let Some(reach) = reach.into_iter().find(|&reach| reach > i32::MAX as u128) {
        return Err(Error::unsupported(format!("keys {reach} elements apart on {}: expected less than 2^31", device.name)));
    }
    Ok(())
}

/// What puts together the sums of the blocks of keys, of which each has a threadgroup.
#[derive(Clone, Copy)]
pub(super) enum End {
    /// The threadgroups of a cluster, so many, themselves.
    Cluster(u32),
    /// Another launch.
    Launch,
}

impl End {
    /// For threadgroups that take `memory` bytes without what they leave.
    pub(super) fn of(shape: &Shape, params: &Params, memory: usize, device: &DeviceProperties) -> Self {
        let (blocks, units) = (params.score.keys.div_ceil(BLOCK), device.compute_units as u64);
        // Clusters of which some wait for others to end take longer than another launch.
        let meets =
            blocks == 1 || CudaArchitecture::CLUSTERED.is_of(device) && blocks <= LARGEST_CLUSTER as u64 && shape.tiles(params) * blocks <= units;
        let cluster = Self::Cluster(blocks as u32);
        if meets && memory + cluster.memory(shape) <= device.threadgroup_memory { cluster } else { Self::Launch }
    }

    /// Bytes of threadgroup memory of what is left for a cluster: of each row the sums, the greatest score and the sum of weights.
    pub(super) fn memory(self, shape: &Shape) -> usize {
        match self {
            Self::Cluster(_) => 4 * (shape.rows * (shape.padded_width() + 2)) as usize,
            Self::Launch => 0,
        }
    }

    fn cluster(self) -> u32 {
        match self {
            Self::Cluster(blocks) => blocks,
            Self::Launch => 0,
        }
    }

    pub(super) fn key(self, key: KernelKey) -> KernelKey {
        key.with("cluster", self.cluster())
    }

    pub(super) fn form(self, form: MetalForm) -> MetalForm {
        form.in_clusters(self.cluster().max(1))
    }

    /// Where the launch over blocks puts what each gives, its sums, and its greatest score with the sum of its weights; or the output, of type `dtype`.
    pub(super) fn buffers(self, dtype: DType) -> [(Parameter, Argument); 3] {
        let [sums, states] = ["sums", "states"].map(|name| Parameter::update(name, DType::F32).or_absent());
        let y = Parameter::write("y", dtype).or_absent();
        match self {
            Self::Cluster(_) => [(sums, Argument::Absent), (states, Argument::Absent), (y, Argument::Output(0))],
            Self::Launch => [(sums, Argument::Scratch(0)), (states, Argument::Scratch(1)), (y, Argument::Absent)],
        }
    }

    /// `launch`, and the one that combines what it gives for each block of keys, if one does; `places` are the positions and the lengths.
    pub(super) fn plan(self, launch: Launch, params: &Params, dtype: DType, places: [(Parameter, Argument); 2]) -> Result<Plan> {
        match self {
            Self::Cluster(_) => Ok(launch.into()),
            Self::Launch => combined(launch, params, dtype, places),
        }
    }
}

fn combined(launch: Launch, params: &Params, dtype: DType, places: [(Parameter, Argument); 2]) -> Result<Plan> {
    let [positions, lengths] = places.map(|(parameter, argument)| (parameter.prefetched(), argument));
    let buffers = [
        (Parameter::read("sums", DType::F32), Argument::Scratch(0)),
        (Parameter::read("states", DType::F32), Argument::Scratch(1)),
        positions,
        lengths,
        (Parameter::write("y", dtype), Argument::Output(0)),
    ];
    let combine = Launch::on_gpu(KernelKey::new("attention_combine", &[dtype]), COMBINE, params, buffers);
    let (rows, chunks, blocks) = (params.rows(), params.value_width.div_ceil(32), params.score.keys.div_ceil(BLOCK));
    // Products of 32 columns, two factors and a sum for each block, and the greatest score of each simdgroup's blocks.
    let combining = 4 * (COMBINED * (32 + 2 + 1) + 8);
    let launches = vec![launch, over(combine, rows * chunks)?.with_threadgroup_memory(combining)];
    let floats = |n: u64| (4 * rows * blocks * n) as usize;
    Ok(Plan { launches, scratch: vec![floats(params.value_width), floats(2)] })
}

fn over(launch: Launch, threadgroups: u64) -> Result<Launch> {
    const THREADS: u32 = 256;
    let count =
        u32::try_from(threadgroups).map_err(|_| Error::unsupported(format!("attention over {threadgroups} tiles: too many for one launch")))?;
    Ok(launch.over(Extent::linear(count), Extent::linear(THREADS)))
}
