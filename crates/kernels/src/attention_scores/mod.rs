//! The scores of attention, or their softmax, as a tensor: `softcap(scale · q kᵀ) + mask`, −∞ where a key is not attended.
//!
//! For looking at what [`crate::attention`] does, and for what it does not offer; the fused operator needs no memory for scores. The score
//! before the soft cap, before the mask or after it is had by leaving out the attributes and inputs that follow.
//!
//! * Memory: `k` is read once for every 64 rows of queries, and each score written once.
//! * Order: a score as in [`crate::attention`], then one rounding. Softmax: from the unrounded scores, in the order of [`crate::softmax`], so
//!   that it depends on the number of keys; a query that attends no key gives zeros.
//! * Error of a score, before the rounding: `(12 E + 4 |s|) · 2^-24` with `E = |scale| Σ |q_i k_i|`.

mod cpu;
#[cfg(any(test, feature = "conformance"))]
pub(crate) mod oracle;

use bytemuck::{Pod, Zeroable};
use elinvar_core::{DType, DeviceProperties, Extent, KernelKey, Parameter, Result};

use crate::{
    Argument, AttributeInfo, AttributeKind, Description, Launch, Operator, Plan, Port, TensorInfo,
    attention::{ATTRIBUTES, LENGTHS_PORT, MASK_PORT, POSITIONS_PORT, ROWS, ScoreParams, Scoring},
    optional, required,
};

/// Attention's scores.
///
/// Inputs as for [`Attention`](crate::attention::Attention), without `v`: `q [B, Hq, Tq, D]`, `k [B, Hkv, Tk, D]` and, optionally, `mask`, `positions`,
/// `lengths`. Output `[B, Hq, Tq, Tk]` of `q`'s type.
#[derive(Clone, Copy, Debug, Default)]
pub struct AttentionScores {
    /// How scores are made, and which keys are attended.
    pub scoring: Scoring,
    /// Give the softmax of each row.
    pub softmax: bool,
}

/// What the kernel gets besides its buffers.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Params {
    /// The scores.
    pub score: ScoreParams,
    /// One for the softmax of each row, else zero.
    pub softmax: u64,
}

impl Operator for AttentionScores {
    fn infer(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        self.scoring.params(inputs, 2)?;
        let (q, k) = (required(inputs, 0, "q")?, required(inputs, 1, "k")?);
        Ok(vec![TensorInfo::new(q.dtype, &[q.shape()[0], q.shape()[1], q.shape()[2], k.shape()[2]])?])
    }

    fn plan(&self, inputs: &[Option<TensorInfo>], outputs: &[TensorInfo], _device: &DeviceProperties) -> Result<Plan> {
        let params = Params { score: self.scoring.params(inputs, 2)?, softmax: self.softmax.into() };
        let (q, k) = (required(inputs, 0, "q")?.dtype, required(inputs, 1, "k")?.dtype);
        let mask = optional(inputs, 2).map(|m| m.dtype);
        let dtypes: Vec<_> = [q, k].into_iter().chain(mask).collect();
        let buffers = [
            (Parameter::read("q", q), Argument::Input(0)),
            (Parameter::read("k", k), Argument::Input(1)),
            (Parameter::read("mask", mask.unwrap_or(DType::Bool)).or_absent(), Argument::Input(2)),
            (Parameter::read("positions", DType::I32).or_absent(), Argument::Input(3)),
            (Parameter::read("lengths", DType::I32).or_absent(), Argument::Input(4)),
            (Parameter::write("y", q), Argument::Output(0)),
        ];
        let launch = Launch::new(KernelKey::new("attention_scores", &dtypes), cpu::run, &params, buffers);
        let extent = |n: u64| n.min(u64::from(u32::MAX)) as u32;
        let tiles = (params.score.queries * params.score.group() as u64).div_ceil(ROWS);
        let empty = outputs.iter().all(|y| y.elements() == 0);
        let grid = if empty { [0; 3] } else { [tiles, params.score.kv_heads, params.score.batch].map(extent) };
        Ok(launch.over(Extent(grid), Extent::linear(256)).into())
    }

    fn accepts_strides(&self, index: usize) -> bool {
        index < 3
    }
}

const INPUTS: &[Port] = &[
    Port::new("q", DType::FLOATS, "[B, Hq, Tq, D]"),
    Port::new("k", DType::FLOATS, "[B, Hkv, Tk, D], of q's type or any beside an f32 q"),
    MASK_PORT,
    POSITIONS_PORT,
    LENGTHS_PORT,
];
const OUTPUTS: &[Port] = &[Port::new("y", DType::FLOATS, "[B, Hq, Tq, Tk], of q's type")];
const SOFTMAX: AttributeInfo =
    AttributeInfo { name: "softmax", kind: AttributeKind::Bool, default: Some("false"), doc: "give the softmax of each row of scores" };

pub(crate) const DESCRIPTIONS: &[Description] = &[Description {
    name: "attention_scores",
    summary: "softcap(scale q k^T) + mask, -inf where a key is not attended; or the softmax of it",
    inputs: INPUTS,
    outputs: OUTPUTS,
    attributes: {
        const ALL: [AttributeInfo; 7] = {
            let [a, b, c, d, e, f] = ATTRIBUTES;
            [a, b, c, d, e, f, SOFTMAX]
        };
        &ALL
    },
    build: |a| Ok(Box::new(AttentionScores { scoring: Scoring::from_attributes(a)?, softmax: a.flag("softmax")? })),
}];
