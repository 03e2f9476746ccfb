//! Scaled dot-product attention over a key and value cache, in blocks of 256 keys, without the matrix of scores.
//!
//! `y = Σ p_j v_j / Σ p_j` with `p_j = exp(s_j − max s)` and `s_j = softcap(scale · q·k_j) + mask_j` over the keys that the query attends
//! ([`Scoring`]). A query that attends no key gives zeros. Computed in f32, rounded once.
//!
//! Memory traffic: each block of keys and values is read once for all the query heads that share it, and again for every 64 rows of
//! queries (8 on a GPU; 32 of a head where it has memory for a panel, as in panels.metal); nothing else leaves the cache. On a GPU few queries are spread over the
//! blocks of keys, and a second launch combines what they give.
//!
//! # Order
//! It depends on the keys' indices alone, never on how many queries, sequences, threads or devices share the work:
//!
//! * A score is `scale · dot(q, k)` with the strict dot product of [`crate::order`]: 256 accumulators from +0.0 (accumulator `i` folds the
//!   elements `i`, `i + 256`, … by fma), slots pairwise, lanes by xor 16, 8, 4, 2, 1. Then `c · tanh(s / c)`, then `s + mask`. A key that
//!   is not attended, or masked by `false`, has the score −∞.
//! * Block `b` holds the keys `256 b … 256 b + 255`. In a block: `m_b = max s`, `p_j = exp(s_j − m_b)`, and `l_b` is the sum of the 256 `p_j` as a
//!   row of 256 accumulators (slots pairwise, lanes by xor). `o_b = ((0 + g_0) + g_1) + … + g_7` where `g_i` is the sum of `p_j v_j` over the 32
//!   keys `32 i … 32 i + 31` of the block: from +0.0, one fma after the other, ascending. Keys whose `p_j` is zero are passed over, whatever
//!   their values hold.
//! * Blocks are combined in index order: `m' = max(m, m_b)`, `a = exp(m − m')`, `b = exp(m_b − m')`, `l' = fma(l, a, l_b · b)`,
//!   `o' = fma(o, a, o_b · b)`, starting with the first block whose `m_b` is not −∞; later blocks with `m_b = −∞` are passed over.
//! * `y = o · (1 / l)`. The exponentials are [`exp_nonpositive`](crate::math::exp_nonpositive).
//!
//! Fast precision gives the same on devices without kernels of their own for it. Metal devices have one for 16 rows and more of a key head (a row is a query of
//! one of its heads), of at most 128 elements, unless there are so few of them that the keys are split as above. It works on simdgroup matrices, for tiles of 32
//! rows and blocks of 32 keys: sums are f32 in another order, and nothing is rounded to a narrower type before the output. NVIDIA GPUs have two where keys and values are f16 or bf16, of 64 or 128
//! elements, without mask and soft cap: of compute capability 9.0 for 64 queries and more, from 8.0 on where the keys of few queries are split, and few keys over a cluster. Queries and
//! weights are rounded to the keys' type, sums are f32 in another order. There, and on simdgroup matrices, an infinity or NaN in a key or value reaches all
//! queries of a tile, of 128, 8 or 32 rows, if any of them attends it. Packed keys and values are decoded to f16 for the kernels of many queries; those of few take
//! none, and fast precision gives what strict precision does.
//!
//! Invariant precision gives what strict precision does, but for keys and values of f16 or bf16 of 64 or 128 elements, without mask and soft cap, on compute
//! capability 9.0: see `blocks`.
//!
//! # Error
//! With `u = 2^-24`, `E = |scale| Σ |q_i k_i|` of the worst key, and `n` blocks: before the rounding of the output, the error is at most
//! `(2 · (12 E + |s|) + 60 + 6 n) · u · max |v|`. On simdgroup matrices, with `D` elements of a key and `n` keys, it is at most
//! `(2 · (D E + 10 |s| + 6 + 4 log2 n) + 1.1 n + 16) · u · max |v|`: `D E` for a dot product in any order, `10 |s|` for scale, soft cap, mask, the factor to
//! powers of two and the difference to the greatest, `6 + 4 log2 n` for powers of two within `3 + 2 |x|` units in the last place, which is what relaxed math
//! usually promises, and `n` for the sums of values with a sixteenth for the factors when the greatest score grows. Where fast precision rounds to f16 or bf16, each query's output has a normalised error
//! `‖found − exact‖ / ‖exact‖` of about half of that type's unit `2^-11` or `2^-8` on random inputs; the conformance suite allows two units.

