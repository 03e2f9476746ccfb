//! The gradient of [`Attention`]: of queries, keys and values, without the matrix of scores.
//!
//! With the weights `p_tj = exp(s_tj − m_t) · (1 / l_t)` of [`Attention`] and `g` the gradient of its output `y`: `dv_j = Σ_t p_tj g_t`,
//! `e_tj = p_tj · (g_t·v_j − g_t·y_t) · s'_tj`, `dq_t = Σ_j e_tj k_j` and `dk_j = Σ_t e_tj q_t`, where `s'` is the derivative of the score by the dot product
//! (`scale`, with a soft cap times `1 − tanh²`). Computed in f32, rounded once. Masks are constants.
//!
//! * Memory: up to four numbers for each query and head beside the results. The scores are computed three times, in blocks of 32.
//! * Order, strict: a dot product is one fma after the other from +0.0, ascending. `m` and `l` combine blocks of 32 keys
//!   (block `b` has the keys `32 b … 32 b + 31`) in index order: with `m_b` the block's maximum and `l_b` its sum of `exp(s_j − m_b)` by the xor tree 16, 8,
//!   4, 2, 1: `m' = max(m, m_b)`, `l' = fma(l, exp(m − m'), l_b · exp(m_b − m'))`; blocks with `m_b = −∞` are passed over. `dq_t` adds one sum for each block of
//!   32 keys in index order, that from +0.0, one fma after the other; `dk_j` and `dv_j` likewise for blocks of 32 queries, head after head. Pairs whose
//!   weight is zero are passed over, whatever their elements hold. The exponentials are [`exp_nonpositive`](crate::math::exp_nonpositive).
//! * Fast: on NVIDIA's tensor cores, where queries, keys and values have one type of 16 bits and 64 or 128 elements, without mask and soft cap. Sums are f32,
//!   in another order; weights and their gradients are rounded to that type before they are multiplied; the exponential is the hardware's.
//!   An element that is no finite number may reach every row of the tiles of up to 128 queries or keys that its own row is multiplied with.
//!   A kernel for queries walks over keys, and one for keys over queries; each computes the scores, so seven products are made where five would do, and no
//!   sum is of several thread blocks.
//! * Error, strict, with `u = 2^-24`, `E = |scale| Σ |q_i k_i|` of the worst pair, `n` keys and `g`, `v`, `k` up to one: that of a weight is
//!   `(2 (D + 4) E + n / 32 + 50) · u` relative, that of the difference `(Dv + 2) Dv · u`, and of the sums `(n / 32 + 32) · u · Σ |e|`.
//! * See Dao, *FlashAttention-2*, 2023.

mod ampere;
mod cpu;
mod hopper;
#[cfg(any(test, feature = "conformance"))]
pub(crate) mod oracle;
mod tensor_cores;

use std::sync::Arc;

use elinvar_core::{DType, DeviceProperties, Error, Extent, KernelKey, MetalFile, MetalForm, Parameter, Result};

use super::{
    Attention, Inputs as Given, Params,
    scoring::{self, MaskView, ScoreParams, Scoring, View},
};
use crate::{
    Argument, Definition, Description, Launch, Operator, Plan, Precision, TensorInfo,
    attributes::{attributes, joined},
    gradient::Gradient,
    launch::product_operations,
    math,
    metal::{self, metal_file},
    order,
    signature::{misshapen, operands},
};

attributes! {
    /// The gradient of attention by its queries, keys and values.
    ///
    /// Inputs: those of [`Attention`], then its output `y` and the gradient `dy` of that. Outputs `dq`, `dk` and `dv`, of the shapes and types of `q`, `k`
    /// and `v`. Heads of more than 512 elements have none on a GPU.
    #[derive(Clone, Copy, Debug, Default)]
    pub struct AttentionGradient {
        /// `y` and `dy` are `[B, Tq, Hq, Dv]`.
        pub tokens_first: bool = false,
        /// How sums may be ordered: strict (the same bits on every device), invariant (the same bits of a row on one device) or fast (any order).
        pub precision: Precision = strict,
    } and {
        /// As [`Attention::scoring`].
        pub scoring: Scoring,
    }
}

operands! {
    q: read(DType::FLOATS), "[B, Hq, Tq, D]";
    k: read(DType::FLOATS), "[B, Hkv, Tk, D], of q's type or any beside an f32 q";
    v: read(like k), "[B, Hkv, Tk, Dv], of k's type";
    mask: read(scoring::MASKS) optional, scoring::MASK;
    positions: read(&[DType::I32]) optional, scoring::POSITIONS;
    lengths: read(&[DType::I32]) optional, scoring::LENGTHS;
    y: read(like q), "what attention gave";
    dy: read(like q), "its gradient, of y's shape";
    -> dq: write(like q), "as q";
    dk: write(like k), "as k";
    dv: write(like k), "as v";
}
use operands::{AT, Inputs};

const FILES: &[MetalFile] = &[
    metal::TYPES,
    math::METAL,
    order::METAL,
    View::METAL,
    MaskView::METAL,
    ScoreParams::METAL,
    Params::METAL,
    scoring::METAL,
    metal_file!("attention/gradient/gradient.metal"),
];
const QUERIES: MetalForm = MetalForm::new(FILES, "attention_gradient_queries");
const KEYS: MetalForm = MetalForm::new(FILES, "attention_gradient_keys");

/// Simdgroups of a threadgroup: queries or keys.
const SIMDGROUPS: u64 = 4;

/// Elements of a head that a simdgroup's registers hold.
const MAX_WIDTH: u64 = 512;

