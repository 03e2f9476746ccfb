//! Fast layers of few rows on CUDA devices of compute capability 9.0: a launch rounds the rows to the type of the weights, normalised if they are to be, and
//! one multiplies, which reads the weights once.

use elinvar_core::{DType, DeviceProperties, Extent, KernelKey, MetalFile, Parameter};

use super::{Layers, Projection, operands::AT};
use crate::{
    Argument, Launch, Plan, TensorInfo,
    cuda::{CLUSTERS, CudaArchitecture, CudaForm, CudaSource, LAUNCHES, NUMBERS, WARPS},
    launch::product_operations,
    matmul::{ABSENT, dtype_code},
    metal::{metal_file, params},
};

const ARCHITECTURE: CudaArchitecture = CudaArchitecture::Only(90);

/// Rows, and bytes of a weight, up to which this gains over the launches of the vendor's library.
pub(super) const MOST_ROWS: usize = 8;
const MOST_BYTES: usize = 48 << 20;

/// Elements of a row that are sent for at once: rows have whole pieces.
const PIECE: usize = 128;

/// Rows of weights of a thread block, its threads, and its shared memory: two fit a multiprocessor.
const COLUMNS: usize = 64;
const THREADS: u32 = 256;
const MEMORY: usize = 112 << 10;

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
        pub unused: u32,
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
    }
}

const ROUND: &[MetalFile] = &[NUMBERS, LAUNCHES, Rounded::METAL, metal_file!("projection/rounded.cu")];
const PRODUCT: &[MetalFile] = &[NUMBERS, LAUNCHES, WARPS, CLUSTERS, FewRows::METAL, metal_file!("projection/few.cu")];

/// Whether a device has these kernels for a weight `[n, k]`.
pub(super) fn takes(weight: TensorInfo, device: &DeviceProperties) -> bool {
    let has = ARCHITECTURE.is_of(device) && 2 * (MEMORY + 1024) <= device.threadgroup_memory + 1024;
    let k = weight.shape().last().copied().unwrap_or(0);
    has && weight.dtype.size() == 2 && weight.bytes() <= MOST_BYTES && k > 0 && k.is_multiple_of(PIECE)
}

type Defines = &'static [(&'static str, &'static str)];

fn source(files: &'static [MetalFile], entry: &'static str, defines: Defines) -> CudaForm {
    CudaForm::Source(CudaSource { files, entry, defines, architecture: ARCHITECTURE, overlaps: true, rejection: None })
}

/// Macros of the instances by the type of the weights and the logarithm of the parts of k.
macro_rules! instances {
    ($element:literal) => {
        [&[("ELEMENT", $element), ("PARTS", "1")], &[("ELEMENT", $element), ("PARTS", "2")], &[("ELEMENT", $element), ("PARTS", "4")]]
    };
}
const INSTANCES: [[Defines; 3]; 2] = [instances!("f16"), instances!("bf16")];

impl Projection {
    /// The plan of few rows, where the device has it.
    pub(super) fn of_few_rows(&self, layers: &Layers, operands: [(Parameter, Argument); 10], device: &DeviceProperties) -> Option<Plan> {
        let ([m, k], weight) = (layers.extents(), layers.w0.dtype);
        if !(2..=MOST_ROWS).contains(&m) || !layers.weights().iter().flatten().all(|weight| takes(*weight, device)) {
            return None;
        }
        let number = usize::from(weight == DType::BF16);
        let rounded = Argument::Scratch(0);
        let params = Rounded {
            k: k as u64,
            is_normalised: self.epsilon.is_some().into(),
            norm: layers.norm.map_or(ABSENT, |norm| dtype_code(norm.dtype)),
            epsilon: self.epsilon.unwrap_or(0.0),
            unused: 0,
        };
        let norm = layers.dtype(AT.norm);
        let buffers = [
            (Parameter::read("x", DType::F32), Argument::Input(AT.x)),
            (Parameter::read("norm", norm).or_absent().prefetched(), if layers.norm.is_some() { Argument::Input(AT.norm) } else { Argument::Absent }),
            (Parameter::write("y", weight), rounded),
        ];
        let form = source(ROUND, "rounded_rows", [&[("ELEMENT", "f16")], &[("ELEMENT", "bf16")]][number]);
        let round = Launch::on_cuda(KernelKey::new("rounded_rows", &[norm, weight]), form, &params, buffers);

        let tiles = match self.gated {
            true => layers.n(0).div_ceil(COLUMNS / 2),
            false => (0..3).map(|index| layers.n(index).div_ceil(COLUMNS)).sum(),
        };
        // About a thread block for each multiprocessor, if there are pieces for them.
        let most = (device.compute_units / tiles.max(1)).min(k / PIECE).clamp(1, 4);
        let parts = 1 << most.ilog2();
        let present = (0..3).map(|i| u32::from(layers.biases()[i].is_some()) << i).sum::<u32>()
            | u32::from(layers.residual.is_some()) << 3
            | u32::from(self.gated) << 4;
        let n = [0, 1, 2].map(|index| layers.n(index) as u64);
        let bias = layers.dtype(AT.b0);
        let params = FewRows { m: m as u64, k: k as u64, n, present, bias: dtype_code(bias) };
        let key = KernelKey::new("few_rows", &[weight, bias]).with("parts", parts as u32);
        let form = source(PRODUCT, "few_rows", INSTANCES[number][most.ilog2() as usize]);
        let buffers = [(Parameter::read("x", weight), rounded)].into_iter().chain(operands);
        let product = Launch::on_cuda(key, form, &params, buffers).with_operations(product_operations(&[m, k, n.iter().sum::<u64>() as usize]));
        let groups = u32::try_from(tiles * parts).ok()?;
        let launches = vec![
            round.over(Extent::linear(m as u32), Extent::linear(ROUNDERS)),
            product.over(Extent::linear(groups), Extent::linear(THREADS)).with_threadgroup_memory(MEMORY),
        ];
        Some(Plan { launches, scratch: vec![m * k * weight.size()] })
    }
}
