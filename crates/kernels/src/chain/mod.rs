//! Products of 16-bit weights whose sums are chains, on the tensor cores of compute capability 9.0.
//!
//! An element is a chain: from zero, products of 16 elements at a time are added by a tensor core in f32, in ascending order. What a tensor core makes of 16
//! products and a sum does not depend on their place in a tile; so an element depends on its row, its column and `k` alone, neither on the other rows nor on
//! their number. f32 rows are rounded to the type of the weights first. Up to 64 rows read the weights once. Thread blocks hold up to eight short rows as a whole, and may
//! normalise them.

use elinvar_core::{DType, DeviceProperties, Extent, KernelKey, MetalFile, Parameter, Result};

use crate::{
    Argument, Launch, Plan, TensorInfo,
    cast::Cast,
    collective::{self, Push},
    cuda::{
        CLUSTERS, COPIES, CudaArchitecture, CudaFeatures, CudaForm, CudaSource, EIGHTS, INSTRUCTIONS, LAUNCHES, MATH, NUMBERS, TENSOR_MAPS, VECTORS,
    },
    launch::product_operations,
    math,
    matmul::dtype_code,
    metal::{self, metal_file, params},
    operator::Bound,
    order,
    quantized::{self, Format},
    rms_norm::RmsNorm,
};

const ARCHITECTURE: CudaArchitecture = CudaArchitecture::Only(90);

/// Rows that are few, which read the weights once.
pub(crate) const FEW: usize = 64;

/// Rows from which they are faster than the vendor's library (benchmarks/engine-2026-11-29.md).
pub(crate) const MANY: usize = 512;

/// Rows of a tile where they are many.
const BLOCK: usize = 128;

/// Rows of weights of a high tile, in eights: two of half the height take hardly longer.
const HIGH: usize = 24;

/// Elements of a row that are 128 bytes, and bytes of eight rows of them: rows have whole panels.
const PANEL: usize = 64;
const ATOM: usize = 1024;

/// Rows of weights of a tile, in eights, of few rows and of many: what a thread's registers hold the sums of.
const MOST_EIGHTS: [usize; 2] = [31, 32];
/// The same where rows are held: two tiles of a multiprocessor come sooner than one of twice the height.
const MOST_EIGHTS_HELD: usize = 20;
/// The same where they are decoded, by threads that need registers too.
const MOST_EIGHTS_DECODED: usize = 20;

/// Threads of a thread block, and of one whose senders decode matrices.
const THREADS: u32 = 384;
const DECODING_THREADS: u32 = 512;

/// Pieces that a thread block has in shared memory, and bytes beyond them: where they begin on a multiple of their alignment, barriers, and of few rows those
/// that are read but do not exist.
const STAGES: std::ops::RangeInclusive<usize> = 4..=24;
const SLACK: [usize; 2] = [10 << 10, 2 << 10];

/// Bytes of packed rows in flight to a thread block that decodes them.
const PACKED: usize = 48 << 10;

/// Bytes of weights of a thread block up to which another launch's fits beside it: short launches gain by that.
const SHORT: usize = 256 << 10;

/// Threads that send for few rows, and elements of rows up to which thread blocks hold all of them.
const ROW_SENDERS: usize = 128;
const MOST_HELD: usize = 16 << 10;

/// Bytes of a thread block's maps of the weights and of the rows.
const MAPS: usize = 512;

params! {
    /// A product of rows and the matrices of layers.
    struct ChainProduct {
        /// Rows.
        pub m: u64,
        /// Elements of a row.
        pub k: u64,
        /// Rows of each layer's matrix; zero where it is absent.
        pub n: [u64; 3],
        /// Bytes of a row of a matrix that is quantised.
        pub row_bytes: u64,
        /// Which of the biases there are, whether the layers are gated, and whether their result is rounded: a bit each.
        pub present: u32,
        /// The type of the biases.
        pub bias: u32,
        /// Blocks of rows, and rows of one, in eights; of those that the last blocks lack there are places.
        pub blocks: u32,
        pub eights: u32,
        /// Tiles of the layers' matrices up to the end of each layer.
        pub ends: [u32; 3],
        /// Pieces of a row, and in shared memory.
        pub pieces: u32,
        pub stages: u32,
        /// Threads that share a row to normalise it; none where rows are taken as they are.
        pub sharing: u32,
        /// The type of the norm's weight, and what is added to the mean of the squares.
        pub norm: u32,
        pub epsilon: f32,
        /// What is pushed to the ranks of a group.
        pub push: Push,
    }
}

