//! Matrix products: `matmul` with broadcast batches, transposes, scale and bias, `matmul_add`, and `matvec`.
//!
//! `y = round(alpha · Σ a·b + bias)`: f32 sums of widened elements, each further step in f32, one rounding to the output's type.
//!
//! * Memory: `b` is read once while there are few rows of `a` (decoding); else both operands are packed once and tiles of `y` are summed from
//!   the caches.
//! * Order, strict: with an operand in f16 or bf16 each element is the product that [`crate::dot`] defines, of exact integers. Of f32 it is the strict dot
//!   product of [`crate::order`]: 256 partial sums from +0.0, sum `j` folding the elements
//!   `k ≡ j (mod 256)` in ascending order by fma, then slots pairwise, then lanes by the xor tree. An element depends on its row and its
//!   column alone: a row has the same bits by itself and in a batch.
//! * Error, strict, of f32, before the rounding of the output: `(⌈k / 256⌉ + 8) · 2^-24 · Σ|a·b|`, and two roundings more for scale and bias.
//! * Fast: f32 sums in an order that may depend on the device. Operands keep their type, but for one case: where a CUDA device has cuBLASLt, an f32
//!   operand beside one in f16 or bf16 is rounded to that type.

pub(crate) mod cpu;
mod geometry;
mod gradient;
mod host;
mod launch;
mod library;
#[cfg(any(test, feature = "conformance"))]
pub(crate) mod oracle;
mod records;
mod sum;

use std::sync::Arc;

use elinvar_core::{DType, DeviceProperties, Result};

use crate::{
    Argument, Definition, Description, Operator, Plan, Precision, Rounding, TensorInfo,
    attributes::attributes,
    chain,
    description::describe,
    signature::{mismatch, operands, shape_of},
};
pub(crate) use geometry::Geometry;
pub(crate) use host::{ABSENT, dtype_code, matrix, values, values_mut};
pub(crate) use launch::{DOT, FAST, FEW_FOR_LIBRARY, LINES, PLACE, Product, SHARED_ROW, STRICT, Sums, Tiling, check_extents, kept_row_bytes};
pub(crate) use library::{Addend, Operands};
pub use sum::MatMulAdd;

attributes! {
    /// A matrix product. Inputs `a […, m, k]`, `b […, k, n]` and, optionally, `bias [n]`; output `[…, m, n]`.
    ///
    /// Leading axes broadcast. An operand of one axis is a row (as `a`) or a column (as `b`), and its extent of one is left out of the output, as in
    /// NumPy's `matmul`. The operands may have different types and any strides.
    #[derive(Clone, Copy, Debug)]
    pub struct MatMul {
        /// `a` is `[…, k, m]`.
        pub transpose_a: bool = false,
        /// `b` is `[…, n, k]`: the weight of a linear layer.
        pub transpose_b: bool = false,
        /// Scales the product, not the bias.
        pub alpha: f32 = 1,
        /// How sums may be ordered: strict (the same bits on every device), invariant (the same bits of a row on one device) or fast (any order).
        pub precision: Precision = strict,
        /// Type of the output; that of `a` if absent.
        pub output: Option<DType>,
    }
}

impl Default for MatMul {
    fn default() -> Self {
        Self { transpose_a: false, transpose_b: false, alpha: 1.0, precision: Precision::Strict, output: None }
    }
}

/// A matrix times a vector, always strict. Inputs `matrix […, n, k]`, `vector […, k]` and, optionally, `bias [n]`; output `[…, n]` of the
/// vector's type.
#[derive(Clone, Copy, Debug, Default)]
pub struct MatVec;

const BIAS: &str = "[n]; none where absent";

operands! {
    a: read(DType::FLOATS), "[..., m, k] (or [k])";
    b: read(DType::FLOATS), "[..., k, n] (or [k]); its type may differ from that of a";
    bias: read(DType::FLOATS) optional, BIAS;
    -> y: write(DType::FLOATS), "[..., m, n]";
}

operands! {
    mod vector_operands {
        matrix: read(DType::FLOATS), "[..., n, k]";
        vector: read(DType::FLOATS), "[..., k]; its type may differ from that of the matrix";
        bias: read(DType::FLOATS) optional, BIAS;
        -> y: write(like vector), "[..., n], of the vector's type";
    }
}

fn check(bias: Option<TensorInfo>, columns: usize, (name, matrix): (&str, TensorInfo)) -> Result<()> {
    match bias {
        Some(bias) if **bias.shape() != [columns] => Err(mismatch(&[shape_of("bias", &bias), shape_of(name, &matrix)], format_args!("[{columns}]"))),
        _ => Ok(()),
    }
}

impl MatMul {
    fn geometry(&self, a: TensorInfo, b: TensorInfo) -> Result<(Geometry, Vec<usize>)> {
        let (geometry, dims) = Geometry::new(a, b, [self.transpose_a, self.transpose_b])?;
        Ok((geometry.scaled(self.alpha).with_precision(self.precision), dims))
    }

