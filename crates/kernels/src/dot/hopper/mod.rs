//! Strict products of 16-bit operands on the tensor cores of CUDA devices of compute capability 9.0: the bits of [`super`]'s definition.
//!
//! A launch for each side cuts its rows in blocks and writes records: the integers as two planes of bytes, in the order that `wgmma` reads, and the units.
//! A third multiplies records: four products of planes, exact in 32-bit integers, whose sum becomes one f32. Records take two bytes an element.
//! Where the left side has few rows, the kernel that multiplies makes the right side's integers itself, and reads it once.

use std::sync::Arc;

use elinvar_core::{DType, DeviceProperties, Extent, KernelKey, MetalFile, Parameter};

use super::{BLOCK, Side};
use crate::{
    Argument, Launch, Plan,
    cuda::{COPIES, CudaArchitecture, CudaForm, CudaSource, INSTRUCTIONS, LAUNCHES, NUMBERS},
    launch::product_operations,
    matmul::{ABSENT, dtype_code},
    metal::{metal_file, params},
};

const ARCHITECTURE: CudaArchitecture = CudaArchitecture::Only(90);

/// Rows of a record and of a tile, and columns of a tile.
const TILE: usize = 128;

/// Threads and shared memory of the kernel that multiplies: three warpgroups, and a header and three pairs of records, each of whole KiB.
const THREADS: u32 = 3 * 128;
const MEMORY: usize = 1024 + 3 * 2 * record_bytes(TILE).next_multiple_of(1024);

/// Threads of the kernel that makes records: eight for a row of a block.
const CUTTERS: u32 = 256;

/// Rows and blocks that a thread block cuts.
const CUT: [usize; 2] = [16, 8];

/// Columns up to which products are made elsewhere, and rows too where the right side is f32.
const LEAST: usize = 8;

/// Rows of the left side up to which the right side is read once, columns of a thread block's, and its threads.
pub(crate) const FEW: usize = 32;
const COLUMNS: usize = 16;
const READERS: u32 = 256;

params! {
    /// A side's elements, in the order of its rows and of k.
    struct Lines {
        /// The first element.
        pub origin: u64,
        /// Strides of rows and of k.
        pub strides: [i64; 2],
        /// Rows.
        pub rows: u64,
        /// Elements of a row.
        pub k: u64,
    }
}

params! {
    /// What becomes of the sums.
    struct Results {
        /// Rows of y.
        pub m: u64,
        /// Columns of y.
        pub n: u64,
        /// Scales the sums.
        pub alpha: f32,
        /// The type of the bias, [`ABSENT`] for none.
        pub bias: u32,
    }
}

params! {
    /// A product of records.
    struct Product {
        /// What becomes of the sums.
        pub results: Results,
        /// Blocks of a row.
        pub blocks: u64,
    }
}

params! {
    /// A product of records of few rows and a matrix.
    struct Few {
        /// What becomes of the sums.
        pub results: Results,
        /// Elements of a row.
        pub k: u64,
        /// The matrix's first element.
        pub origin: u64,
        /// Its strides of rows and of k.
        pub strides: [i64; 2],
    }
}

params! {
    /// A product of records of few rows and the matrices of layers.
    struct FewLayers {
        /// Rows.
        pub m: u64,
        /// Elements of a row.
        pub k: u64,
        /// Rows of each layer's matrix; zero where it is absent.
        pub n: [u64; 3],
        /// Which of the biases and the residual there are: a bit each.
        pub present: u64,
    }
}

const RECORDS: MetalFile = metal_file!("dot/hopper/record.cu");
const STORES: MetalFile = metal_file!("dot/hopper/results.cu");

const FEW_FILE: MetalFile = metal_file!("dot/hopper/few.cu");