const TILES: MetalFile = metal_file!("chain/tiles.cu");
const RING: MetalFile = metal_file!("chain/ring.cu");
const DECODERS: MetalFile = metal_file!("chain/decoders.cu");
const KERNEL: MetalFile = metal_file!("chain/few_rows.cu");
const KERNEL_OF_MANY: MetalFile = metal_file!("chain/many_rows.cu");
/// The files of a kernel, and of the one that pushes its results to the ranks of a group.
type Files = (&'static [MetalFile], Option<&'static [MetalFile]>);

/// Whether rows are held.
const HOLDS: MetalFile = MetalFile { name: "chain/held", text: "constexpr bool HELD = true;\n" };
const SENT: MetalFile = MetalFile { name: "chain/held", text: "constexpr bool HELD = false;\n" };

const fn few_rows(held: MetalFile, pushes: usize) -> [MetalFile; 18] {
    let senders = metal_file!("chain/senders.cu");
    let first = [NUMBERS, MATH, math::METAL, LAUNCHES, INSTRUCTIONS, EIGHTS];
    metal::joined(&[&first, &collective::PEERS[pushes], &[collective::EXCHANGE, ChainProduct::METAL, TILES, held, RING, senders, KERNEL]])
}
/// Results of held rows are gathered sooner by another launch, during which the next product's first weights are in flight.
const HELD_ROWS: Files = (&few_rows(HOLDS, 0), None);
const FEW_ROWS: Files = (&few_rows(SENT, 0), Some(&few_rows(SENT, 1)));

/// The same of quantised matrices, of a format.
macro_rules! of_formats {
    ($($format:ident),*) => {
        const fn decoded(format: Format) -> Files {
            match format {
                $(Format::$format => {
                    const fn files(pushes: usize) -> [MetalFile; 21] {
                        let first = [NUMBERS, MATH, math::METAL, LAUNCHES, INSTRUCTIONS, EIGHTS];
                        let last = [ChainProduct::METAL, TILES, VECTORS, quantized::METAL, quantized::cuda(Format::$format), SENT, RING, DECODERS, KERNEL];
                        metal::joined(&[&first, &collective::PEERS[pushes], &[collective::EXCHANGE], &last])
                    }
                    const FILES: Files = (&files(0), Some(&files(1)));
                    FILES
                })*
            }
        }
    };
}
#[rustfmt::skip]
of_formats!(Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2K, Q3K, Q4K, Q5K, Q6K, Iq4Nl, Iq4Xs, Mxfp4, Affine4Bf16, Affine8F16, Affine8Bf16);

const fn many_rows(pushes: usize) -> [MetalFile; 17] {
    let first = [NUMBERS, MATH, math::METAL, LAUNCHES, INSTRUCTIONS, COPIES, CLUSTERS, EIGHTS, TENSOR_MAPS];
    metal::joined(&[&first, &collective::PEERS[pushes], &[ChainProduct::METAL, TILES, KERNEL_OF_MANY]])
}
const MANY_ROWS: Files = (&many_rows(0), Some(&many_rows(1)));

/// Whether a device has these products for a weight `[n, k]`.
pub(crate) fn takes(weight: TensorInfo, device: &DeviceProperties) -> bool {
    let k = weight.shape().last().copied().unwrap_or(0);
    let has = ARCHITECTURE.is_of(device) && device.threadgroup_memory >= 227 << 10;
    has && weight.dtype.size() == 2 && k > 0 && k.is_multiple_of(PANEL) && weight.layout.is_contiguous()
}

/// Whether a device has these products of up to [`FEW`] rows for rows of `k` quantised elements, which it decodes to bf16.
pub(crate) fn takes_packed(k: usize, device: &DeviceProperties) -> bool {
    ARCHITECTURE.is_of(device) && device.threadgroup_memory >= 227 << 10 && k > 0 && k.is_multiple_of(2 * PANEL)
}

type Defines = &'static [(&'static str, &'static str)];

