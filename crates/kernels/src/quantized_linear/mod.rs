//! A linear layer whose weight is quantised in blocks: `y = x Wᵀ`.
//!
//! * Memory: the weight's bytes are read once for every 4 rows of x (on a CPU: 8); x is read once and written once as 16-bit integers.
//! * Order: 32 neighbours of a row of x are multiples `q` of `s = max |x| / 32767`, to the nearest integer, ties to even; `s` is zero if that is less than 2^-126.
//!   Of the same 32 elements of a row of the weight, `Σ q w` and `Σ q` over those that share a scale `a` and an offset `b` are exact integers, rounded
//!   once to f32. Sum `l` of 32 takes those of the elements `32 c …`, `c ≡ l (mod 32)`, in ascending order: `fma(a s, Σ q w, ·)`, then, in formats with offsets,
//!   `fma(b s, Σ q, ·)`. The 32 sums are combined by the lanes' xor tree (16, 8, 4, 2, 1). So integers may be summed in any order, by any unit.
//! * Error, beside that of the weight: `max |x| / 65534` of each 32 elements for each of them, and f32's for the sums of `k / 32` products.
//! * An element of x that is NaN or infinite makes its row of y NaN.

mod cpu;
#[cfg(any(test, feature = "conformance"))]
pub(crate) mod oracle;

use elinvar_core::{DType, DeviceProperties, Error, Extent, KernelKey, MetalFile, MetalForm, Parameter, Result};

use crate::{
    Argument, Description, Launch, Operator, Plan, TensorInfo,
    attributes::attributes,
    description::describe,
    launch::product_operations,
    metal::{self, metal_file, params},
    quantized::{self, CHUNK, Format},
    signature::{misshapen, operands},
};

/// Simdgroups of a threadgroup, as in the text.
const SIMDGROUPS: usize = 8;
/// Rows of x that share what is unpacked of the weight.
const ROWS: usize = 4;

const FILES: &[MetalFile] = &[
    metal::TYPES,
    Params::METAL,
    quantized::METAL,
    metal_file!("quantized_linear/frame.metal"),
    metal_file!("quantized_linear/quantized_linear.metal"),
];

attributes! {
    /// A linear layer of a quantised weight. Inputs `x […, k]` and `weight [n, bytes of k elements]`, u8; output `[…, n]` of the type of `x`.
    #[derive(Clone, Copy, Debug)]
    pub struct QuantizedLinear {
        /// The weight's format.
        pub format: Format,
    }
}

params! {
    /// The layer.
    struct Params {
        /// Rows of x and y.
        pub m: u64,
        /// Columns of y.
        pub n: u64,
        /// 32 elements each of a row of x.
        pub chunks: u64,
        /// Bytes of a row of the weight.
        pub row_bytes: u64,
        /// The format's place in [`Format::ALL`].
        pub format: u64,
    }
}

operands! {
    x: read(DType::FLOATS), "[..., k]";
    weight: read(&[DType::U8]), "[n, bytes of k elements]: a row's blocks one after another";
    -> y: write(like x), "[..., n], of the type of x";
}
use operands::{AT, Inputs};

impl QuantizedLinear {
    fn params(&self, Inputs { x, weight }: Inputs) -> Result<Params> {
        let format = self.format;
        let Some((&k, rows)) = x.shape().split_last() else { return Err(misshapen!(x; "at least one axis")) };
        let Some(row_bytes) = format.row_bytes(k) else {
            return Err(misshapen!(x; "a last axis of whole blocks of {format}, {} elements each", format.weights()));
        };
        match **weight.shape() {
            [n, bytes] if bytes == row_bytes => Ok(Params {
                m: rows.iter().product::<usize>() as u64,
                n: n as u64,
                chunks: (k / CHUNK) as u64,
                row_bytes: row_bytes as u64,
                format: format as u64,
            }),
            _ => Err(misshapen!(weight, x; "weight of [n, {row_bytes}], the bytes of {k} elements in {format}")),
        }
    }
}

impl Operator for QuantizedLinear {
    fn name(&self) -> &'static str {
        "quantized_linear"
    }

    fn outputs(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        let inputs = Inputs::new(inputs)?;
        let (params, x) = (self.params(inputs)?, inputs.x);
        let mut dims = x.shape().to_vec();
        if let Some(last) = dims.last_mut() {
            *last = params.n as usize;
        }
        Ok(vec![TensorInfo::new(x.dtype, &dims)?])
    }

    fn plan(&self, inputs: &[Option<TensorInfo>], outputs: &[TensorInfo], device: &DeviceProperties) -> Result<Plan> {
        let inputs = Inputs::new(inputs)?;
        let (params, x, buffers) = (self.params(inputs)?, inputs.x, inputs.parameters(outputs)?);
        let [m, n, chunks] = [params.m, params.n, params.chunks].map(|extent| extent as usize);
        let operations = product_operations(&[m, n, chunks, CHUNK]);
        let key = |part: &str| KernelKey::new(format!("quantized_{part}"), &[x.dtype]);
        if !device.has_simdgroups() {
            let launch = Launch::new(key(&format!("linear_{}", self.format)), cpu::kernel(x.dtype)?, &params, buffers);
            return Ok(Plan::from(launch).with_operations(operations));
        }
        let [x_buffer, weight, y] = buffers;
        let integers = (Parameter::write("q", DType::I16), Argument::Scratch(0));
        let scales = (Parameter::write("scales", DType::F32), Argument::Scratch(1));
        let threadgroup = Extent::linear(32 * SIMDGROUPS as u32);
        let groups = |count: usize| -> Result<u32> {
            u32::try_from(count).map_err(|_| Error::unsupported(format!("{m} rows of {n} columns are too many for one launch")))
        };
        let rows = Launch::on_gpu(key("rows"), MetalForm::new(FILES, "quantized_rows"), &params, [x_buffer, integers, scales])
            .over(Extent::linear(groups((m * chunks).div_ceil(SIMDGROUPS))?), threadgroup);
        let read = [(Parameter::read("q", DType::I16), Argument::Scratch(0)), (Parameter::read("scales", DType::F32), Argument::Scratch(1))];
        let tile = m.clamp(1, ROWS);
        let form = MetalForm::new(FILES, "quantized_linear").with_arguments(self.format.object());
        let sums =
            Launch::on_gpu(key(&format!("linear_{}", self.format)).with("rows", tile as u32), form, &params, read.into_iter().chain([weight, y]))
                .over(Extent([groups(n.div_ceil(SIMDGROUPS))?, groups(m.div_ceil(tile))?, 1]), threadgroup)
                .with_operations(operations);
        Ok(Plan { launches: vec![rows, sums], scratch: vec![2 * CHUNK * m * chunks, 4 * m * chunks] })
    }
}

pub(crate) const DESCRIPTIONS: &[Description] =
    &[describe!("quantized_linear", "a linear layer whose weight is quantised in blocks: x times its transpose", operands, QuantizedLinear)];