    /// The plan of an invariant product whose sums are chains, where the device has it: that depends on the types and the weight, never on the rows.
    fn by_chains(&self, inputs: &operands::Inputs, outputs: &[TensorInfo], device: &DeviceProperties) -> Result<Option<Plan>> {
        let &operands::Inputs { a, b, bias } = inputs;
        let is_layer = self.transpose_b && !self.transpose_a && self.alpha == 1.0 && b.shape().rank() == 2;
        let are_f32 = [a.dtype, outputs[0].dtype] == [DType::F32; 2];
        if self.precision != Precision::Invariant || !is_layer || !are_f32 || !chain::takes(b, device) {
            return Ok(None);
        }
        let (m, k) = a.shape().split_last().map_or((1, 1), |(&k, rows)| (rows.iter().product(), k));
        let product = chain::Layers {
            extents: [m, k],
            n: [b.shape()[0], 0, 0],
            dtypes: [b.dtype, bias.map_or(DType::F32, |bias| bias.dtype)],
            format: None,
            biases: [bias.is_some(), false, false],
            gated: false,
            rounded: false,
            norm: None,
        };
        let [x, w, bias, y] = inputs.parameters(outputs)?.map(|(_, argument)| argument);
        let none = Argument::Absent;
        product.plan((a, x), [w, none, none, bias, none, none, none, y, none, none], device)
    }

    /// The operands for the vendor's library, where that gains.
    fn for_library(&self, inputs: &operands::Inputs) -> Result<Option<Operands>> {
        let &operands::Inputs { a, b, bias } = inputs;
        let geometry = self.geometry(a, b)?.0;
        let (gains, output) = (launch::gains_by_library(&geometry), self.output.unwrap_or(a.dtype));
        Ok(gains.then(|| Operands { inputs: [a, b], bias: bias.map(|bias| bias.dtype), output, addend: Addend::Nothing, geometry }))
    }
}

impl Operator for MatMul {
    fn name(&self) -> &'static str {
        "matmul"
    }

    fn outputs(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        let operands::Inputs { a, b, bias } = operands::Inputs::new(inputs)?;
        let (geometry, dims) = self.geometry(a, b)?;
        let output = self.output.unwrap_or(a.dtype);
        operands::OUTPUTS[0].check(output)?;
        check(bias, geometry.extents()[2], ("b", b))?;
        Ok(vec![TensorInfo::new(output, &dims)?])
    }

    fn plan(&self, inputs: &[Option<TensorInfo>], outputs: &[TensorInfo], device: &DeviceProperties) -> Result<Plan> {
        let inputs = operands::Inputs::new(inputs)?;
        if let Some(plan) = self.by_chains(&inputs, outputs, device)? {
            return Ok(plan);
        }
        if let Some(operands) = self.for_library(&inputs)?
            && let Some(plan) = operands.plan(device, |[a, b]| Ok(self.geometry(a, b)?.0))?
        {
            return Ok(plan);
        }
        let arguments = inputs.parameters(outputs)?.map(|(_, argument)| argument);
        let (geometry, bias, output) = (self.geometry(inputs.a, inputs.b)?.0, inputs.bias.map(|b| b.dtype), outputs[0].dtype);
        let product = Product { geometry, bias, output };
        if let Some(plan) = product.by_records(arguments, device) {
            return Ok(plan);
        }
        Ok(product.launch("matmul", arguments, device)?.into())
    }

    fn precision(&self) -> Precision {
        self.precision
    }

    fn rounds(&self, inputs: &[Option<TensorInfo>], device: &DeviceProperties) -> Result<Option<Rounding>> {
        let inputs = operands::Inputs::new(inputs)?;
        let Some(operands) = self.for_library(&inputs)? else { return Ok(None) };
        let rounded = operands.rounds(device, |[a, b]| Ok(self.geometry(a, b)?.0))?;
        let operator = Self { output: Some(operands.output), ..*self };
        Ok(rounded.map(|(input, to)| Rounding { input, to, operator: Arc::new(operator) }))
    }

    fn strict(&self) -> Option<Arc<dyn Operator>> {
        Some(Arc::new(Self { precision: Precision::Strict, ..*self }))
    }

    fn accepts_strides(&self, index: usize) -> bool {
        index < 2
    }

    fn gradient(&self, inputs: &[Option<TensorInfo>], upstream: &[Option<TensorInfo>], wanted: &[bool]) -> Result<Definition> {
        gradient::of_product(self, inputs, upstream, wanted)
    }
}

impl Operator for MatVec {
    fn name(&self) -> &'static str {
        "matvec"
    }

    fn outputs(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        let vector_operands::Inputs { matrix, vector, bias } = vector_operands::Inputs::new(inputs)?;
        let (geometry, dims) = Geometry::of_vector(vector, matrix)?;
        check(bias, geometry.extents()[2], ("matrix", matrix))?;
        Ok(vec![TensorInfo::new(vector.dtype, &dims)?])
    }

    fn plan(&self, inputs: &[Option<TensorInfo>], outputs: &[TensorInfo], device: &DeviceProperties) -> Result<Plan> {
        let inputs = vector_operands::Inputs::new(inputs)?;
        let [matrix, vector, bias, y] = inputs.parameters(outputs)?.map(|(_, argument)| argument);
        let (geometry, _) = Geometry::of_vector(inputs.vector, inputs.matrix)?;
        let product = Product { geometry, bias: inputs.bias.map(|b| b.dtype), output: outputs[0].dtype };
        Ok(product.launch("matvec", [vector, matrix, bias, y], device)?.into())
    }

    fn accepts_strides(&self, index: usize) -> bool {
        index < 2
    }

    fn gradient(&self, inputs: &[Option<TensorInfo>], upstream: &[Option<TensorInfo>], wanted: &[bool]) -> Result<Definition> {
        gradient::of_vector(self, inputs, upstream, wanted)
    }
}

pub(crate) const DESCRIPTIONS: &[Description] = &[
    describe!("matmul", "alpha a b + bias, batched, with broadcasting of leading axes", operands, MatMul),
    sum::DESCRIPTION,
    describe!("matvec", "matrix times vector plus bias, strict, with broadcasting of leading axes", vector_operands, = MatVec),
];