const PLANES: &[MetalFile] = &[NUMBERS, LAUNCHES, Lines::METAL, RECORDS, metal_file!("dot/hopper/planes.cu")];
const PRODUCT: &[MetalFile] = &[NUMBERS, INSTRUCTIONS, COPIES, Results::METAL, Product::METAL, RECORDS, STORES, metal_file!("dot/hopper/product.cu")];
const FEW_ROWS: &[MetalFile] =
    &[NUMBERS, LAUNCHES, INSTRUCTIONS, COPIES, Results::METAL, Few::METAL, RECORDS, STORES, FEW_FILE, metal_file!("dot/hopper/few_matrix.cu")];
const LAYERS: &[MetalFile] = &[NUMBERS, LAUNCHES, INSTRUCTIONS, COPIES, FewLayers::METAL, RECORDS, FEW_FILE, metal_file!("dot/hopper/few_layers.cu")];

/// Bytes of a record: two planes and the units.
const fn record_bytes(rows: usize) -> usize {
    rows * (2 * BLOCK + 4)
}

fn source(files: &'static [MetalFile], entry: &'static str, defines: Defines) -> CudaForm {
    let overlaps = files.iter().any(|file| file.name == LAUNCHES.name);
    CudaForm::Source(CudaSource { overlaps, ..CudaSource::new(files, entry, defines, ARCHITECTURE) })
}

/// One side of a product.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rows {
    pub(crate) dtype: DType,
    /// The first element.
    pub(crate) origin: usize,
    /// Strides of rows and of k.
    pub(crate) strides: [isize; 2],
    pub(crate) count: usize,
    pub(crate) from: Argument,
}

impl Rows {
    fn tiles(&self, height: usize) -> usize {
        self.count.div_ceil(height)
    }

    fn record_bytes(&self, height: usize, k: usize) -> Option<usize> {
        self.tiles(height).checked_mul(k.div_ceil(BLOCK))?.checked_mul(record_bytes(height))
    }

    /// The launch that makes the records, each of so many rows.
    fn cut(&self, side: Side, height: usize, k: usize, records: Argument) -> Option<Launch> {
        let params = Lines { origin: self.origin as u64, strides: self.strides.map(|stride| stride as i64), rows: self.count as u64, k: k as u64 };
        let form = source(PLANES, "dot_planes", cut(side, height, self.dtype)?);
        let key = KernelKey::new("dot_planes", &[self.dtype]).with("bits", side.bits()).with("rows", height as u32);
        let buffers = [(Parameter::read("x", self.dtype), self.from), (Parameter::write("records", DType::U8), records)];
        let [down, along] = [(self.tiles(height) * height).div_ceil(CUT[0]), k.div_ceil(BLOCK).div_ceil(CUT[1])].map(u32::try_from);
        Some(Launch::on_cuda(key, form, &params, buffers).over(Extent([down.ok()?, along.ok()?, 1]), Extent::linear(CUTTERS)))
    }
}

/// A product `y[m, n] = round(alpha · Σ_k left[m, k] right[n, k] + bias[n])`, `y` row-major.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Records {
    pub(crate) sides: [Rows; 2],
    pub(crate) k: usize,
    pub(crate) alpha: f32,
    pub(crate) bias: Option<(DType, Argument)>,
    pub(crate) output: (DType, Argument),
}

/// Whether a device has these kernels.
pub(crate) fn has(device: &DeviceProperties) -> bool {
    ARCHITECTURE.is_of(device) && MEMORY <= device.threadgroup_memory && THREADS as usize <= device.max_threads_per_threadgroup
}

impl Records {
    /// The launches, where the device has them and they gain.
    pub(crate) fn plan(&self, device: &DeviceProperties) -> Option<Plan> {
        let Self { sides: [left, right], k, .. } = *self;
        let are_few = left.count <= FEW && right.dtype.size() == 2;
        if !has(device) || left.count <= (if are_few { 1 } else { LEAST }) || right.count <= LEAST || k == 0 {
            return None;
        }
        let plan = if are_few { self.with_few_rows()? } else { self.with_many_rows(device)? };
        plan.scratch.iter().all(|&bytes| bytes <= device.max_buffer_bytes).then_some(plan)
    }

