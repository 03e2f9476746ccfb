//! Softmax, norms and gates.

use std::sync::Arc;

use elinvar_core::{DType, Error, Result};
use elinvar_kernels::{
    binary::BinaryOp,
    cross_entropy::CrossEntropy,
    layer_norm::LayerNorm,
    rms_norm::{AddRmsNorm, RmsNorm},
    softmax::Softmax,
    swiglu::SwiGlu,
    unary::WithScalar,
};

use super::{operators, pair, recorded};
use crate::tensor::Tensor;

operators! {
    /// Softmax along an axis.
    softmax softmax_into softmax_ (&self, axis: isize) => Softmax { axis, log: false };
    errors "Not a floating-point tensor, or an axis outside its shape.";
    example "let x = executor.tensor(&[2, 2], &[1f32, 1.0, 0.0, 200.0])?;"; ("-1") => "[[0.5, 0.5],\\n [0.0, 1.0]]";

    /// The logarithm of the softmax along an axis.
    log_softmax log_softmax_into log_softmax_ (&self, axis: isize) => Softmax { axis, log: true };
    errors "Not a floating-point tensor, or an axis outside its shape.";
    example "let x = executor.tensor(&[2], &[200f32, 0.0])?;"; ("-1") => "[   0.0, -200.0]";

    /// The cross-entropy of each row of logits `[…, classes]` with its class in `targets […]` (i32, i64 or u32), as f32 `[…]`: minus the logarithm of its
    /// softmax there. Rows whose target is `ignore_index` have none. [`CrossEntropy::reduction`] makes one loss of them.
    cross_entropy cross_entropy_into (&self, targets: &Tensor, ignore_index: Option<isize>) => CrossEntropy { ignore_index, ..CrossEntropy::default() }, Some(targets);
    errors "Not a floating-point tensor, targets of another shape or type. A target that is no class is reported when something is read.";
    example "let (x, targets) = (executor.tensor(&[2, 2], &[0f32, 0.0, 200.0, 0.0])?, executor.tensor(&[2], &[1i32, 0])?);";
    ("&targets", "None") => "[0.6931472,       0.0]" of "DType::F32, &[2]";

    /// RMS normalisation of the last axis, times `weight`.
    rms_norm rms_norm_into rms_norm_ (&self, weight: Option<&Tensor>, epsilon: f32) => RmsNorm { epsilon, ..RmsNorm::default() }, weight;
    errors "Not a floating-point tensor, or a weight of another shape than the last axis.";
    example "let (x, weight) = (executor.tensor(&[2], &[-4f32, 4.0])?, executor.tensor(&[2], &[1f32, 3.0])?);";
    ("Some(&weight)", "0.0") => "[-1.0,  3.0]";

    /// Layer normalisation of the last axis, times `weight`, plus `bias`.
    layer_norm layer_norm_into layer_norm_ (&self, weight: Option<&Tensor>, bias: Option<&Tensor>, epsilon: f32) =>
        LayerNorm { axis: -1, epsilon, statistics: false }, weight, bias;
    errors "Not a floating-point tensor, or a weight or bias of another shape than the last axis.";
    example "let (x, bias) = (executor.tensor(&[2], &[3f32, 5.0])?, executor.tensor(&[2], &[0f32, 1.0])?);";
    ("None", "Some(&bias)", "0.0") => "[-1.0,  2.0]";

    /// `silu(self) · up`: the gate of SwiGLU.
    swiglu swiglu_into swiglu_ (&self, up: &Tensor) => SwiGlu { alpha: 1.0 }, Some(up);
    errors "Shapes or types that differ.";
    example "let (x, up) = (executor.tensor(&[2], &[0f32, 50.0])?, executor.tensor(&[2], &[3f32, 2.0])?);"; ("&up") => "[  0.0, 100.0]";
}

impl Tensor {
    /// Residual addition, then RMS normalisation of the last axis times `weight`: the sum, and the normalised sum.
    ///
    /// ```
    /// # let executor = elinvar::Executor::new_auto()?;
    /// let (x, residual) = (executor.tensor(&[2], &[-1f32, 3.0])?, executor.tensor(&[2], &[-3f32, 1.0])?);
    /// let (sum, normalised) = x.add_rms_norm(&residual, None, 0.0)?;
    /// assert_eq!((sum.to_vec::<f32>()?, normalised.to_vec::<f32>()?), (vec![-4.0, 4.0], vec![-1.0, 1.0]));
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// Shapes or types that differ.
    pub fn add_rms_norm(&self, residual: &Tensor, weight: Option<&Tensor>, epsilon: f32) -> Result<(Tensor, Tensor)> {
        pair(self.apply_all(Arc::new(AddRmsNorm { axis: -1, epsilon }), &[Some(residual), weight])?)
    }

