//! Operators as methods of [`Tensor`]: each builds the operator's value and applies it. What has no method here is called with
//! [`Executor::apply`](crate::Executor::apply).

use std::sync::Arc;

use elinvar_core::{DType, Result};
use elinvar_kernels::{
    Operator,
    attention::{Attention, decode::DecodeAttention},
    binary::{Binary, BinaryOp},
    cast::Cast,
    compare::{Compare, CompareOp, Logical, LogicalNot, LogicalOp},
    copy::Concat,
    cumsum::CumSum,
    gather::Gather,
    greedy::Greedy,
    kv_append::KvAppend,
    layer_norm::LayerNorm,
    lora::LoraLinear,
    matmul::MatMul,
    projection::Projection,
    reduce::{ArgReduce, Reduce, Reduction},
    rms_norm::{AddRmsNorm, RmsNorm},
    rope::Rope,
    rope_append::RopeAppend,
    sample::Sample,
    softmax::Softmax,
    swiglu::SwiGlu,
    ternary::{Clamp, Fma, Where},
    top_k::TopK,
    unary::{Unary, UnaryOp, WithScalar},
};

use crate::{Error, Tensor, executor::only};

macro_rules! unary {
    ($($(#[$doc:meta])* $name:ident => $op:expr;)*) => {
        /// Functions of each element; see [`elinvar_kernels::unary`] for the types they take and their error bounds.
        impl Tensor {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                /// A data type the function does not take, or out of memory.
                pub fn $name(&self) -> Result<Tensor> { self.apply(Unary { op: $op }, &[]) }
            )*
        }
    };
}

unary! {
    /// |x|
    abs => UnaryOp::Abs;
    /// −x
    neg => UnaryOp::Neg;
    /// −1, 0 or 1 by the sign of x.
    sign => UnaryOp::Sign;
    /// x · x
    square => UnaryOp::Square;
    /// max(x, 0)
    relu => UnaryOp::Relu;
    /// Every bit of an integer inverted.
    bitwise_not => UnaryOp::Not;
    /// How many bits of an integer are one.
    bitwise_count => UnaryOp::Popcount;
    /// Rounded down to a whole number.
    floor => UnaryOp::Floor;
    /// Rounded up to a whole number.
    ceil => UnaryOp::Ceil;
    /// Rounded to a whole number, towards zero.
    trunc => UnaryOp::Trunc;
    /// Rounded to the nearest whole number, ties to even.
    round => UnaryOp::Round;
    /// √x
    sqrt => UnaryOp::Sqrt;
    /// 1 / √x
    rsqrt => UnaryOp::Rsqrt;
    /// 1 / x
    reciprocal => UnaryOp::Reciprocal;
    /// eˣ
    exp => UnaryOp::Exp;
    /// 2ˣ
    exp2 => UnaryOp::Exp2;
    /// The natural logarithm.
    log => UnaryOp::Log;
    /// The logarithm to base 2.
    log2 => UnaryOp::Log2;
    /// The logarithm to base 10.
    log10 => UnaryOp::Log10;
    /// log(1 + x), also where x is small.
    log1p => UnaryOp::Log1p;
    /// The sine of x radians.
    sin => UnaryOp::Sin;
    /// The cosine of x radians.
    cos => UnaryOp::Cos;
    /// The tangent of x radians.
    tan => UnaryOp::Tan;
    /// The hyperbolic tangent.
    tanh => UnaryOp::Tanh;
    /// 1 / (1 + e⁻ˣ)
    sigmoid => UnaryOp::Sigmoid;
    /// log(1 + eˣ)
    softplus => UnaryOp::Softplus;
    /// x · sigmoid(x)
    silu => UnaryOp::Silu;
    /// x · tanh(log(1 + eˣ))
    mish => UnaryOp::Mish;
    /// x · clamp(x / 6 + 1/2, 0, 1)
    hard_swish => UnaryOp::HardSwish;
    /// The error function.
    erf => UnaryOp::Erf;
    /// x · Φ(x), by the error function.
    gelu => UnaryOp::Gelu;
    /// x · Φ(x), by the approximation with tanh.
    gelu_tanh => UnaryOp::GeluTanh;
}

macro_rules! binary {
    ($($(#[$doc:meta])* $name:ident => $op:ident;)*) => {
        /// Arithmetic of two tensors, broadcast by NumPy's rule; see [`elinvar_kernels::binary`].
        impl Tensor {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                /// Shapes that do not broadcast, data types that differ, or out of memory.
                pub fn $name(&self, other: &Tensor) -> Result<Tensor> {
                    self.binary(BinaryOp::$op, other)
                }
            )*
        }
    };
}

binary! {
    /// a + b
    add => Add;
    /// a − b
    sub => Sub;
    /// a · b
    mul => Mul;
    /// a / b
    div => Div;
    /// The smaller.
    minimum => Min;
    /// The larger.
    maximum => Max;
    /// a to the power b; b may be of another numeric type.
    pow => Pow;
    /// a − b · trunc(a / b): what division towards zero leaves.
    fmod => Rem;
    /// Bits that both have.
    bitwise_and => And;
    /// Bits that either has.
    bitwise_or => Or;
    /// Bits that differ.
    bitwise_xor => Xor;
    /// a shifted left by b bits, modulo the width.
    left_shift => Shl;
    /// a shifted right by b bits, modulo the width, copying the sign of signed types.
    right_shift => Shr;
}

impl Tensor {
    /// x where positive, else `alpha` · x.
    ///
    /// # Errors
    /// Not a floating-point tensor, or out of memory.
    pub fn leaky_relu(&self, alpha: f32) -> Result<Tensor> {
        self.with_scalar(BinaryOp::LeakyRelu, alpha)
    }

    /// x where positive, else `alpha` · (eˣ − 1).
    ///
    /// # Errors
    /// Not a floating-point tensor, or out of memory.
    pub fn elu(&self, alpha: f32) -> Result<Tensor> {
        self.with_scalar(BinaryOp::Elu, alpha)
    }

    pub(crate) fn binary(&self, op: BinaryOp, other: &Tensor) -> Result<Tensor> {
        self.apply(Binary { op }, &[Some(other)])
    }

    pub(crate) fn with_scalar(&self, op: BinaryOp, scalar: f32) -> Result<Tensor> {
        self.apply(WithScalar { op, scalar }, &[])
    }
}

macro_rules! comparisons {
    ($($(#[$doc:meta])* $name:ident => $op:ident;)*) => {
        /// Comparisons of two tensors of one type, broadcast by NumPy's rule; the result is bool.
        impl Tensor {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                /// Shapes that do not broadcast, data types that differ, or out of memory.
                pub fn $name(&self, other: &Tensor) -> Result<Tensor> {
                    self.compare(CompareOp::$op, other)
                }
            )*
        }
    };
}

comparisons! {
    /// a = b
    eq => Eq;
    /// a ≠ b
    ne => Ne;
    /// a < b
    lt => Lt;
    /// a ≤ b
    le => Le;
    /// a > b
    gt => Gt;
    /// a ≥ b
    ge => Ge;
}

macro_rules! logic {
    ($($(#[$doc:meta])* $name:ident => $op:ident;)*) => {
        /// Logic of truth values, broadcast by NumPy's rule.
        impl Tensor {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                /// Not bools, shapes that do not broadcast, or out of memory.
                pub fn $name(&self, other: &Tensor) -> Result<Tensor> {
                    self.apply(Logical { op: LogicalOp::$op }, &[Some(other)])
                }
            )*

            /// Not a.
            ///
            /// # Errors
            /// Not bools, or out of memory.
            pub fn logical_not(&self) -> Result<Tensor> {
                self.apply(LogicalNot, &[])
            }
        }
    };
}

logic! {
    /// a and b
    logical_and => And;
    /// a or b
    logical_or => Or;
    /// a or b, but not both
    logical_xor => Xor;
}

macro_rules! reductions {
    ($($(#[$doc:meta])* $name:ident => $reduction:ident;)*) => {
        /// Reductions along axes (negative ones count from the end; none for all of them); see [`elinvar_kernels::reduce`].
        impl Tensor {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                /// A data type it does not take, an axis outside the shape, or out of memory.
                pub fn $name(&self, axes: &[isize], keepdims: bool) -> Result<Tensor> {
                    self.apply(Reduce { reduction: Reduction::$reduction, axes: axes.to_vec(), keepdims }, &[])
                }
            )*
        }
    };
}

reductions! {
    /// The sum.
    sum => Sum;
    /// The mean.
    mean => Mean;
    /// The largest element; NaN if there is one.
    max => Max;
    /// The smallest element; NaN if there is one.
    min => Min;
    /// The logarithm of the sum of the exponentials.
    log_sum_exp => LogSumExp;
}

impl Tensor {
    fn apply(&self, operator: impl Operator, others: &[Option<&Tensor>]) -> Result<Tensor> {
        let inputs: Vec<_> = std::iter::once(Some(self)).chain(others.iter().copied()).collect();
        only(self.executor().apply(Arc::new(operator), &inputs)?)
    }

    /// The elements converted to another type; itself if it has that type.
    ///
    /// # Errors
    /// Out of memory.
    pub fn cast(&self, to: DType) -> Result<Tensor> {
        if to == self.dtype() { Ok(self.clone()) } else { self.apply(Cast { to }, &[]) }
    }

    /// The entries along `axis` that `indices` (i32, i64 or u32) name. With axis 0 of a `[vocabulary, width]` matrix: the embedding lookup.
    ///
    /// # Errors
    /// An axis outside the shape. An index outside the axis is reported when the result is read.
    pub fn gather(&self, indices: &Tensor, axis: isize) -> Result<Tensor> {
        self.apply(Gather { axis }, &[Some(indices)])
    }

    /// Tensors one after the other along `axis`.
    ///
    /// # Errors
    /// No tensors, or shapes that differ on another axis.
    pub fn concat(tensors: &[&Tensor], axis: isize) -> Result<Tensor> {
        let [first, rest @ ..] = tensors else { return Err(Error::invalid_argument("concat of no tensors: give at least one")) };
        first.apply(Concat { axis }, &rest.iter().map(|t| Some(*t)).collect::<Vec<_>>())
    }

    /// Softmax along an axis.
    ///
    /// # Errors
    /// Not a floating-point tensor, or an axis outside its shape.
    pub fn softmax(&self, axis: isize) -> Result<Tensor> {
        self.apply(Softmax { axis, log: false }, &[])
    }

    /// The logarithm of the softmax along an axis.
    ///
    /// # Errors
    /// Not a floating-point tensor, or an axis outside its shape.
    pub fn log_softmax(&self, axis: isize) -> Result<Tensor> {
        self.apply(Softmax { axis, log: true }, &[])
    }

    /// RMS normalisation of the last axis, times `weight`.
    ///
    /// # Errors
    /// Not a floating-point tensor, or a weight of another shape than the last axis.
    pub fn rms_norm(&self, weight: Option<&Tensor>, epsilon: f32) -> Result<Tensor> {
        self.apply(RmsNorm { axis: -1, epsilon }, &[weight])
    }

    /// `silu(self) · up`: the gate of SwiGLU.
    ///
    /// # Errors
    /// Shapes or types that differ.
    pub fn swiglu(&self, up: &Tensor) -> Result<Tensor> {
        self.apply(SwiGlu { alpha: 1.0 }, &[Some(up)])
    }

    /// Residual addition, then RMS normalisation of the last axis times `weight`: the sum, and the normalised sum.
    ///
    /// # Errors
    /// Shapes or types that differ.
    pub fn add_rms_norm(&self, residual: &Tensor, weight: Option<&Tensor>, epsilon: f32) -> Result<(Tensor, Tensor)> {
        pair(self.executor().apply(Arc::new(AddRmsNorm { axis: -1, epsilon }), &[Some(self), Some(residual), weight])?)
    }

    /// The matrix product `[…, m, k] · […, k, n]`, leading axes broadcast.
    ///
    /// # Errors
    /// Shapes that do not fit, or types other than f32, f16 and bf16.
    pub fn matmul(&self, other: &Tensor) -> Result<Tensor> {
        let precision = self.executor().precision();
        self.apply(MatMul { precision, ..MatMul::default() }, &[Some(other), None])
    }

    /// The linear layer `x Wᵀ + bias`: `x […, k]`, `weight [n, k]` of any floating-point type, `bias [n]`; the result has the type of `x`.
    ///
    /// # Errors
    /// Shapes that do not fit, or types other than f32, f16 and bf16.
    pub fn linear(&self, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
        let precision = self.executor().precision();
        self.apply(MatMul { transpose_b: true, precision, ..MatMul::default() }, &[Some(weight), bias])
    }

    /// Linear layers of this input, always strict, in one launch: each of `layers` is a weight `[n, k]` and a bias `[n]`, one to three of them; see
    /// [`Projection`] for the normalisation before (whose weight is `norm`), the gate and the `residual` after, and for what the types must be.
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
        self.executor().apply(Arc::new(*operator), &[Some(self), norm, weight(0), weight(1), weight(2), bias(0), bias(1), bias(2), residual])
    }

    /// Takes the step of greedy decoding that this state `[2]` (i32: a token and its position) stands for: it becomes the likeliest token of
    /// `logits`, one row, and the position after.
    ///
    /// # Errors
    /// Shapes or types that do not fit. A logit that is no number is reported when something is read.
    pub fn greedy(&self, logits: &Tensor) -> Result<()> {
        self.executor().apply(Arc::new(Greedy), &[Some(self), Some(logits)]).map(|_| ())
    }

    /// As [`Tensor::greedy`], but the token is drawn, as `factors` and `numbers` say: see [`elinvar_kernels::sample`].
    ///
    /// # Errors
    /// As [`Tensor::greedy`].
    pub fn sample(&self, logits: &Tensor, factors: &Tensor, numbers: &Tensor) -> Result<()> {
        self.executor().apply(Arc::new(Sample), &[Some(self), Some(logits), Some(factors), Some(numbers)]).map(|_| ())
    }

    /// Rotary position embedding of `[…, tokens, heads, head_dim]` at `positions [tokens]` (i32), with the frequencies that
    /// [`elinvar_kernels::rope::frequencies`] gives; pairs half a head apart.
    ///
    /// # Errors
    /// Shapes or types that do not fit.
    pub fn rope(&self, positions: &Tensor, frequencies: &Tensor) -> Result<Tensor> {
        self.apply(Rope { interleaved: false }, &[Some(positions), Some(frequencies)])
    }

    /// Writes `rows [tokens, heads, head_dim]` into this cache `[heads, capacity, head_dim]` at `positions [tokens]` (i32), in place.
    ///
    /// # Errors
    /// Shapes or types that do not fit. A position outside the cache is reported when something is read.
    pub fn kv_append(&self, rows: &Tensor, positions: &Tensor) -> Result<()> {
        self.executor().apply(Arc::new(KvAppend), &[Some(self), Some(rows), Some(positions)]).map(|_| ())
    }

    /// Turns `rows [tokens, heads, head_dim]` by their positions, as [`Tensor::rope`] does, and writes them into this cache, as [`Tensor::kv_append`]
    /// does; in the same launch `values` (a cache and its new rows) are appended as they are, and `queries [tokens, query_heads, head_dim]` are
    /// turned in place.
    ///
    /// # Errors
    /// Shapes or types that do not fit. A position outside the cache is reported when something is read.
    pub fn rope_append(
        &self,
        rows: &Tensor,
        positions: &Tensor,
        frequencies: &Tensor,
        values: Option<(&Tensor, &Tensor)>,
        queries: Option<&Tensor>,
    ) -> Result<()> {
        let (value_cache, values) = values.unzip();
        let inputs = [Some(self), Some(rows), Some(positions), Some(frequencies), value_cache, values, queries];
        self.executor().apply(Arc::new(RopeAppend { interleaved: false }), &inputs).map(|_| ())
    }

    /// Attention of one token's queries `[1, heads, D]` over caches `[kv_heads, capacity, D]` to which its key and value `[1, kv_heads, D]` are appended
    /// first, queries and key turned by its position: in the fewest launches [`Tensor::rope_append`] and [`Tensor::attention`].
    ///
    /// # Errors
    /// Shapes or types that do not fit. A position outside the caches is reported when something is read.
    pub fn decode_attention(
        &self,
        operator: &DecodeAttention,
        (keys, key): (&Tensor, &Tensor),
        (values, value): (&Tensor, &Tensor),
        positions: &Tensor,
        frequencies: &Tensor,
    ) -> Result<Tensor> {
        let inputs = [keys, key, positions, frequencies, values, value, self].map(Some);
        only(self.executor().apply(Arc::new(*operator), &inputs)?)
    }

    /// Attention of this query `[B, heads, tokens, D]` over keys and values `[B, kv_heads, keys, D]`; see [`Attention`] for masks and positions.
    ///
    /// # Errors
    /// Shapes or types that do not fit.
    pub fn attention(
        &self,
        operator: &Attention,
        keys: &Tensor,
        values: &Tensor,
        mask: Option<&Tensor>,
        positions: Option<&Tensor>,
    ) -> Result<Tensor> {
        self.apply(*operator, &[Some(keys), Some(values), mask, positions, None])
    }

    /// Where the largest element along an axis is, the first of equals, as i64.
    ///
    /// # Errors
    /// An axis outside the shape or without elements.
    pub fn argmax(&self, axis: isize, keepdims: bool) -> Result<Tensor> {
        self.apply(ArgReduce { largest: true, axis: Some(axis), keepdims, select_last: false, dtype: DType::I64 }, &[])
    }

    /// Where the smallest element along an axis is, the first of equals, as i64.
    ///
    /// # Errors
    /// An axis outside the shape or without elements.
    pub fn argmin(&self, axis: isize, keepdims: bool) -> Result<Tensor> {
        self.apply(ArgReduce { largest: false, axis: Some(axis), keepdims, select_last: false, dtype: DType::I64 }, &[])
    }

    /// The running sum along an axis.
    ///
    /// # Errors
    /// An axis outside the shape.
    pub fn cumsum(&self, axis: isize) -> Result<Tensor> {
        self.apply(CumSum { axis, exclusive: false, reverse: false }, &[])
    }

    /// The `k` largest elements along an axis, best first, and where they are (i64).
    ///
    /// # Errors
    /// An axis outside the shape or shorter than `k`.
    pub fn top_k(&self, k: usize, axis: isize) -> Result<(Tensor, Tensor)> {
        pair(self.executor().apply(Arc::new(TopK { k, axis, largest: true, sorted: true }), &[Some(self)])?)
    }

    /// Layer normalisation of the last axis, times `weight`, plus `bias`.
    ///
    /// # Errors
    /// Not a floating-point tensor, or a weight or bias of another shape than the last axis.
    pub fn layer_norm(&self, weight: Option<&Tensor>, bias: Option<&Tensor>, epsilon: f32) -> Result<Tensor> {
        self.apply(LayerNorm { axis: -1, epsilon, statistics: false }, &[weight, bias])
    }

    /// `self · b + c`, broadcast, rounded once in f32.
    ///
    /// # Errors
    /// Shapes that do not broadcast, or types that differ.
    pub fn fma(&self, b: &Tensor, c: &Tensor) -> Result<Tensor> {
        self.apply(Fma, &[Some(b), Some(c)])
    }

    /// Elements below `min` become `min`, those above `max` become `max`.
    ///
    /// # Errors
    /// A data type it does not take.
    pub fn clamp(&self, min: f64, max: f64) -> Result<Tensor> {
        self.apply(Clamp { min: Some(min.into()), max: Some(max.into()) }, &[])
    }

    /// Where this tensor of truth values is true the element of `a`, else that of `b`, broadcast.
    ///
    /// # Errors
    /// Not a bool tensor, shapes that do not broadcast, or types that differ.
    pub fn select(&self, a: &Tensor, b: &Tensor) -> Result<Tensor> {
        self.apply(Where, &[Some(a), Some(b)])
    }

    /// Compares element by element, broadcast; the result is bool.
    ///
    /// # Errors
    /// Shapes that do not broadcast, or types that differ.
    pub fn compare(&self, op: CompareOp, other: &Tensor) -> Result<Tensor> {
        self.apply(Compare { op }, &[Some(other)])
    }

    /// The LoRA linear layer `x Wᵀ + scale · (x Aᵀ) Bᵀ`: `x […, k]`, `weight [n, k]`, `a [r, k]`, `b [n, r]`.
    ///
    /// # Errors
    /// Shapes that do not fit, or types other than f32, f16 and bf16.
    pub fn lora_linear(&self, weight: &Tensor, a: &Tensor, b: &Tensor, scale: f32) -> Result<Tensor> {
        let precision = self.executor().precision();
        self.apply(LoraLinear { scale, precision }, &[Some(weight), Some(a), Some(b), None])
    }
}

/// The outputs of an operator that has two.
fn pair(outputs: Vec<Tensor>) -> Result<(Tensor, Tensor)> {
    match <[Tensor; 2]>::try_from(outputs) {
        Ok([first, second]) => Ok((first, second)),
        Err(_) => Err(Error::invalid_launch("the operator does not have exactly two outputs")),
    }
}