    fn with_few_rows(&self) -> Option<Plan> {
        let Self { sides: [left, right], k, .. } = *self;
        let height = few_height(left.count);
        let params = Few { results: self.results(), k: k as u64, origin: right.origin as u64, strides: right.strides.map(|stride| stride as i64) };
        let form = source(FEW_ROWS, "dot_few", few(height, right.dtype, self.output.0)?);
        let right_side = Parameter::read("right", right.dtype).prefetched();
        let operands = [(Parameter::read("left", DType::U8), Argument::Scratch(0)), (right_side, right.from)];
        let mut launch = self.multiply("dot_few", &[right.dtype], form, &params, operands);
        let kernel = Arc::make_mut(&mut launch.kernel);
        kernel.key = kernel.key.clone().with("rows", height as u32);
        let groups = u32::try_from(right.count.div_ceil(COLUMNS)).ok()?;
        let launch = launch.over(Extent::linear(groups), Extent::linear(READERS)).with_threadgroup_memory(few_memory(height));
        let launches = vec![left.cut(Side::Left, height, k, Argument::Scratch(0))?, launch];
        Some(Plan { launches, scratch: vec![left.record_bytes(height, k)?] })
    }

    fn with_many_rows(&self, device: &DeviceProperties) -> Option<Plan> {
        let Self { sides: [left, right], k, .. } = *self;
        let tiles = u32::try_from(left.tiles(TILE).checked_mul(right.tiles(TILE))?).ok().filter(|&tiles| tiles <= i32::MAX as u32 / 2)?;
        let params = Product { results: self.results(), blocks: k.div_ceil(BLOCK) as u64 };
        let form = source(PRODUCT, "dot_product", product(self.output.0)?);
        let operands = [("left", 0), ("right", 1)].map(|(name, index)| (Parameter::read(name, DType::U8), Argument::Scratch(index)));
        let launch = self.multiply("dot_product", &[], form, &params, operands);
        let groups = Extent::linear(tiles.min(device.compute_units as u32));
        let launch = launch.over(groups, Extent::linear(THREADS)).with_threadgroup_memory(MEMORY);
        let [left_records, right_records] = [0, 1].map(Argument::Scratch);
        let launches = vec![left.cut(Side::Left, TILE, k, left_records)?, right.cut(Side::Right, TILE, k, right_records)?, launch];
        Some(Plan { launches, scratch: vec![left.record_bytes(TILE, k)?, right.record_bytes(TILE, k)?] })
    }

    fn results(&self) -> Results {
        let [m, n] = self.sides.map(|side| side.count as u64);
        Results { m, n, alpha: self.alpha, bias: self.bias.map_or(ABSENT, |(dtype, _)| dtype_code(dtype)) }
    }

    fn multiply<P: bytemuck::NoUninit>(
        &self,
        name: &'static str,
        dtypes: &[DType],
        form: CudaForm,
        params: &P,
        operands: [(Parameter, Argument); 2],
    ) -> Launch {
        let (output, y) = self.output;
        let (bias_type, bias) = self.bias.unwrap_or((output, Argument::Absent));
        let buffers = operands.into_iter().chain([(Parameter::read("bias", bias_type).or_absent(), bias), (Parameter::write("y", output), y)]);
        let dtypes = [dtypes, &[bias_type, output]].concat();
        let [m, n] = self.sides.map(|side| side.count);
        Launch::on_cuda(KernelKey::new(name, &dtypes), form, params, buffers).with_operations(product_operations(&[m, n, self.k]))
    }
}

/// Linear layers of one input of few rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layers {
    pub(crate) x: Rows,
    pub(crate) k: usize,
    /// The type of the weights, and of the biases.
    pub(crate) dtypes: [DType; 2],
    /// Rows of each weight; zero where it is absent.
    pub(crate) n: [usize; 3],
    /// Which of the biases and the residual there are: a bit each.
    pub(crate) present: u64,
}