mod blocks;
pub(crate) mod cpu;
pub mod decode;
mod decoded;
mod gpu;
pub mod gradient;
mod hopper;
#[cfg(any(test, feature = "conformance"))]
pub(crate) mod oracle;
pub mod paged;
mod prefill;
pub(crate) mod scoring;
mod split;
mod tensor_cores;
#[cfg(test)]
mod tests;
mod tiled;

use std::sync::Arc;

use elinvar_core::{DType, DeviceProperties, Extent, KernelKey, Result};

use crate::{
    Definition, Description, Launch, Operator, Plan, Precision, TensorInfo,
    attributes::{attributes, joined},
    launch::product_operations,
    metal::params,
    quantized::cached,
    signature::{misshapen, operands},
};

pub use scoring::{MaskView, ScoreParams, Scoring, View, WITH_LENGTHS, WITH_POSITIONS};
pub(crate) use scoring::{four, is_pair};

attributes! {
    /// Attention.
    ///
    /// Inputs: `q [B, Hq, Tq, D]`, `k [B, Hkv, Tk, D]`, `v [B, Hkv, Tk, Dv]`, of one float type or `q` f32 beside `k` and `v` of another; `Hq` is a
    /// multiple of `Hkv`, and query head `h` uses key head `h / (Hq / Hkv)`. Beside an f32 `q`, `k` and `v` may be u8, whose last axis is a row packed in
    /// [`Format::Q8_0`](crate::quantized::Format). Optional: `mask`, broadcast to `[B, Hq, Tq, Tk]` (bool: true attends; float:
    /// added), `positions` i32 `[Tq]` or `[B, Tq]`, `lengths` i32 `[B]`. `q`, `k`, `v` may have any strides along which the last axis is contiguous,
    /// the mask any at all. Output: `[B, Hq, Tq, Dv]` (or `[B, Tq, Hq, Dv]`).
    ///
    /// Keys at or after `Tk` do not exist: a cache of a fixed capacity is passed whole, with `causal` and positions (or lengths) that say how much
    /// of it is filled, so that one plan serves every step.
    #[derive(Clone, Copy, Debug, Default)]
    pub struct Attention {
        /// Give `[B, Tq, Hq, Dv]`: token by token, as the projection that follows reads it.
        pub tokens_first: bool = false,
        /// How sums may be ordered: strict (the same bits on every device), invariant (the same bits of a row on one device) or fast (any order).
        pub precision: Precision = strict,
        /// Type of the output; that of `q` if absent.
        pub output: Option<DType>,
    } and {
        /// How scores are made, and which keys are attended.
        pub scoring: Scoring,
    }
}

params! {
    /// What the kernel gets besides its buffers.
    pub struct Params {
        /// The scores.
        pub score: ScoreParams,
        /// Values.
        pub v: View,
        /// The output.
        pub y: View,
        /// Elements of a value.
        pub value_width: u64,
    }
}

operands! {
    q: read(DType::FLOATS), "[B, Hq, Tq, D]";
    k: read(cached::TYPES), "[B, Hkv, Tk, D], of q's type or any beside an f32 q; u8: rows packed in Q8_0";
    v: read(like k), "[B, Hkv, Tk, Dv], of k's type";
    mask: read(scoring::MASKS) optional, scoring::MASK;
    positions: read(&[DType::I32]) optional, scoring::POSITIONS;
    lengths: read(&[DType::I32]) optional, scoring::LENGTHS;
    -> y: write(DType::FLOATS), "[B, Hq, Tq, Dv], or [B, Tq, Hq, Dv], of type output";
}
use operands::Inputs;

