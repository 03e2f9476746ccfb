//! Matrix products: `matmul` with broadcast batches, transposes, scale and bias, and `matvec`.
//!
//! `y = round(alpha · Σ a·b + bias)`: f32 sums of widened elements, each further step in f32, one rounding to the output's type.
//!
//! * Memory: `b` is read once while there are few rows of `a` (decoding); else both operands are packed once and tiles of `y` are summed from
//!   the caches.
//! * Order, strict: each element is the strict dot product of [`crate::order`]: 256 partial sums from +0.0, sum `j` folding the elements
//!   `k ≡ j (mod 256)` in ascending order by fma, then slots pairwise, then lanes by the xor tree. An element depends on its row and its
//!   column alone: a row has the same bits by itself and in a batch.
//! * Error, strict, before the rounding of the output: `(⌈k / 256⌉ + 8) · 2^-24 · Σ|a·b|`, and two roundings more for scale and bias.
//! * Fast: f32 sums in an order that may depend on the device. Operands keep their type, but for one case: where a CUDA device has cuBLASLt, an f32
//!   `a` with an f16 or bf16 `b` is rounded to that type.

pub(crate) mod cpu;
mod geometry;
mod host;
mod launch;
mod library;
#[cfg(any(test, feature = "conformance"))]
pub(crate) mod oracle;

use std::sync::Arc;

use elinvar_core::{DType, DeviceProperties, Error, Result};

use crate::{Argument, AttributeInfo, AttributeKind, Attributes, Description, Operator, Plan, Port, Precision, TensorInfo, optional, required};
pub(crate) use geometry::Geometry;
pub(crate) use host::{ABSENT, dtype_code, matrix, values};
pub(crate) use launch::{DOT, FAST, LINES, PLACE, Product, SHARED_ROW, STRICT, Tiling, check_extents, shared_row_bytes};
pub(crate) use library::Operands;

/// A matrix product. Inputs `a […, m, k]`, `b […, k, n]` and, optionally, `bias [n]`; output `[…, m, n]`.
///
/// Leading axes broadcast. An operand of one axis is a row (as `a`) or a column (as `b`), and its extent of one is left out of the output, as in
/// NumPy's `matmul`. The operands may have different types and any strides.
#[derive(Clone, Copy, Debug)]
pub struct MatMul {
    /// `a` is `[…, k, m]`.
    pub transpose_a: bool,
    /// `b` is `[…, n, k]`: the weight of a linear layer.
    pub transpose_b: bool,
    /// Scales the product, not the bias.
    pub alpha: f32,
    /// How sums may be ordered.
    pub precision: Precision,
    /// Type of the output; that of `a` if absent.
    pub output: Option<DType>,
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

fn check(inputs: [TensorInfo; 2], bias: Option<TensorInfo>, output: DType, columns: usize) -> Result<()> {
    for dtype in inputs.into_iter().chain(bias).map(|i| i.dtype).chain([output]) {
        if !dtype.is_float() {
            return Err(Error::invalid_argument(format!("matrix product of {dtype}: f32, f16 or bf16 expected")));
        }
    }
    match bias {
        Some(b) if **b.shape() != [columns] => Err(Error::invalid_argument(format!("bias has shape {}: [{columns}] expected", b.shape()))),
        _ => Ok(()),
    }
}

impl MatMul {
    fn geometry(&self, inputs: &[Option<TensorInfo>]) -> Result<(Geometry, Vec<usize>)> {
        let (a, b) = (required(inputs, 0, "a")?, required(inputs, 1, "b")?);
        let (geometry, dims) = Geometry::new(a, b, [self.transpose_a, self.transpose_b])?;
        Ok((geometry.scaled(self.alpha).with_precision(self.precision), dims))
    }
}

impl Operator for MatMul {
    fn infer(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        let (a, b) = (required(inputs, 0, "a")?, required(inputs, 1, "b")?);
        let (geometry, dims) = self.geometry(inputs)?;
        let output = self.output.unwrap_or(a.dtype);
        check([a, b], optional(inputs, 2), output, geometry.extents()[2])?;
        Ok(vec![TensorInfo::new(output, &dims)?])
    }

    fn plan(&self, inputs: &[Option<TensorInfo>], outputs: &[TensorInfo], device: &DeviceProperties) -> Result<Plan> {
        let output = outputs.first().map_or(DType::F32, |o| o.dtype);
        let arguments = [Argument::Input(0), Argument::Input(1), Argument::Input(2), Argument::Output(0)];
        let (geometry, bias) = (self.geometry(inputs)?.0, optional(inputs, 2).map(|b| b.dtype));
        if launch::is_large(&geometry) {
            let (a, b) = (required(inputs, 0, "a")?, required(inputs, 1, "b")?);
            let operands = Operands { inputs: [a, b], bias, output, adds: false, geometry };
            let with_a = |a| Ok(self.geometry(&[Some(a), Some(b)])?.0);
            if let Some(plan) = operands.plan(device, with_a)? {
                return Ok(plan);
            }
        }
        let product = Product { geometry, bias, output };
        Ok(product.launch("matmul", arguments, device)?.into())
    }

