//! Matrix products and linear layers, of the executor's precision.

use std::sync::Arc;

use elinvar_core::{DType, Error, Result};
use elinvar_kernels::{
    dequantize::Dequantize,
    lora::LoraLinear,
    matmul::{MatMul, MatMulAdd, MatVec},
    projection::Projection,
    quantized::Format,
    quantized_linear::QuantizedLinear,
};

use super::operators;
use crate::tensor::Tensor;

operators! {
    /// The matrix product `[…, m, k] · […, k, n]`, leading axes broadcast.
    matmul matmul_into (&self, other: &Tensor) => MatMul { precision: self.executor().precision(), ..MatMul::default() }, Some(other), None;
    errors "Shapes that do not fit, or types other than f32, f16 and bf16.";
    example "let (x, y) = (executor.tensor(&[2, 2], &[1f32, 2.0, 3.0, 4.0])?, executor.tensor(&[2, 1], &[10f32, 1.0])?);";
    ("&y") => "[[12.0],\\n [34.0]]" of "DType::F32, &[2, 1]";

    /// The matrix product `[…, m, k] · […, k, n]`, leading axes broadcast, and `addend`, of its shape and type.
    matmul_add matmul_add_into (&self, other: &Tensor, addend: &Tensor) =>
        MatMulAdd { transpose_a: false, transpose_b: false, alpha: 1.0, precision: self.executor().precision(), output: None }, Some(other), Some(addend);
    errors "Shapes that do not fit, or types other than f32, f16 and bf16.";
    example "let (x, y) = (executor.tensor(&[2, 2], &[1f32, 2.0, 3.0, 4.0])?, executor.tensor(&[2, 1], &[10f32, 1.0])?);\n\
             let addend = executor.tensor(&[2, 1], &[0.5f32, -4.0])?;";
    ("&y", "&addend") => "[[12.5],\\n [30.0]]" of "DType::F32, &[2, 1]";

    /// The linear layer `x Wᵀ + bias`: `x […, k]`, `weight [n, k]` of any floating-point type, `bias [n]`; the result has the type of `x`.
    linear linear_into (&self, weight: &Tensor, bias: Option<&Tensor>) =>
        MatMul { transpose_b: true, precision: self.executor().precision(), ..MatMul::default() }, Some(weight), bias;
    errors "Shapes that do not fit, or types other than f32, f16 and bf16.";
    example "let (x, weight) = (executor.tensor(&[1, 2], &[1f32, 2.0])?, executor.tensor(&[2, 2], &[1f32, 0.0, 10.0, 1.0])?);\n\
             let bias = executor.tensor(&[2], &[0f32, 5.0])?;";
    ("&weight", "Some(&bias)") => "[[ 1.0, 17.0]]";

    /// This matrix `[…, n, k]` times `vector […, k]`, always strict, leading axes broadcast; the result has the vector's type.
    matvec matvec_into (&self, vector: &Tensor) => MatVec, Some(vector), None;
    errors "Shapes that do not fit, or types other than f32, f16 and bf16.";
    example "let (x, vector) = (executor.tensor(&[2, 2], &[1f32, 2.0, 3.0, 4.0])?, executor.tensor(&[2], &[10f32, 1.0])?);";
    ("&vector") => "[12.0, 34.0]" of "DType::F32, &[2]";

    /// The LoRA linear layer `x Wᵀ + scale · (x Aᵀ) Bᵀ`: `x […, k]`, `weight [n, k]`, `a [r, k]`, `b [n, r]`.
    lora_linear lora_linear_into (&self, weight: &Tensor, a: &Tensor, b: &Tensor, scale: f32) =>
        LoraLinear { scale, precision: self.executor().precision() }, Some(weight), Some(a), Some(b), None;
    errors "Shapes that do not fit, or types other than f32, f16 and bf16.";
    example "let (x, weight) = (executor.tensor(&[1, 2], &[1f32, 2.0])?, executor.tensor(&[1, 2], &[1f32, 1.0])?);\n\
             let (a, b) = (executor.tensor(&[1, 2], &[1f32, 0.0])?, executor.tensor(&[1, 1], &[4f32])?);";
    ("&weight", "&a", "&b", "0.5") => "[[5.0]]" of "DType::F32, &[1, 1]";

    /// The linear layer `x Wᵀ + bias` of a weight that is quantised in blocks: `x […, k]`, `weight [n, packed bytes of k elements]`, u8, rows
    /// [packed](Format::pack) from a file's blocks, `bias [n]`; the result has the type of `x`. See [`elinvar_kernels::quantized_linear`].
    quantized_linear quantized_linear_into (&self, weight: &Tensor, bias: Option<&Tensor>, format: Format) =>
        QuantizedLinear { precision: self.executor().precision(), ..QuantizedLinear::new(format) }, Some(weight), None, None, bias;
    errors "Shapes that do not fit, or types other than f32, f16 and bf16.";
    example "use elinvar::kernels::quantized::Format;\n\
             // One block: the scale 0.5 as an f16, and 32 times the number 4.\n\
             let block: Vec<u8> = [0x00, 0x38].into_iter().chain([4; 32]).collect();\n\
             let mut row = vec![0; Format::Q8_0.packed_row_bytes(32).unwrap_or(0)];\n\
             Format::Q8_0.pack(&block, &mut row)?;\n\
             let (x, weight) = (executor.ones(DType::F32, &[1, 32])?, executor.tensor(&[1, row.len()], &row)?);";
    ("&weight", "None", "Format::Q8_0") => "[[64.0]]" of "DType::F32, &[1, 1]";

    /// Packed rows of weights in `format`, u8 `[rows, packed bytes of width elements]`, as f32 `[rows, width]`.
    dequantize dequantize_into (&self, format: Format, width: usize) => Dequantize { format, width: width as u64, dtype: DType::F32 };
    errors "Another type or shape.";
    example "use elinvar::kernels::quantized::Format;\n\
             let block: Vec<u8> = [0x00, 0x38].into_iter().chain([4; 32]).collect();\n\
             let mut row = vec![0; Format::Q8_0.packed_row_bytes(32).unwrap_or(0)];\n\
             Format::Q8_0.pack(&block, &mut row)?;\n\
             let x = executor.tensor(&[1, row.len()], &row)?;";
    ("Format::Q8_0", "32") => "[[2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0]]" of "DType::F32, &[1, 32]";
}

