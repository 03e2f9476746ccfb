//! Fast layers of up to 64 rows on CUDA devices of compute capability 9.0: a launch rounds the rows to the type of the weights, normalised if they are to be,
//! and one multiplies, which reads the weights once. A row's bits depend neither on the other rows nor on their number.

use elinvar_core::{DType, DeviceProperties, Extent, KernelKey, MetalFile, Parameter};

use super::{Layers, Projection, operands::AT};
use crate::{
    Argument, Launch, Plan, TensorInfo,
    cuda::{COPIES, CudaArchitecture, CudaForm, CudaSource, EIGHTS, INSTRUCTIONS, LAUNCHES, NUMBERS},
    launch::product_operations,
    matmul::{ABSENT, dtype_code},
    metal::{metal_file, params},
};

const ARCHITECTURE: CudaArchitecture = CudaArchitecture::Only(90);

pub(super) const MOST_ROWS: usize = 64;

/// Elements of a row that are 128 bytes, and bytes of eight rows of them: rows have whole panels.
const PANEL: usize = 64;
const ATOM: usize = 1024;

/// Rows of weights of a tile, in eights: what a thread's registers hold the sums of.
const MOST_EIGHTS: usize = 31;

/// Threads of a thread block, and pieces that it has in shared memory.
const THREADS: u32 = 256;
/// Beyond them: where they begin on a multiple of their alignment, barriers, and rows that are read but do not exist.
const SLACK: usize = 10 << 10;
const STAGES: std::ops::RangeInclusive<usize> = 4..=24;

/// Threads that round a row.
const ROUNDERS: u32 = 512;

params! {
    /// Rows to be rounded.
    struct Rounded {
        /// Elements of a row.
        pub k: u64,
        /// Whether they are normalised first.
        pub is_normalised: u32,
        /// The type of the norm's weight.
        pub norm: u32,
        /// Added to the mean of the squares.
        pub epsilon: f32,
        /// Rows, in eights.
        pub eights: u32,
    }
}

params! {
    /// A product of few rows and the matrices of layers.
    struct FewRows {
        /// Rows.
        pub m: u64,
        /// Elements of a row.
        pub k: u64,
        /// Rows of each layer's matrix; zero where it is absent.
        pub n: [u64; 3],
        /// Which of the biases and the residual there are, and whether the layers are gated: a bit each.
        pub present: u32,
        /// The type of the biases.
        pub bias: u32,
        /// Rows, in eights.
        pub eights: u32,
        /// Tiles of the layers' matrices up to the end of each layer.
        pub ends: [u32; 3],
        /// Pieces of a row, and in shared memory.
        pub pieces: u32,
        pub stages: u32,
    }
}

const ROUND: &[MetalFile] = &[NUMBERS, LAUNCHES, Rounded::METAL, metal_file!("projection/rounded.cu")];
const PRODUCT: &[MetalFile] = &[NUMBERS, LAUNCHES, INSTRUCTIONS, COPIES, EIGHTS, FewRows::METAL, metal_file!("projection/few.cu")];

/// Whether a device has these kernels for a weight `[n, k]`.
pub(super) fn takes(weight: TensorInfo, device: &DeviceProperties) -> bool {
    let k = weight.shape().last().copied().unwrap_or(0);
    ARCHITECTURE.is_of(device) && weight.dtype.size() == 2 && k > 0 && k.is_multiple_of(PANEL)
}

type Defines = &'static [(&'static str, &'static str)];

fn source(files: &'static [MetalFile], entry: &'static str, defines: Defines) -> CudaForm {
    CudaForm::Source(CudaSource { files, entry, defines, architecture: ARCHITECTURE, overlaps: true, rejection: None })
}

/// Macros of the instances by the type of the weights, the logarithm of a piece's panels, and a tile's rows of weights in eights, from one on.
macro_rules! instances {
    ($($element:literal),*; $panels:tt; $eights:tt) => { [$(instances!(@ $element; $panels; $eights)),*] };
    (@ $element:literal; [$($panels:literal),*]; $eights:tt) => { [$(instances!(@ $element $panels; $eights)),*] };
    (@ $element:literal $panels:literal; [$($eights:literal $columns:literal),*]) => {
        [$(&[("ELEMENT", $element), ("PANELS", $panels), ("EIGHTS", $eights), ("COLUMNS", $columns)]),*]
    };
}
#[rustfmt::skip]
const INSTANCES: [[[Defines; MOST_EIGHTS]; 3]; 2] = instances!("f16", "bf16"; ["1", "2", "4"]; [
    "1" "8", "2" "16", "3" "24", "4" "32", "5" "40", "6" "48", "7" "56", "8" "64", "9" "72", "10" "80", "11" "88", "12" "96", "13" "104", "14" "112", "15"
    "120", "16" "128", "17" "136", "18" "144", "19" "152", "20" "160", "21" "168", "22" "176", "23" "184", "24" "192", "25" "200", "26" "208", "27" "216",
    "28" "224", "29" "232", "30" "240", "31" "248"
]);

/// How a product of `eights` of rows, k elements each, and layers' matrices is cut.
struct Tiling {
    /// A tile's rows of matrices, in eights.
    eights: usize,
    /// Tiles up to the end of each layer.
    ends: [usize; 3],
    /// Panels of a piece, and pieces in shared memory.
    panels: usize,
    stages: usize,
    memory: usize,
}

