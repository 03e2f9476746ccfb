//! Strict layers of many rows on the tensor cores of compute capability 9.0: the bits of [`super`]'s definition.
//!
//! A launch makes integers of the rows' elements, two f16 each, and one takes the weights' chunks apart: both write records, as they are multiplied. A third
//! multiplies records, with weights that it decodes in registers. Tensor cores add products of f16 exactly in f32, as long as they are integers whose sums stay
//! below 2^24: 32 elements of x and of a weight of at most five bits, or 16 of one of six.

use elinvar_core::{DType, DeviceProperties, Extent, KernelKey, MetalFile, Parameter, Result};

use super::{AT, Layers, QuantizedLinear, SUMS};
use crate::{
    Argument, Launch, Plan, TensorInfo,
    cuda::{COPIES, CudaArchitecture, CudaForm, CudaSource, INSTRUCTIONS, LAUNCHES, MATH, NUMBERS, VECTORS},
    launch::product_operations,
    math,
    matmul::dtype_code,
    metal::{self, metal_file, params},
    quantized::{
        self, CHUNK, Format,
        format::{Blocks, with_blocks},
    },
    rms_norm::RmsNorm,
};

const ARCHITECTURE: CudaArchitecture = CudaArchitecture::Only(90);

/// Rows of a record of x, and of weights.
const ROWS: usize = 64;

/// Records of weights for a thread block.
const BLOCKS: usize = 4;

/// Threads: a warpgroup that sends for records and two that multiply; and what they have in shared memory: barriers, and records, so often.
const THREADS: u32 = 3 * 128;
const HEADER: usize = 128;
const STAGES: usize = 8;

/// Bytes of a record of x: of each row two planes of 32 numbers of 16 bits, the scale, the sum, and the sums of both halves.
const RECORD: usize = ROWS * (2 * 64 + 16);

/// Bytes of a record of weights: of each row the fields, and the scale and the offset of each part.
const fn weight_record(format: Format) -> usize {
    const fn bytes<F: Blocks>() -> usize {
        4 * F::BITS + CHUNK / F::GROUP * if F::OFFSETS { 8 } else { 4 }
    }
    ROWS * with_blocks!(format, F => bytes::<F>())
}

/// Rows of x, and chunks of each, of which a thread block makes records; and chunks of a row of weights.
const MADE: usize = 8;
const MADE_OF_WEIGHTS: usize = 16;

params! {
    /// Rows that become integers.
    struct IntegerRows {
        /// Rows.
        pub m: u64,
        /// 32 elements each of a row.
        pub chunks: u64,
    }
}

params! {
    /// Weights that become records.
    struct WeightRecords {
        /// 32 elements each of a row.
        pub chunks: u64,
        /// Bytes of a row.
        pub row_bytes: u64,
        /// Rows of each weight; zero where it is absent.
        pub n: [u64; 3],
        /// Records of a chunk up to the end of each weight.
        pub ends: [u32; 3],
        pub padding: u32,
    }
}

params! {
    /// Layers by records.
    struct BlockProduct {
        /// Rows.
        pub m: u64,
        /// 32 elements each of a row.
        pub chunks: u64,
        /// Rows of each weight; zero where it is absent.
        pub n: [u64; 3],
        /// Records of a chunk up to the end of each weight.
        pub ends: [u32; 3],
        /// Which of the biases there are, and whether the layers are gated: a bit each.
        pub present: u32,
        /// The type of the biases.
        pub bias: u32,
        pub padding: u32,
    }
}

const RECORDS: MetalFile = metal_file!("quantized_linear/hopper/record.cu");
const MAKE_ROWS: &[MetalFile] = &[NUMBERS, LAUNCHES, IntegerRows::METAL, RECORDS, metal_file!("quantized_linear/hopper/rows.cu")];