impl Operator for Attention {
    fn name(&self) -> &'static str {
        "attention"
    }

    fn outputs(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        let y = self.params(Inputs::new(inputs)?)?.1;
        operands::OUTPUTS[0].check(y.dtype)?;
        Ok(vec![y])
    }

    fn plan(&self, inputs: &[Option<TensorInfo>], outputs: &[TensorInfo], device: &DeviceProperties) -> Result<Plan> {
        if let Some(definition) = decoded::definition(self, inputs, device)? {
            return definition.plan(device);
        }
        let (definition, inputs) = (self.stands_for(inputs)?, Inputs::new(inputs)?);
        let (params, y) = self.params(inputs)?;
        let plan = match (self.on_tensor_cores(&params, inputs, y.dtype, device), definition) {
            (Some(plan), _) => plan,
            (None, Some(definition)) => return definition.plan(device),
            (None, None) if device.simd_width <= 1 => return inputs.for_cpu(outputs, &params),
            (None, None) => split::plan(&params, inputs, self.precision, device)?.map_or_else(|| gpu::plan(&params, inputs, device), Ok)?,
        };
        Ok(plan.with_operations(params.operations()))
    }

    fn rounded(&self, to: DType, inputs: &[Option<TensorInfo>], device: &DeviceProperties) -> Result<Option<Arc<dyn Operator>>> {
        let (inputs, operator) = (Inputs::new(inputs)?, Self { output: Some(to), ..*self });
        let stores = self.output.is_none() && self.on_tensor_cores(&self.params(inputs)?.0, inputs, to, device).is_some();
        Ok(stores.then(|| Arc::new(operator) as Arc<dyn Operator>))
    }

    fn stands_for(&self, inputs: &[Option<TensorInfo>]) -> Result<Option<Definition>> {
        Definition::converted(Self { output: None, ..*self }, inputs, operands::AT.q, self.output)
    }

    fn precision(&self) -> Precision {
        self.precision
    }

    fn strict(&self) -> Option<Arc<dyn Operator>> {
        Some(Arc::new(Self { precision: Precision::Strict, ..*self }))
    }

    fn accepts_strides(&self, index: usize) -> bool {
        index < 4
    }

    fn gradient(&self, inputs: &[Option<TensorInfo>], upstream: &[Option<TensorInfo>], wanted: &[bool]) -> Result<Definition> {
        match self.stands_for(inputs)? {
            Some(definition) => definition.gradient(self, upstream, wanted),
            None => gradient::gradient(self, inputs, upstream, wanted),
        }
    }
}

impl Inputs {
    /// The types that a tile's kernel is made for.
    fn of_tile(&self) -> [DType; 3] {
        [self.q.dtype, self.k.dtype, self.dtype(operands::AT.mask)]
    }

    fn for_cpu(&self, outputs: &[TensorInfo], params: &Params) -> Result<Plan> {
        let dtypes: Vec<_> = [self.q, self.k].into_iter().chain(self.mask).map(|info| info.dtype).collect();
        let launch = Launch::new(KernelKey::new("attention", &dtypes), cpu::run, params, self.parameters(outputs)?);
        Ok(launch.over(Extent::linear(u32::from(params.rows() * params.value_width > 0)), Extent::linear(1)).into())
    }
}

impl Params {
    /// Rows of the output.
    fn rows(&self) -> u64 {
        self.score.batch * self.score.heads * self.score.queries
    }

    /// Operations of both products. Positions may lie on the device: the queries are taken to be the last of the sequence.
    fn operations(&self) -> u64 {
        let s = &self.score;
        let attended = s.attended_at_the_end() as usize;
        product_operations(&[s.batch as usize, s.heads as usize, attended, (s.width + self.value_width) as usize])
    }
}

impl Attention {
    /// The plan of kernels for tensor cores, which may store another type than that of the queries.
    fn on_tensor_cores(&self, params: &Params, inputs: Inputs, y: DType, device: &DeviceProperties) -> Option<Plan> {
        let matrices = || tiled::plan(params, inputs, self.precision, device).filter(|_| y == inputs.q.dtype);
        prefill::plan(params, inputs, y, self.precision, device).or_else(|| blocks::plan(params, inputs, y, self.precision, device)).or_else(matrices)
    }

    fn params(&self, Inputs { q, k, v, mask, positions, lengths }: Inputs) -> Result<(Params, TensorInfo)> {
        let score = self.scoring.params([q, k], mask, positions, lengths)?;
        let [batch, heads, keys, _] = four("v", &v)?;
        let width = cached::width("v", &v)?;
        if [batch, heads, keys] != k.shape()[..3] {
            return Err(misshapen!(v, k; "one shape but for the last axis"));
        }
        let (batch, heads, queries) = (q.shape()[0], q.shape()[1], q.shape()[2]);
        let dims = if self.tokens_first { [batch, queries, heads, width] } else { [batch, heads, queries, width] };
        let y = TensorInfo::new(self.output.unwrap_or(q.dtype), &dims)?;
        let (head, token) = if self.tokens_first { (2, 1) } else { (1, 2) };
        let params = Params { score, v: View::new("v", &v, Some(0), 1, 2)?, y: View::new("y", &y, Some(0), head, token)?, value_width: width as u64 };
        Ok((params, y))
    }
}

pub(crate) const DESCRIPTIONS: &[Description] = &[Description {
    name: "attention",
    summary: "softmax(softcap(scale q k^T) + mask) v over the keys each query attends; grouped heads, causal, windows, caches",
    inputs: operands::INPUTS,
    outputs: operands::OUTPUTS,
    attributes: &joined::<{ Scoring::ATTRIBUTES.len() + Attention::ATTRIBUTES.len() }>(Scoring::ATTRIBUTES, Attention::ATTRIBUTES),
    build: |a| Ok(Box::new(Attention::read(a, Scoring::read(a)?)?)),
}];