impl AttentionGradient {
    fn params(&self, Inputs { q, k, v, mask, positions, lengths, y, dy }: Inputs) -> Result<Params> {
        let attention = Attention { tokens_first: self.tokens_first, scoring: self.scoring, ..Attention::default() };
        let (params, output) = attention.params(Given { q, k, v, mask, positions, lengths })?;
        if y.shape() != output.shape() || dy.shape() != output.shape() {
            return Err(misshapen!(y, dy, q, v; "y and dy of {}, attention's output", output.shape()));
        }
        Ok(params)
    }
}

impl Operator for AttentionGradient {
    fn name(&self) -> &'static str {
        "attention_gradient"
    }

    fn outputs(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        let inputs = Inputs::new(inputs)?;
        self.params(inputs)?;
        Ok([inputs.q, inputs.k, inputs.v].iter().map(|info| TensorInfo::of(info.dtype, *info.shape())).collect())
    }

    fn plan(&self, inputs: &[Option<TensorInfo>], outputs: &[TensorInfo], device: &DeviceProperties) -> Result<Plan> {
        let inputs = Inputs::new(inputs)?;
        let (params, buffers) = (self.params(inputs)?, inputs.parameters(outputs)?);
        let s = &params.score;
        let types = [inputs.q.dtype, inputs.k.dtype, inputs.dtype(AT.mask)];
        let attended = [s.batch * s.heads, s.attended_at_the_end()].map(|extent| extent as usize);
        let operations = product_operations(&[attended[0], attended[1], (4 * s.width + 3 * params.value_width) as usize]);
        let is_empty = outputs.iter().all(|output| output.elements() == 0);
        if device.simd_width <= 1 {
            let launch = Launch::new(KernelKey::new("attention_gradient", &types), cpu::run, &params, buffers);
            return Ok(Plan::from(launch.over(Extent::linear(u32::from(!is_empty)), Extent::linear(1))).with_operations(operations));
        }
        if self.precision.is_fast()
            && let Some(plan) = tensor_cores::plan(&params, inputs, &buffers, device)
        {
            return Ok(plan.with_operations(operations));
        }
        let width = s.width.max(params.value_width);
        if width > MAX_WIDTH {
            return Err(Error::unsupported(format!("heads of {width} elements: at most {MAX_WIDTH} on a GPU")));
        }
        let columns = (width as u32).div_ceil(32).next_power_of_two();
        let key = |name| KernelKey::new(name, &types).with("columns", columns);
        let rows = s.batch * s.heads * s.queries;
        let [q, k, v, mask, positions, lengths, y, dy, dq, dk, dv] = buffers;
        let statistics = |parameter| (parameter, Argument::Scratch(0));
        let given = [q, k, v, mask, positions, lengths];
        let queries = given.clone().into_iter().chain([y, dy.clone(), dq, statistics(Parameter::write("statistics", DType::F32))]);
        let keys = given.into_iter().chain([dy, statistics(Parameter::read("statistics", DType::F32)), dk, dv]);
        let over = |launch: Launch, rows: u64| {
            let groups = if is_empty { 0 } else { rows.div_ceil(SIMDGROUPS).min(u32::MAX.into()) as u32 };
            launch.over(Extent::linear(groups), Extent::linear(32 * SIMDGROUPS as u32))
        };
        let launches = vec![
            over(Launch::on_gpu(key("attention_gradient_queries"), QUERIES, &params, queries), rows),
            over(Launch::on_gpu(key("attention_gradient_keys"), KEYS, &params, keys), s.batch * s.kv_heads * s.keys),
        ];
        Ok(Plan { launches, scratch: vec![12 * rows as usize] }.with_operations(operations))
    }

    fn precision(&self) -> Precision {
        self.precision
    }

    fn strict(&self) -> Option<Arc<dyn Operator>> {
        Some(Arc::new(Self { precision: Precision::Strict, ..*self }))
    }

    fn accepts_strides(&self, index: usize) -> bool {
        index <= AT.mask
    }
}

/// The gradient of attention, which is no constant's: that of a mask is none.
pub(super) fn gradient(attention: &Attention, inputs: &[Option<TensorInfo>], upstream: &[Option<TensorInfo>], wanted: &[bool]) -> Result<Definition> {
    let mut found = None;
    Gradient::new(attention, inputs, upstream)?.of(wanted, |gradient, index| {
        if index > AT.v {
            return Err(Error::unsupported("attention has no gradient of its mask"));
        }
        if gradient.input(AT.k)?.info.dtype == DType::U8 {
            return Err(Error::unsupported("attention has no gradient over packed keys and values: train with floats"));
        }
        let found = match &found {
            Some(found) => found,
            None => {
                let mut given: Vec<_> = (AT.q..=AT.lengths).map(|index| gradient.optional(index)).collect();
                given.extend([gradient.output(0)?, gradient.upstream(0)?].map(Some));
                let precision = attention.precision.of_gradients();
                let operator = AttentionGradient { tokens_first: attention.tokens_first, precision, scoring: attention.scoring };
                &*found.insert(gradient.apply_all(operator, &given)?)
            }
        };
        found.get(index).copied().ok_or_else(|| Error::internal("the gradient of attention has too few results"))
    })
}

pub(crate) const DESCRIPTIONS: &[Description] = &[Description {
    name: "attention_gradient",
    summary: "the gradients of attention's queries, keys and values",
    inputs: operands::INPUTS,
    outputs: operands::OUTPUTS,
    attributes: &joined::<{ Scoring::ATTRIBUTES.len() + AttentionGradient::ATTRIBUTES.len() }>(Scoring::ATTRIBUTES, AttentionGradient::ATTRIBUTES),
    build: |a| Ok(Box::new(AttentionGradient::read(a, Scoring::read(a)?)?)),
}];