impl Layers {
    /// Adds the launches, where the device has them, with the weights, the biases, the residual and the results as their buffers.
    pub(crate) fn plan(&self, operands: [(Parameter, Argument); 10], device: &DeviceProperties, plan: &mut Plan) -> Option<()> {
        let Self { x, k, dtypes: [weight, bias], n, present } = *self;
        if !has(device) || !(2..=FEW).contains(&x.count) || weight.size() != 2 || k == 0 {
            return None;
        }
        let height = few_height(x.count);
        let records = Argument::Scratch(plan.scratch.len());
        let params = FewLayers { m: x.count as u64, k: k as u64, n: n.map(|n| n as u64), present };
        let form = source(LAYERS, "dot_layers", layers(height, weight, bias)?);
        let key = KernelKey::new("dot_layers", &[weight, bias]).with("rows", height as u32);
        let buffers = [(Parameter::read("x", DType::U8), records)].into_iter().chain(operands);
        let groups = u32::try_from(n.iter().map(|n| n.div_ceil(COLUMNS)).sum::<usize>()).ok()?;
        let launch = Launch::on_cuda(key, form, &params, buffers).with_operations(product_operations(&[x.count, k, n.iter().sum()]));
        plan.launches.push(x.cut(Side::Left, height, k, records)?);
        plan.launches.push(launch.over(Extent::linear(groups), Extent::linear(READERS)).with_threadgroup_memory(few_memory(height)));
        plan.scratch.push(x.record_bytes(height, k).filter(|&bytes| bytes <= device.max_buffer_bytes)?);
        Some(())
    }
}

/// Rows of a record of so few rows.
fn few_height(rows: usize) -> usize {
    rows.next_power_of_two().max(8)
}

/// Shared memory of the kernel for few rows: of each of eight warps two records, the values of 16 columns and units, all twice, and barriers.
const fn few_memory(height: usize) -> usize {
    let values = COLUMNS * height + COLUMNS + height;
    8 * 2 * (record_bytes(height).next_multiple_of(128) + 4 * values + 8)
}

type Defines = &'static [(&'static str, &'static str)];

/// Macros of a text's instances by [`dtype_code`]: those that all have, and the type.
macro_rules! instances {
    ($name:literal $(, $macro:literal = $value:literal)*) => {
        [&[$(($macro, $value),)* ($name, "float")], &[$(($macro, $value),)* ($name, "f16")], &[$(($macro, $value),)* ($name, "bf16")]]
    };
}

fn of_type(instances: &[Defines; 3], dtype: DType) -> Option<Defines> {
    instances.get(dtype_code(dtype) as usize).copied()
}

fn cut(side: Side, height: usize, dtype: DType) -> Option<Defines> {
    const LEFT: [Defines; 3] = instances!("ELEMENT", "HEIGHT" = "128", "BITS" = "16");
    const RIGHT: [Defines; 3] = instances!("ELEMENT", "HEIGHT" = "128", "BITS" = "15");
    const LEFT_8: [Defines; 3] = instances!("ELEMENT", "HEIGHT" = "8", "BITS" = "16");
    const LEFT_16: [Defines; 3] = instances!("ELEMENT", "HEIGHT" = "16", "BITS" = "16");
    const LEFT_32: [Defines; 3] = instances!("ELEMENT", "HEIGHT" = "32", "BITS" = "16");
    match (side, height) {
        (Side::Left, 8) => of_type(&LEFT_8, dtype),
        (Side::Left, 16) => of_type(&LEFT_16, dtype),
        (Side::Left, 32) => of_type(&LEFT_32, dtype),
        (Side::Left, _) => of_type(&LEFT, dtype),
        (Side::Right, _) => of_type(&RIGHT, dtype),
    }
}

fn product(output: DType) -> Option<Defines> {
    const PRODUCTS: [Defines; 3] = instances!("RESULT");
    of_type(&PRODUCTS, output)
}