/// The files that make records of weights and that multiply, for formats with sums of so few bits.
const fn files(format: Format) -> Option<[&'static [MetalFile]; 2]> {
    const fn of(format: Format, params: MetalFile, kernel: MetalFile) -> [MetalFile; 13] {
        let record = metal_file!("quantized_linear/hopper/weight_record.cu");
        let first = [NUMBERS, MATH, math::METAL, LAUNCHES, INSTRUCTIONS, COPIES, params, RECORDS, VECTORS];
        metal::joined(&[&first, &[quantized::METAL, quantized::cuda(format), record, kernel]])
    }
    macro_rules! of_formats {
        ($($few:ident)*; $($many:ident)*) => {
            match format {
                $(Format::$few => {
                    const MAKE: &[MetalFile] = &of(Format::$few, WeightRecords::METAL, metal_file!("quantized_linear/hopper/weights.cu"));
                    const MULTIPLY: &[MetalFile] = &of(Format::$few, BlockProduct::METAL, metal_file!("quantized_linear/hopper/product.cu"));
                    Some([MAKE, MULTIPLY])
                })*
                $(Format::$many)|* => None,
            }
        };
    }
    of_formats!(Q4_0 Q4_1 Q5_0 Q5_1 Q2K Q3K Q4K Q5K Q6K Mxfp4 Affine4Bf16; Q8_0 Iq4Nl Iq4Xs Affine8F16 Affine8Bf16)
}