/// Macros of the instances by the type of the weights, another macro, and a tile's rows of weights in eights.
macro_rules! instances {
    ($($element:literal),*; $other:literal $values:tt; $eights:tt) => { [$(instances!(@ $element; $other $values; $eights)),*] };
    (@ $element:literal; $other:literal [$($value:literal),*]; $eights:tt) => { [$(instances!(@ $element $other $value; $eights)),*] };
    (@ $element:literal $other:literal $value:literal; [$($eights:literal $columns:literal),*]) => {
        [$(&[("ELEMENT", $element), ($other, $value), ("EIGHTS", $eights), ("COLUMNS", $columns)]),*]
    };
}
/// Of few rows, by the logarithm of a piece's panels, and of one eight on.
#[rustfmt::skip]
const OF_FEW_ROWS: [[[Defines; MOST_EIGHTS[0]]; 3]; 2] = instances!("f16", "bf16"; "PANELS" ["1", "2", "4"]; [
    "1" "8", "2" "16", "3" "24", "4" "32", "5" "40", "6" "48", "7" "56", "8" "64", "9" "72", "10" "80", "11" "88", "12" "96", "13" "104", "14" "112", "15"
    "120", "16" "128", "17" "136", "18" "144", "19" "152", "20" "160", "21" "168", "22" "176", "23" "184", "24" "192", "25" "200", "26" "208", "27" "216",
    "28" "224", "29" "232", "30" "240", "31" "248"
]);
/// Of many rows, by the logarithm of a cluster's thread blocks, and of two eights on, two more each.
#[rustfmt::skip]
const OF_MANY_ROWS: [[[Defines; MOST_EIGHTS[1] / 2]; 2]; 2] = instances!("f16", "bf16"; "CLUSTER" ["1", "2"]; [
    "2" "16", "4" "32", "6" "48", "8" "64", "10" "80", "12" "96", "14" "112", "16" "128", "18" "144", "20" "160", "22" "176", "24" "192", "26" "208", "28"
    "224", "30" "240", "32" "256"
]);

/// How a product is cut.
struct Tiling {
    /// Whether rows are many.
    many: bool,
    /// Blocks of rows, and rows of one, in eights.
    blocks: usize,
    rows: usize,
    /// A tile's rows of matrices, in eights.
    eights: usize,
    /// Tiles of matrices up to the end of each layer.
    ends: [usize; 3],
    /// Thread blocks of a cluster, panels of a piece, and pieces in shared memory.
    cluster: usize,
    panels: usize,
    stages: usize,
    memory: usize,
}

/// The norm of rows before they are rounded.
#[derive(Clone, Copy)]
pub(crate) struct Norm {
    pub(crate) epsilon: f32,
    pub(crate) weight: Option<Bound>,
}

/// Linear layers of one input.
pub(crate) struct Layers {
    /// Rows, and elements of each.
    pub(crate) extents: [usize; 2],
    /// Rows of each weight; zero where it is absent.
    pub(crate) n: [usize; 3],
    /// The types of the weights, as they are multiplied, and of the biases.
    pub(crate) dtypes: [DType; 2],
    /// The format of quantised weights, of up to [`FEW`] rows, which [`takes_packed`].
    pub(crate) format: Option<Format>,
    /// Which of the biases there are.
    pub(crate) biases: [bool; 3],
    /// Whether they give what SwiGLU makes of `y0` and `y1`.
    pub(crate) gated: bool,
    /// Whether that has the type of the weights.
    pub(crate) rounded: bool,
    /// The norm of their rows, of f32.
    pub(crate) norm: Option<Norm>,
}

impl Layers {
    /// Whether each thread block has all rows at once.
    fn holds(&self) -> bool {
        let [m, k] = self.extents;
        self.format.is_none() && m <= 8 && m * k <= MOST_HELD
    }

    fn has_one_result(&self) -> bool {
        self.gated || self.n[1..] == [0; 2]
    }

    /// Whether the ranks of a group may gather the result.
    fn may_push(&self, device: &DeviceProperties) -> bool {
        self.has_one_result() && device.features().is_some_and(|features: &CudaFeatures| features.pushes)
    }

    /// Whether rows may be normalised by the product's launch.
    fn can_normalise(&self) -> bool {
        let k = self.extents[1];
        self.holds() && order::row_visits(k) > 0 && order::row_threads(k) <= ROW_SENDERS
    }