fn few(height: usize, element: DType, output: DType) -> Option<Defines> {
    const F16_8: [Defines; 3] = instances!("RESULT", "ELEMENT" = "f16", "EIGHTS" = "1");
    const F16_16: [Defines; 3] = instances!("RESULT", "ELEMENT" = "f16", "EIGHTS" = "2");
    const F16_32: [Defines; 3] = instances!("RESULT", "ELEMENT" = "f16", "EIGHTS" = "4");
    const BF16_8: [Defines; 3] = instances!("RESULT", "ELEMENT" = "bf16", "EIGHTS" = "1");
    const BF16_16: [Defines; 3] = instances!("RESULT", "ELEMENT" = "bf16", "EIGHTS" = "2");
    const BF16_32: [Defines; 3] = instances!("RESULT", "ELEMENT" = "bf16", "EIGHTS" = "4");
    match (element == DType::F16, height) {
        (true, 8) => of_type(&F16_8, output),
        (true, 16) => of_type(&F16_16, output),
        (true, _) => of_type(&F16_32, output),
        (false, 8) => of_type(&BF16_8, output),
        (false, 16) => of_type(&BF16_16, output),
        (false, _) => of_type(&BF16_32, output),
    }
}

fn layers(height: usize, element: DType, bias: DType) -> Option<Defines> {
    const F16_8: [Defines; 3] = instances!("BIAS", "ELEMENT" = "f16", "EIGHTS" = "1");
    const F16_16: [Defines; 3] = instances!("BIAS", "ELEMENT" = "f16", "EIGHTS" = "2");
    const F16_32: [Defines; 3] = instances!("BIAS", "ELEMENT" = "f16", "EIGHTS" = "4");
    const BF16_8: [Defines; 3] = instances!("BIAS", "ELEMENT" = "bf16", "EIGHTS" = "1");
    const BF16_16: [Defines; 3] = instances!("BIAS", "ELEMENT" = "bf16", "EIGHTS" = "2");
    const BF16_32: [Defines; 3] = instances!("BIAS", "ELEMENT" = "bf16", "EIGHTS" = "4");
    const BY_HEIGHT: [[&[Defines; 3]; 3]; 2] = [[&F16_8, &F16_16, &F16_32], [&BF16_8, &BF16_16, &BF16_32]];
    let of_height = BY_HEIGHT[usize::from(element == DType::BF16)][height.ilog2() as usize - 3];
    of_type(of_height, bias)
}

#[cfg(test)]
mod tests {
    use elinvar_core::Error;

    use super::*;
    use crate::cuda::gpu;

    fn product(m: usize, n: usize, k: usize) -> Records {
        let side = |count, dtype, index| Rows { dtype, origin: 0, strides: [k as isize, 1], count, from: Argument::Input(index) };
        let sides = [side(m, DType::F32, 0), side(n, DType::BF16, 1)];
        Records { sides, k, alpha: 1.0, bias: None, output: (DType::F32, Argument::Output(0)) }
    }

    #[test]
    fn many_rows_take_three_launches_few_two_and_fewer_none() -> Result<(), Error> {
        let plan = product(200, 17_000, 300).plan(&gpu(90)).ok_or_else(|| Error::internal("no plan"))?;
        assert_eq!(plan.scratch, [2 * 3 * record_bytes(TILE), 133 * 3 * record_bytes(TILE)]);
        let grids: Vec<_> = plan.launches.iter().map(|launch| launch.grid.0).collect();
        assert_eq!(grids, [[16, 1, 1], [133 * 8, 1, 1], [132, 1, 1]]);
        let plan = product(17, 4096, 300).plan(&gpu(90)).ok_or_else(|| Error::internal("no plan"))?;
        assert_eq!((plan.scratch, plan.launches[1].grid.0, plan.launches[1].threadgroup_memory), (vec![3 * record_bytes(32)], [256, 1, 1], 169_088));
        let few = [product(1, 4096, 4096), product(4096, LEAST, 4096), product(64, 64, 0)];
        assert!(few.iter().all(|product| product.plan(&gpu(90)).is_none()));
        assert!(product(200, 200, 300).plan(&gpu(80)).is_none() && product(200, 200, 300).plan(&gpu(120)).is_none());
        Ok(())
    }
}