    fn precision(&self) -> Precision {
        self.precision
    }

    fn strict(&self) -> Option<Arc<dyn Operator>> {
        Some(Arc::new(Self { precision: Precision::Strict, ..*self }))
    }

    fn accepts_strides(&self, index: usize) -> bool {
        index < 2
    }
}

impl MatVec {
    fn geometry(inputs: &[Option<TensorInfo>]) -> Result<(Geometry, Vec<usize>)> {
        let (matrix, vector) = (required(inputs, 0, "matrix")?, required(inputs, 1, "vector")?);
        Geometry::of_vector(vector, matrix)
    }
}

impl Operator for MatVec {
    fn infer(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        let (matrix, vector) = (required(inputs, 0, "matrix")?, required(inputs, 1, "vector")?);
        let (geometry, dims) = Self::geometry(inputs)?;
        check([matrix, vector], optional(inputs, 2), vector.dtype, geometry.extents()[2])?;
        Ok(vec![TensorInfo::new(vector.dtype, &dims)?])
    }

    fn plan(&self, inputs: &[Option<TensorInfo>], outputs: &[TensorInfo], device: &DeviceProperties) -> Result<Plan> {
        let output = outputs.first().map_or(DType::F32, |o| o.dtype);
        let arguments = [Argument::Input(1), Argument::Input(0), Argument::Input(2), Argument::Output(0)];
        let product = Product { geometry: Self::geometry(inputs)?.0, bias: optional(inputs, 2).map(|b| b.dtype), output };
        Ok(product.launch("matvec", arguments, device)?.into())
    }

    fn accepts_strides(&self, index: usize) -> bool {
        index < 2
    }
}

const BIAS: Port = Port::new("bias", DType::FLOATS, "[n]; none where absent").or_absent();

const ATTRIBUTES: &[AttributeInfo] = &[
    AttributeInfo { name: "transpose_a", kind: AttributeKind::Bool, default: Some("false"), doc: "a is [..., k, m]" },
    AttributeInfo { name: "transpose_b", kind: AttributeKind::Bool, default: Some("false"), doc: "b is [..., n, k]: the weight of a linear layer" },
    AttributeInfo { name: "alpha", kind: AttributeKind::Float, default: Some("1"), doc: "scales the product, not the bias" },
    PRECISION,
    AttributeInfo { name: "output", kind: AttributeKind::Text, default: Some(""), doc: "type of y: f32, f16 or bf16; that of a if not given" },
];

/// The attribute that chooses the order of sums.
pub(crate) const PRECISION: AttributeInfo = AttributeInfo {
    name: "precision",
    kind: AttributeKind::Text,
    default: Some("strict"),
    doc: "strict (the same bits on every device) or fast (sums in any order)",
};

fn matmul(attributes: &Attributes) -> Result<Box<dyn Operator>> {
    Ok(Box::new(MatMul {
        transpose_a: attributes.flag("transpose_a")?,
        transpose_b: attributes.flag("transpose_b")?,
        alpha: attributes.get("alpha")?,
        precision: attributes.get("precision")?,
        output: attributes.optional("output")?,
    }))
}

pub(crate) const DESCRIPTIONS: &[Description] = &[
    Description {
        name: "matmul",
        summary: "alpha a b + bias, batched, with broadcasting of leading axes",
        inputs: &[
            Port::new("a", DType::FLOATS, "[..., m, k] (or [k])"),
            Port::new("b", DType::FLOATS, "[..., k, n] (or [k]); its type may differ from that of a"),
            BIAS,
        ],
        outputs: &[Port::new("y", DType::FLOATS, "[..., m, n]")],
        attributes: ATTRIBUTES,
        build: matmul,
    },
    Description {
        name: "matvec",
        summary: "matrix times vector plus bias, strict, with broadcasting of leading axes",
        inputs: &[
            Port::new("matrix", DType::FLOATS, "[..., n, k]"),
            Port::new("vector", DType::FLOATS, "[..., k]; its type may differ from that of the matrix"),
            BIAS,
        ],
        outputs: &[Port::new("y", DType::FLOATS, "[..., n], of the vector's type")],
        attributes: &[],
        build: |_| Ok(Box::new(MatVec)),
    },
];