    /// The launches, unless there is nothing to compute. f32 rows are rounded, and rows that are not held normalised, by one of their own. `operands` are the
    /// weights, the biases, the residual and the results; what the layers lack is absent.
    pub(crate) fn plan(&self, x: Bound, operands: [Argument; 10], device: &DeviceProperties) -> Result<Option<Plan>> {
        let ([m, k], [weight, bias]) = (self.extents, self.dtypes);
        let inside = self.norm.filter(|_| self.can_normalise());
        let (norm, factors) = inside.and_then(|norm| norm.weight).map_or((weight, Argument::Absent), |(info, argument)| (info.dtype, argument));
        let rows_type = if inside.is_some() { DType::F32 } else { weight };
        let (number, tiling) = (usize::from(weight == DType::BF16), self.tiling(device));
        let Tiling { many, blocks, rows, eights, cluster, panels, .. } = tiling;
        let tiles = tiling.ends[2] * blocks;
        if tiles == 0 {
            return Ok(None);
        }
        let mut plan = Plan::default();
        let taken = if inside.is_some() || self.norm.is_none() && x.0.dtype == weight {
            x.1
        } else {
            plan.scratch.push(weight.size() * m * k);
            let rounded = Argument::Scratch(0);
            match self.norm {
                Some(Norm { epsilon, weight: factors }) => {
                    plan.add(&RmsNorm { epsilon, output: Some(weight), ..RmsNorm::default() }, &[Some(x), factors], &[rounded], device)?;
                }
                None => plan.add(&Cast { to: weight }, &[Some(x)], &[rounded], device)?,
            }
            rounded
        };
        let present = self.biases.into_iter().chain([self.gated, self.rounded]).enumerate().map(|(i, is_present)| u32::from(is_present) << i).sum();
        let (width, output) = (self.n[0] as u64, if self.rounded { weight } else { DType::F32 });
        let push = match (self.has_one_result(), many) {
            (false, _) => Push::of_rows(0),
            (true, false) => Push::of_few(m as u64, width, output),
            (true, true) => Push::of_rows(width),
        };
        let params = ChainProduct {
            m: m as u64,
            k: k as u64,
            n: self.n.map(|n| n as u64),
            row_bytes: self.format.and_then(|format| format.packed_row_bytes(k)).unwrap_or(0) as u64,
            present,
            bias: dtype_code(bias),
            blocks: blocks as u32,
            eights: rows as u32,
            ends: tiling.ends.map(|end| end as u32),
            pieces: (k / PANEL / panels) as u32,
            stages: tiling.stages as u32,
            sharing: inside.map_or(0, |_| order::row_threads(k) as u32),
            norm: dtype_code(norm),
            epsilon: inside.map_or(0.0, |norm| norm.epsilon),
            push,
        };
        let few = OF_FEW_ROWS[number][panels.ilog2() as usize];
        let (name, (files, pushing), defines) = match self.format {
            Some(format) => (format!("chain_few_rows_{format}"), decoded(format), few[eights - 1]),
            None if many => ("chain_many_rows".to_owned(), MANY_ROWS, OF_MANY_ROWS[number][cluster.ilog2() as usize][eights / 2 - 1]),
            None => ("chain_few_rows".to_owned(), if self.holds() { HELD_ROWS } else { FEW_ROWS }, few[eights - 1]),
        };
        let entry = if many { "chain_many_rows" } else { "chain_few_rows" };
        let source = CudaSource { overlaps: true, pushing, ..CudaSource::new(files, entry, defines, ARCHITECTURE) };
        let stored = self.format.map_or(weight, |_| DType::U8);
        let key = KernelKey::new(name, &[rows_type, norm, weight, bias, output])
            .with("eights", eights as u32)
            .with("panels", panels as u32)
            .with("cluster", cluster as u32)
            .with("held", self.holds());
        let groups = tiles.min(device.compute_units.max(cluster) / cluster * cluster);
        let read = |name, dtype| Parameter::read(name, dtype).or_absent();
        // Many rows wait for the launches ahead before they make maps, and read the matrices by these.
        let matrices = ["w0", "w1", "w2"].map(|name| if many { read(name, stored) } else { read(name, stored).prefetched() });
        let last = if many {
            (Parameter::write("maps", DType::U8), Argument::Scratch(plan.scratch.len()))
        } else {
            (read("norm", norm).prefetched(), factors)
        };
        let results = ["y0", "y1", "y2"].map(|name| Parameter::write(name, output).or_absent());
        let others = ["b0", "b1", "b2"].map(|name| read(name, bias)).into_iter().chain([read("residual", DType::F32)]).chain(results);
        let buffers = [(Parameter::read("x", rows_type), taken)].into_iter().chain(matrices.into_iter().chain(others).zip(operands));
        let operations = product_operations(&[m, k, self.n.iter().sum()]);
        let product = Launch::on_cuda(key, CudaForm::Source(source), &params, buffers.chain([last])).with_operations(operations);
        let product = product.over(Extent::linear(groups as u32), Extent::linear(if self.format.is_some() { DECODING_THREADS } else { THREADS }));
        plan.launches.push(product.with_threadgroup_memory(tiling.memory));
        if many {
            plan.scratch.push(MAPS * groups);
        }
        Ok(Some(plan))
    }

