//! The operators, on a device that the caller holds.

use std::sync::{Arc, OnceLock};

use candle_core::{DType, Device, Result, Tensor, bail, shape::Dim};
use elinvar::{
    BackendType, Executor, Operator, Precision, Turns,
    kernels::{
        attention::{Attention, Scoring},
        cross_entropy::{CrossEntropy, LossReduction},
        layer_norm::LayerNorm,
        lora::LoraLinear,
        rms_norm::RmsNorm,
        rope::RotaryEmbedding,
        softmax::Softmax,
        swiglu::SwiGlu,
    },
};

use crate::{
    apply::{Input, apply},
    cuda, fallback, unfused,
};

/// Elinvar's operators for Candle's tensors, on threads of their own. Clones share them.
///
/// Tensors on the CPU are read where they lie, whatever their strides, and with the feature `cuda` so are those on NVIDIA's GPUs, in the order of Candle's
/// stream. Tensors on other devices go through Candle's own operators, which [`fallbacks`](crate::fallbacks) counts.
#[derive(Clone)]
pub struct Ops {
    turns: Turns,
}

impl Ops {
    /// The precision of products and attention unless another is asked for: fast, for gradients pass these operators, and whatever else a model multiplies is
    /// Candle's.
    pub const DEFAULT_PRECISION: Precision = Precision::Fast;

    /// On the CPU, with a thread for each core.
    ///
    /// # Errors
    /// The operating system rejects the threads.
    pub fn new() -> Result<Self> {
        let executor = Executor::new_with_backend(BackendType::Cpu).map_err(candle_core::Error::wrap)?;
        Ok(Self::on(executor.with_precision(Self::DEFAULT_PRECISION)))
    }

    /// On an executor of the CPU that nothing else uses, in its precision: a kernel's error is reported to whatever reads next.
    ///
    /// # Errors
    /// An executor of another device.
    pub fn with_executor(executor: Executor) -> Result<Self> {
        if executor.properties().kind != elinvar::DeviceKind::Cpu {
            bail!("an executor of {} for Candle's tensors: one of the CPU is expected", executor.properties().kind);
        }
        Ok(Self::on(executor))
    }

    fn on(executor: Executor) -> Self {
        Self { turns: Turns::new(executor) }
    }