/// The launches, where the device has them and they gain.
pub(super) fn plan(operator: QuantizedLinear, layers: &Layers, outputs: &[TensorInfo], device: &DeviceProperties) -> Result<Option<Plan>> {
    let ([m, k], n, format) = (layers.extents(), [0, 1, 2].map(|index| layers.n(index)), operator.format);
    let chunks = k / CHUNK;
    let memory = HEADER + STAGES * (RECORD + BLOCKS * weight_record(format));
    let has = ARCHITECTURE.is_of(device) && memory <= device.threadgroup_memory && THREADS as usize <= device.max_threads_per_threadgroup;
    let is_f32 = layers.x.dtype == DType::F32 && outputs.iter().all(|output| output.dtype == DType::F32);
    let has_sums = chunks > 0 && chunks.is_multiple_of(SUMS) && chunks / MADE <= 65_535;
    let Some([make, multiply]) = files(format).filter(|_| has && is_f32 && has_sums) else { return Ok(None) };
    let each = n.map(|n| n.div_ceil(ROWS));
    let [down, blocks] = [m.div_ceil(ROWS), each.iter().sum()];
    let across = blocks.div_ceil(BLOCKS);
    let records = [RECORD * down * chunks, weight_record(format) * blocks * chunks];
    let (Ok(tiles), Ok(eights)) = (u32::try_from(down * across), u32::try_from(down * ROWS / MADE)) else { return Ok(None) };
    // Multiprocessors have tiles in turn. In hundredths of the time of a tile here, as measured on an H200: those, the records of weights, and the tiles elsewhere,
    // each of one block.
    let units = device.compute_units.max(1);
    let turns = |tiles: usize| tiles.div_ceil(units) * units;
    let gains = 100 * turns(down * across) + 17 * blocks < 37 * turns(down * blocks);
    if !gains || records.iter().any(|&bytes| bytes > device.max_buffer_bytes) {
        return Ok(None);
    }
    let mut plan = Plan::default();
    let mut x = Argument::Input(AT.x);
    if let Some(epsilon) = operator.epsilon {
        plan.scratch.push(layers.x.bytes());
        let inputs = [Some((layers.x, x)), layers.norm.map(|norm| (norm, Argument::Input(AT.norm)))];
        x = Argument::Scratch(0);
        plan.add(&RmsNorm { epsilon, ..RmsNorm::default() }, &inputs, &[x], device)?;
    }
    let [row_records, weight_records] = [0, 1].map(|index| Argument::Scratch(plan.scratch.len() + index));
    plan.scratch.extend(records);
    let source = |files, entry| CudaForm::Source(CudaSource { overlaps: true, ..CudaSource::new(files, entry, &[], ARCHITECTURE) });
    let n = n.map(|n| n as u64);
    let ends = [each[0], each[0] + each[1], blocks].map(|end| end as u32);
    let [_, w0, w1, w2, b0, b1, b2, _, residual, y0, y1, y2] = layers.parameters(outputs)?;

    let params = IntegerRows { m: m as u64, chunks: chunks as u64 };
    let buffers = [(Parameter::read("x", DType::F32), x), (Parameter::write("records", DType::U8), row_records)];
    let launch = Launch::on_cuda(KernelKey::new("integer_rows", &[]), source(MAKE_ROWS, "integer_rows"), &params, buffers);
    plan.launches.push(launch.over(Extent([eights, chunks.div_ceil(MADE) as u32, 1]), Extent::linear(32 * MADE as u32)));

    let params = WeightRecords { chunks: chunks as u64, row_bytes: layers.w0.shape()[1] as u64, n, ends, padding: 0 };
    let key = KernelKey::new(format!("weight_records_{format}"), &[]);
    let buffers = [w0, w1, w2, (Parameter::write("records", DType::U8), weight_records)];
    let launch = Launch::on_cuda(key, source(make, "weight_records"), &params, buffers);
    plan.launches.push(launch.over(Extent([blocks as u32, chunks.div_ceil(MADE_OF_WEIGHTS) as u32, 1]), Extent::linear(256)));

    let biases = (0..3).map(|index| u32::from(layers.biases()[index].is_some()) << index).sum::<u32>();
    let present = biases | u32::from(operator.gated) << 3;
    let params = BlockProduct { m: m as u64, chunks: chunks as u64, n, ends, present, bias: dtype_code(layers.dtype(AT.b0)), padding: 0 };
    let key = KernelKey::new(format!("quantized_linear_hopper_{format}"), &[layers.dtype(AT.b0)]);
    let sides = [("x", row_records), ("w", weight_records)].map(|(name, records)| (Parameter::read(name, DType::U8), records));
    let buffers = sides.into_iter().chain([b0, b1, b2, residual, y0, y1, y2]);
    let launch = Launch::on_cuda(key, source(multiply, "quantized_linear_hopper"), &params, buffers);
    let launch = launch.with_operations(product_operations(&[m, k, layers.weights().iter().flatten().map(|w| w.shape()[0]).sum()]));
    plan.launches.push(launch.over(Extent::linear(tiles), Extent::linear(THREADS)).with_threadgroup_memory(memory));
    Ok(Some(plan))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Operator, Precision, cuda::gpu};

    /// The kernels of layers of 4,096 elements.
    fn kernels(format: Format, m: usize, n: &[usize], capability: u32) -> Result<Vec<String>> {
        let k = 4096;
        let mut inputs = vec![Some(TensorInfo::new(DType::F32, &[m, k])?)];
        for &n in n {
            inputs.push(Some(TensorInfo::new(DType::U8, &[n, format.packed_row_bytes(k).unwrap_or_default()])?));
        }
        inputs.resize(9, None);
        let operator = QuantizedLinear { precision: Precision::Strict, epsilon: Some(1e-5), ..QuantizedLinear::new(format) };
        let plan = operator.plan(&inputs, &operator.outputs(&inputs)?, &gpu(capability))?;
        Ok(plan.launches.iter().map(|launch| launch.kernel.key.operator.to_string()).collect())
    }

    #[test]
    fn many_rows_of_few_bits_are_records() -> Result<()> {
        let taken = kernels(Format::Q4K, 512, &[4096, 1024, 1024], 90)?;
        assert_eq!(taken[1..], ["integer_rows", "weight_records_Q4_K", "quantized_linear_hopper_Q4_K"]);
        // Few tiles, one for each of a few multiprocessors; sums of 25 bits; another device.
        for (format, m, n, capability) in
            [(Format::Q4K, 64, 28_672, 90), (Format::Q4K, 128, 4096, 90), (Format::Q8_0, 512, 4096, 90), (Format::Q4K, 512, 4096, 120)]
        {
            assert!(kernels(format, m, &[n], capability)?.iter().all(|name| !name.contains("hopper")), "{format} {m} {n}");
        }
        Ok(())
    }
}