impl Tiling {
    fn new(rows: usize, k: usize, n: [usize; 3], gated: bool, device: &DeviceProperties) -> Self {
        let units = device.compute_units.max(1);
        let ends = |eights: usize| {
            let each = if gated { [n[0].div_ceil(4 * eights), 0, 0] } else { n.map(|n| n.div_ceil(8 * eights)) };
            [each[0], each[0] + each[1], each.iter().sum()]
        };
        let step = 1 + usize::from(gated);
        let all: usize = if gated { 2 * n[0].div_ceil(8) } else { n.iter().map(|n| n.div_ceil(8)).sum() };
        // As few tiles for each multiprocessor as can be, and these as small as can be: no multiprocessor has more of them to do than the others.
        let each = all.div_ceil(units * MOST_EIGHTS).max(1);
        let eights = (step..MOST_EIGHTS).step_by(step).find(|&eights| ends(eights)[2] <= units * each).unwrap_or(MOST_EIGHTS / step * step);
        let room = std::env::var("ELV_ROOM").ok().and_then(|x| x.parse::<usize>().ok()).map_or(device.threadgroup_memory, |k| k << 10);
        let besides = SLACK + 32 * rows * (8 * eights + 8);
        let room = if room.saturating_sub(besides) / (2 * (eights + rows) * ATOM) < 3 { device.threadgroup_memory } else { room }.saturating_sub(besides);
        let stages = |panels: usize| room / (panels * (eights + rows) * ATOM);
        let panels = [4, 2].into_iter().find(|&panels| (k / PANEL).is_multiple_of(panels) && stages(panels) >= *STAGES.start()).unwrap_or(1);
        let stages = stages(panels).min(*STAGES.end()).min(k / PANEL / panels * each);
        Self { eights, ends: ends(eights), panels, stages, memory: stages * panels * (eights + rows) * ATOM + besides }
    }
}

impl Projection {
    /// The plan of few rows, where the device has it.
    pub(super) fn of_few_rows(&self, layers: &Layers, operands: [(Parameter, Argument); 10], device: &DeviceProperties) -> Option<Plan> {
        let ([m, k], weight) = (layers.extents(), layers.w0.dtype);
        if !(1..=MOST_ROWS).contains(&m) || !layers.weights().iter().flatten().all(|weight| takes(*weight, device)) {
            return None;
        }
        let number = usize::from(weight == DType::BF16);
        let (rounded, eights) = (Argument::Scratch(0), m.div_ceil(8));
        let params = Rounded {
            k: k as u64,
            is_normalised: self.epsilon.is_some().into(),
            norm: layers.norm.map_or(ABSENT, |norm| dtype_code(norm.dtype)),
            epsilon: self.epsilon.unwrap_or(0.0),
            eights: eights as u32,
        };
        let norm = layers.dtype(AT.norm);
        let buffers = [
            (Parameter::read("x", DType::F32), Argument::Input(AT.x)),
            (Parameter::read("norm", norm).or_absent().prefetched(), if layers.norm.is_some() { Argument::Input(AT.norm) } else { Argument::Absent }),
            (Parameter::write("y", DType::U8), rounded),
        ];
        let form = source(ROUND, "rounded_rows", [&[("ELEMENT", "f16")], &[("ELEMENT", "bf16")]][number]);
        let round = Launch::on_cuda(KernelKey::new("rounded_rows", &[norm, weight]), form, &params, buffers);

        let present = (0..3).map(|i| u32::from(layers.biases()[i].is_some()) << i).sum::<u32>()
            | u32::from(layers.residual.is_some()) << 3
            | u32::from(self.gated) << 4;
        let n = [0, 1, 2].map(|index| layers.n(index));
        let tiling = Tiling::new(eights, k, n, self.gated, device);
        let bias = layers.dtype(AT.b0);
        if tiling.ends[2] == 0 {
            return None;
        }
        let params = FewRows {
            m: m as u64,
            k: k as u64,
            n: n.map(|n| n as u64),
            present,
            bias: dtype_code(bias),
            eights: eights as u32,
            ends: tiling.ends.map(|end| end as u32),
            pieces: (k / PANEL / tiling.panels) as u32,
            stages: tiling.stages as u32,
        };
        let key = KernelKey::new("few_rows", &[weight, bias]).with("eights", tiling.eights as u32).with("panels", tiling.panels as u32);
        let form = source(PRODUCT, "few_rows", INSTANCES[number][tiling.panels.ilog2() as usize][tiling.eights - 1]);
        let buffers = [(Parameter::read("x", DType::U8), rounded)].into_iter().chain(operands);
        let product = Launch::on_cuda(key, form, &params, buffers).with_operations(product_operations(&[m, k, n.iter().sum()]));
        let groups = u32::try_from(tiling.ends[2].min(device.compute_units.max(1))).ok()?;
        let launches = vec![
            round.over(Extent::linear(m as u32), Extent::linear(ROUNDERS)),
            product.over(Extent::linear(groups), Extent::linear(THREADS)).with_threadgroup_memory(tiling.memory),
        ];
        Some(Plan { launches, scratch: vec![k / PANEL * eights * ATOM] })
    }
}