impl Tensor {
    /// Linear layers of this input, always strict, in one launch: each of `layers` is a weight `[n, k]` and a bias `[n]`, one to three of them; see
    /// [`Projection`] for the normalisation before (whose weight is `norm`), the gate and the `residual` after, and for what the types must be.
    ///
    /// ```
    /// use elinvar::{Executor, kernels::projection::Projection};
    ///
    /// let executor = Executor::new_auto()?;
    /// let (x, weight) = (executor.tensor(&[1, 2], &[1f32, 2.0])?, executor.tensor(&[1, 2], &[10f32, 1.0])?);
    /// let outputs = x.project(&Projection::default(), None, &[(&weight, None), (&weight, None)], None)?;
    /// assert_eq!((outputs.len(), outputs[1].to_vec::<f32>()?), (2, vec![12.0]));
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// Shapes or types that do not fit, more than three layers, or out of memory.
    pub fn project(
        &self,
        operator: &Projection,
        norm: Option<&Tensor>,
        layers: &[(&Tensor, Option<&Tensor>)],
        residual: Option<&Tensor>,
    ) -> Result<Vec<Tensor>> {
        if layers.len() > 3 {
            return Err(Error::invalid_argument(format!("{} layers of one input: at most 3 are projected at once", layers.len())));
        }
        let weight = |index: usize| layers.get(index).map(|(weight, _)| *weight);
        let bias = |index: usize| layers.get(index).and_then(|(_, bias)| *bias);
        self.apply_all(Arc::new(*operator), &[norm, weight(0), weight(1), weight(2), bias(0), bias(1), bias(2), residual])
    }
}