    fn tiling(&self, device: &DeviceProperties) -> Tiling {
        let ([m, k], n, units) = (self.extents, self.n, device.compute_units.max(1));
        let many = m > FEW;
        let most = match (self.format, self.holds()) {
            (Some(_), _) => MOST_EIGHTS_DECODED,
            (None, true) => MOST_EIGHTS_HELD,
            (None, false) => MOST_EIGHTS[usize::from(many)],
        };
        let (blocks, rows) = if many { (m.div_ceil(BLOCK), BLOCK / 8) } else { (1, m.div_ceil(8)) };
        // Where the blocks are one, or few and odd, one more would cost more than a cluster saves.
        let cluster = if many && (blocks.is_multiple_of(2) || blocks > 8) { 2 } else { 1 };
        let blocks = blocks.next_multiple_of(cluster);
        let ends = |eights: usize| {
            let each = if self.gated { [n[0].div_ceil(4 * eights), 0, 0] } else { n.map(|n| n.div_ceil(8 * eights)) };
            [each[0], each[0] + each[1], each.iter().sum()]
        };
        let step = if many || self.gated { 2 } else { 1 };
        // As few tiles for each multiprocessor as can be, and these as small as can be: no multiprocessor has more of them to do than the others.
        let each = (ends(step)[2] * step * blocks).div_ceil(units * most).max(1);
        let lowest = |each| (step..most).step_by(step).find(|&eights| ends(eights)[2] * blocks <= units * each).unwrap_or(most / step * step);
        let eights = match lowest(each) {
            // The results of the first of two tiles are in flight to peers while the second is computed.
            eights if many && each == 1 && eights >= HIGH && self.may_push(device) => lowest(2),
            eights => eights,
        };
        let (sent, besides) = match (many, self.holds()) {
            (true, _) => (rows, SLACK[1]),
            (false, true) => (0, SLACK[1] + 32 * rows * (8 * eights + 8) + 2 * m * k),
            (false, false) => (rows, SLACK[0] + 32 * rows * (8 * eights + 8)),
        };
        let besides = besides + self.format.map_or(0, |_| PACKED);
        let room = |panels: usize, memory: usize| memory.saturating_sub(besides) / (panels * (eights + sent) * ATOM);
        let is_short = rows <= 2 && self.format.is_none() && 16 * eights * k <= SHORT;
        let memory = if is_short { device.threadgroup_memory / 2 - 1024 } else { device.threadgroup_memory };
        let suits = |&panels: &usize| !many && (k / PANEL).is_multiple_of(panels) && room(panels, memory) >= *STAGES.start();
        // What is decoded at a time has two.
        let panels = [4, 2].into_iter().find(suits).unwrap_or(if self.format.is_some() { 2 } else { 1 });
        let stages = room(panels, memory).min(*STAGES.end()).min(k / PANEL / panels);
        let memory = stages * panels * (eights + sent) * ATOM + besides;
        Tiling { many, blocks, rows, eights, ends: ends(eights), cluster, panels, stages, memory }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::gpu;

    fn h100() -> DeviceProperties {
        gpu(90)
    }

    fn layers(m: usize, k: usize, n: [usize; 3], gated: bool) -> Layers {
        Layers { extents: [m, k], n, dtypes: [DType::BF16; 2], format: None, biases: [false; 3], gated, rounded: false, norm: None }
    }

    /// What a launch asks for may be all that there is.
    #[test]
    fn kernels_have_no_shared_memory_beside_the_launchs() {
        for file in [KERNEL, KERNEL_OF_MANY] {
            assert_eq!(file.text.matches("__shared__").count(), 1, "{}", file.name);
        }
    }

    /// Each tile is one of a layer, the ring fits the memory and has room for a piece that is multiplied and one that is sent for.
    #[test]
    fn tiles_cover_the_layers_and_fit_a_multiprocessor() {
        for k in [64, 128, 192, 896, 4096, 14_336] {
            for n in [[1, 0, 0], [9, 8, 7], [2048, 512, 512], [4096, 1024, 1024], [14_336; 3], [128_256, 0, 0]] {
                let plain = [(1, false), (8, true), (17, false), (64, true), (65, false), (4096, true)].map(|(m, gated)| (m, gated, None));
                let decoded = [(9, false), (33, false), (64, true)].map(|(m, gated)| (m, gated, Some(Format::Q4_0)));
                for (m, gated, format) in plain.into_iter().chain(decoded.into_iter().filter(|_| takes_packed(k, &h100()))) {
                    let n = if gated { [n[0], n[0], 0] } else { n };
                    let tiling = Layers { format, ..layers(m, k, n, gated) }.tiling(&h100());
                    let Tiling { many, blocks, rows, eights, ends, cluster, panels, stages, memory } = tiling;
                    assert!(format.is_none() || eights <= MOST_EIGHTS_DECODED && panels % 2 == 0);
                    let height = if gated { 4 * eights } else { 8 * eights };
                    assert!(ends[0] * height >= n[0] && (gated || (ends[2] - ends[1]) * height >= n[2]));
                    assert!(blocks * rows * 8 >= m && (!gated && !many || eights % 2 == 0) && eights <= MOST_EIGHTS[usize::from(many)]);
                    assert!(many == (m > 64) && blocks % cluster == 0 && (many || blocks == 1));
                    assert!(memory <= h100().threadgroup_memory, "{m} {k} {n:?}: {memory}");
                    let pieces = k / PANEL / panels;
                    assert!(pieces * panels * PANEL == k && (stages >= 2 || stages == pieces), "{m} {k} {n:?}: {stages} of {pieces}");
                }
            }
        }
    }

    /// What a step of a model of 8b parameters takes for some sequences: one tile for each multiprocessor, or a few.
    #[test]
    fn tiles_are_as_many_as_multiprocessors() {
        let tiles = |k, n, gated| layers(32, k, n, gated).tiling(&h100()).ends[2];
        let found = [tiles(4096, [4096, 1024, 1024], false), tiles(4096, [4096, 0, 0], false), tiles(4096, [14_336, 14_336, 0], true)];
        assert_eq!((found, tiles(4096, [128_256, 0, 0], false)), ([130, 128, 128], 518));
        // Of rows that are held, two where one would be high.
        let held = |n, gated| layers(1, 4096, n, gated).tiling(&h100()).ends[2];
        assert_eq!([held([4096, 0, 0], false), held([14_336, 14_336, 0], true)], [128, 256]);
    }

    /// Where others gather the result, most of it is in flight before the last tiles are done.
    #[test]
    fn where_results_are_pushed_two_low_tiles_stand_for_a_high_one() {
        let one = h100();
        let of_two =
            DeviceProperties { features: Some(std::sync::Arc::new(CudaFeatures { pushes: true, ..*one.features().unwrap() })), ..one.clone() };
        let eights = |m, n, gated| [&one, &of_two].map(|device| layers(m, 4096, n, gated).tiling(device).eights);
        assert_eq!([2048, 4096].map(|m| eights(m, [2048, 0, 0], false)), [[32, 16], [32; 2]]);
        assert_eq!(eights(2048, [2048, 512, 512], false), [26; 2]);
        assert_eq!(eights(2048, [7168, 7168, 0], true), [32; 2]);
    }

    #[test]
    fn only_whole_panels_of_16_bits_on_its_hardware_are_taken() {
        let weight = |dtype, k| TensorInfo::new(dtype, &[8, k]).unwrap();
        assert!(takes(weight(DType::BF16, 64), &h100()) && takes(weight(DType::F16, 4096), &h100()));
        assert!(!takes(weight(DType::F32, 64), &h100()) && !takes(weight(DType::BF16, 72), &h100()) && !takes(weight(DType::BF16, 0), &h100()));
        assert!(!takes(weight(DType::BF16, 64), &gpu(80)));
    }
}