    /// The one that functions and modules without one use: it is made when it is first asked for, and lasts as long as the process.
    ///
    /// # Errors
    /// As [`Ops::new`].
    pub fn shared() -> Result<&'static Self> {
        static SHARED: OnceLock<Ops> = OnceLock::new();
        match SHARED.get() {
            Some(shared) => Ok(shared),
            None => {
                let made = Self::new()?;
                Ok(SHARED.get_or_init(|| made))
            }
        }
    }

    /// The same threads with a precision for products and attention.
    pub fn with_precision(&self, precision: Precision) -> Self {
        Self { turns: self.turns.with(self.turns.executor().with_precision(precision)) }
    }

    /// Applies the operator, or what stands for it on other devices.
    fn run(&self, operator: impl Operator, inputs: Vec<Option<Input>>, unfused: impl FnOnce() -> Result<Tensor>) -> Result<Tensor> {
        let mut given = inputs.iter().flatten().map(|input| input.tensor.device());
        let Some(device) = given.next() else { bail!("{}: no input", operator.name()) };
        if let Some(other) = given.find(|other| !other.same_device(device)) {
            bail!("{}: inputs are on {:?} and {:?}: move them to one device", operator.name(), device.location(), other.location());
        }
        match device {
            Device::Cpu => apply(&self.turns, Arc::new(operator), inputs),
            Device::Cuda(_) if cuda::IS_REACHED => apply(&self.turns, Arc::new(operator), inputs),
            Device::Cuda(_) | Device::Metal(_) => {
                fallback::count(operator.name(), device);
                unfused()
            }
        }
    }

    /// The softmax along `dim`, as [`candle_nn::ops::softmax`].
    ///
    /// # Errors
    /// No such dimension; elements other than f32, f16 and bf16.
    pub fn softmax<D: Dim>(&self, x: &Tensor, dim: D) -> Result<Tensor> {
        self.softmax_or_log(x, dim.to_index(x.shape(), "softmax")?, false)
    }

    /// The logarithm of the softmax along `dim`, as [`candle_nn::ops::log_softmax`].
    ///
    /// # Errors
    /// As [`Ops::softmax`].
    pub fn log_softmax<D: Dim>(&self, x: &Tensor, dim: D) -> Result<Tensor> {
        self.softmax_or_log(x, dim.to_index(x.shape(), "log_softmax")?, true)
    }

    fn softmax_or_log(&self, x: &Tensor, dim: usize, log: bool) -> Result<Tensor> {
        self.run(Softmax { axis: dim as isize, log }, given([x]), || unfused::softmax(x, dim, log))
    }

    /// RMS normalisation of the rows of `x [.., n]` by `weight [n]`, as [`candle_nn::ops::rms_norm`].
    ///
    /// # Errors
    /// A weight of another shape; elements other than f32, f16 and bf16.
    pub fn rms_norm(&self, x: &Tensor, weight: &Tensor, eps: f32) -> Result<Tensor> {
        self.run(RmsNorm { epsilon: eps, ..RmsNorm::default() }, given([x, weight]), || unfused::norm(x, Some(weight), None, eps, false))
    }

    /// Layer normalisation of the rows of `x [.., n]` by `weight [n]` and `bias [n]`, as [`candle_nn::ops::layer_norm`].
    ///
    /// # Errors
    /// A weight or bias of another shape or of two types; elements other than f32, f16 and bf16.
    pub fn layer_norm(&self, x: &Tensor, weight: &Tensor, bias: Option<&Tensor>, eps: f32) -> Result<Tensor> {
        let inputs = vec![Some(x.into()), Some(weight.into()), bias.map(Input::from)];
        self.run(LayerNorm { axis: -1, epsilon: eps, statistics: false }, inputs, || unfused::norm(x, Some(weight), bias, eps, true))
    }

    /// Rotary position embedding of `x [batch, heads, tokens, width]` by cosines and sines `[positions, width / 2]` or `[batch, positions, width / 2]`, of
    /// which the first `tokens` are used, as [`candle_nn::rotary_emb::rope`]. No gradient flows to the tables.
    ///
    /// # Errors
    /// Tables that do not fit; elements other than f32, f16 and bf16.
    pub fn rope(&self, x: &Tensor, cos: &Tensor, sin: &Tensor) -> Result<Tensor> {
        self.rotate(x, cos, sin, false)
    }

    /// The same for pairs of neighbours, as [`candle_nn::rotary_emb::rope_i`].
    ///
    /// # Errors
    /// As [`Ops::rope`].
    pub fn rope_i(&self, x: &Tensor, cos: &Tensor, sin: &Tensor) -> Result<Tensor> {
        self.rotate(x, cos, sin, true)
    }

    fn rotate(&self, x: &Tensor, cos: &Tensor, sin: &Tensor, interleaved: bool) -> Result<Tensor> {
        let &[_, _, tokens, _] = x.dims() else { bail!("rope: x has shape {:?}: [batch, heads, tokens, width] is expected", x.dims()) };
        if cos.track_op() || sin.track_op() {
            bail!("rope: cosines or sines require a gradient, and none flows to them: detach them");
        }
        let first = |table: &Tensor| match table.dims() {
            &[.., positions, _] if positions >= tokens => table.narrow(candle_core::D::Minus2, 0, tokens),
            dims => bail!("rope: a table has shape {dims:?}, x has {tokens} tokens: [{tokens} or more, width / 2] is expected"),
        };
        let (near_cos, near_sin) = (first(cos)?, first(sin)?);
        // A table for all sequences is read by position.
        let positions = if cos.rank() == 2 { Some(Tensor::arange(0, tokens as u32, x.device())?) } else { None };
        let inputs = vec![Some(x.into()), Some((&near_cos).into()), Some((&near_sin).into()), positions.as_ref().map(Input::from)];
        self.run(RotaryEmbedding { interleaved, ..Default::default() }, inputs, || unfused::rope(x, cos, sin, interleaved))
    }

    /// `silu(gate) * up`.
    ///
    /// # Errors
    /// Two shapes or types; elements other than f32, f16 and bf16.
    pub fn silu_mul(&self, gate: &Tensor, up: &Tensor) -> Result<Tensor> {
        self.run(SwiGlu { alpha: 1.0 }, given([gate, up]), || unfused::silu_mul(gate, up))
    }

    /// Softmax of scaled scores by values, without the matrix of scores: `q [batch, heads, queries, width]`, `k` and `v` `[batch, kv_heads, keys, width]`
    /// with `heads` a multiple of `kv_heads`. [`Scoring`] has scale, soft cap, causality and windows. A mask is broadcast to `[batch, heads, queries, keys]`:
    /// of type u8 (a query attends the keys that are not zero), or a number that is added to the score. A query that attends no key gives zeros.
    ///
    /// # Errors
    /// Shapes or types that do not fit; a mask that requires a gradient, for none flows to it.
    pub fn attention(&self, q: &Tensor, k: &Tensor, v: &Tensor, mask: Option<&Tensor>, scoring: &Scoring) -> Result<Tensor> {
        if mask.is_some_and(Tensor::track_op) {
            bail!("attention: the mask requires a gradient, and none flows to it: detach it");
        }
        let truth = |mask: &Tensor| -> Result<Input> {
            Ok(if mask.dtype() == DType::U8 { Input { tensor: mask.ne(0u8)?, is_bool: true } } else { Input::from(mask) })
        };
        let operator = Attention { precision: self.turns.executor().precision(), scoring: *scoring, ..Default::default() };
        // Elements of a head lie beside each other; other strides are taken as they are.
        let row = |x: &Tensor| if x.stride().last().is_none_or(|&stride| stride == 1) { Ok(x.clone()) } else { x.contiguous() };
        let (near_q, near_k, near_v) = (row(q)?, row(k)?, row(v)?);
        let mut inputs = given([&near_q, &near_k, &near_v]);
        inputs.extend([mask.map(truth).transpose()?, None, None]);
        self.run(operator, inputs, || unfused::attention([q, k, v], mask, scoring))
    }

    /// A linear layer with a low-rank adapter, `x weightᵀ + bias + scale · (x aᵀ) bᵀ`: `x [.., k]`, `weight [n, k]`, `a [r, k]`, `b [n, r]`, `bias [n]`.
    ///
    /// # Errors
    /// Shapes or types that do not fit.
    pub fn lora_forward(&self, x: &Tensor, weight: &Tensor, a: &Tensor, b: &Tensor, bias: Option<&Tensor>, scale: f32) -> Result<Tensor> {
        let mut inputs = given([x, weight, a, b]);
        inputs.push(bias.map(Input::from));
        let operator = LoraLinear { scale, precision: self.turns.executor().precision() };
        self.run(operator, inputs, || unfused::lora(x, [weight, a, b], bias, scale))
    }

    /// The mean cross-entropy of `logits [.., classes]` with the classes `targets [..]` (u32, i64 or u8), a number of type f32, as
    /// [`candle_nn::loss::cross_entropy`].
    ///
    /// # Errors
    /// Shapes or types that do not fit; a class that there is not.
    pub fn cross_entropy(&self, logits: &Tensor, targets: &Tensor) -> Result<Tensor> {
        let targets = if targets.dtype() == DType::U8 { targets.to_dtype(DType::U32)? } else { targets.clone() };
        let operator = CrossEntropy { reduction: LossReduction::Mean, ..CrossEntropy::default() };
        self.run(operator, given([logits, &targets]), || unfused::cross_entropy(logits, &targets))
    }
}

/// These tensors, all of them given.
fn given<const N: usize>(tensors: [&Tensor; N]) -> Vec<Option<Input>> {
    tensors.into_iter().map(|tensor| Some(tensor.into())).collect()
}