    /// Group normalisation of `[batch, channels, …]`: of each sample, the elements of each of `groups` groups of consecutive channels become
    /// `(x − mean) / sqrt(variance + epsilon)`, then times `weight [channels]`, plus `bias [channels]`. Computed in f32, rounded once.
    /// See Wu and He, *Group Normalization*, 2018; ONNX `GroupNormalization`; `torch.group_norm`.
    ///
    /// ```
    /// # let executor = elinvar::Executor::new_auto()?;
    /// let (x, bias) = (executor.tensor(&[1, 2, 2], &[1f32, 5.0, 5.0, 1.0])?, executor.tensor(&[2], &[0f32, 1.0])?);
    /// assert_eq!(x.group_norm(1, None, Some(&bias), 0.0)?.to_vec::<f32>()?, [-1.0, 1.0, 2.0, 0.0]);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// Not a floating-point tensor, fewer than two axes, channels that do not divide into the groups, a weight or bias of another shape.
    pub fn group_norm(&self, groups: usize, weight: Option<&Tensor>, bias: Option<&Tensor>, epsilon: f32) -> Result<Tensor> {
        let [batch, channels, ref rest @ ..] = self.shape()[..] else {
            return Err(Error::invalid_argument(format!("group_norm: x has shape {}: expected [batch, channels, …]", self.shape())));
        };
        if groups == 0 || channels % groups != 0 {
            return Err(Error::invalid_argument(format!("group_norm: {channels} channels do not divide into {groups} groups")));
        }
        let on = recorded([Some(self), weight, bias].into_iter().flatten());
        let of_channels = |name: &str, x: &Tensor| -> Result<Tensor> {
            if x.shape()[..] != [channels] {
                return Err(Error::invalid_argument(format!(
                    "group_norm: {name} has shape {}, x has shape {}: expected [{channels}]",
                    x.shape(),
                    self.shape()
                )));
            }
            on(x)?.cast(DType::F32)?.reshape(&[&[channels][..], &vec![1; rest.len()]].concat())
        };
        let weight = weight.map(|weight| of_channels("weight", weight)).transpose()?;
        let bias = bias.map(|bias| of_channels("bias", bias)).transpose()?;
        let rows = on(self)?.cast(DType::F32)?.reshape(&[batch, groups, channels / groups * rest.iter().product::<usize>()])?;
        let x = rows.layer_norm(None, None, epsilon)?.reshape(self.shape())?;
        let x = match (&weight, &bias) {
            (Some(weight), Some(bias)) => x.fma(weight, bias)?,
            (Some(weight), None) => x.mul(weight)?,
            (None, Some(bias)) => x.add(bias)?,
            (None, None) => x,
        };
        x.cast(self.dtype())
    }

    /// Instance normalisation of `[batch, channels, …]`: [`Tensor::group_norm`] with each channel a group of its own.
    /// See Ulyanov, Vedaldi and Lempitsky, *Instance Normalization*, 2016; ONNX `InstanceNormalization`; `torch.instance_norm`.
    ///
    /// ```
    /// # let executor = elinvar::Executor::new_auto()?;
    /// let x = executor.tensor(&[1, 2, 2], &[1f32, 5.0, 30.0, 10.0])?;
    /// assert_eq!(x.instance_norm(None, None, 0.0)?.to_vec::<f32>()?, [-1.0, 1.0, 1.0, -1.0]);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::group_norm`].
    pub fn instance_norm(&self, weight: Option<&Tensor>, bias: Option<&Tensor>, epsilon: f32) -> Result<Tensor> {
        self.group_norm(self.shape().get(1).map_or(1, |&channels| channels.max(1)), weight, bias, epsilon)
    }

    /// The elements divided by their norm along `axis`, or by `epsilon` where that is larger: the sum of magnitudes for a `p` of 1, the Euclidean norm for
    /// 2. Computed in f32, rounded once. See ONNX `LpNormalization`; `torch.nn.functional.normalize`.
    ///
    /// ```
    /// # let executor = elinvar::Executor::new_auto()?;
    /// let x = executor.tensor(&[2, 2], &[3f32, 4.0, 0.0, 0.0])?;
    /// assert_eq!(x.normalize(2, -1, 1e-12)?.to_vec::<f32>()?, [0.6, 0.8, 0.0, 0.0]);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// Not a floating-point tensor, an axis outside its shape, or another `p`.
    pub fn normalize(&self, p: u32, axis: isize, epsilon: f32) -> Result<Tensor> {
        let x = self.cast(DType::F32)?;
        let norm = match p {
            1 => x.abs()?.sum(&[axis], true)?,
            2 => x.norm(&[axis], true)?,
            _ => return Err(Error::unsupported(format!("normalize by the norm of p = {p}: 1 and 2 are"))),
        };
        x.div(&norm.apply(WithScalar { op: BinaryOp::Max, scalar: epsilon }, &[])?)?.cast(self.dtype())
    }
}
