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

use elinvar_core::{DType, DeviceKind, DeviceProperties, Error, Extent, KernelKey, MetalFile, MetalForm, Parameter, Result};

use crate::{
    Argument, Definition, Description, Launch, Operand, Operator, Plan, TensorInfo,
    attention::{MaskView, ScoreParams, Scoring, View, scoring},
    attributes::{attributes, joined},
    binary::BinaryOp,
    compare::CompareOp,
    gradient::Gradient,
    launch::product_operations,
    math,
    matmul::MatMul,
    metal::{self, metal_file, params},
    order,
    reduce::Reduction,
    rows::Rows,
    signature::operands,
    softmax,
    weighted_sum::shared_rows,
};

attributes! {
    /// Attention's scores.
    ///
    /// Inputs as for [`Attention`](crate::attention::Attention), without `v`: `q [B, Hq, Tq, D]`, `k [B, Hkv, Tk, D]` and, optionally, `mask`, `positions`,
    /// `lengths`. Output `[B, Hq, Tq, Tk]` of `q`'s type.
    #[derive(Clone, Copy, Debug, Default)]
    pub struct AttentionScores {
        /// Give the softmax of each row.
        pub softmax: bool = false,
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
        /// One for the softmax of each row, else zero.
        pub softmax: u64,
    }
}

const FILES: &[MetalFile] = &[
    metal::TYPES,
    math::METAL,
    order::METAL,
    View::METAL,
    MaskView::METAL,
    ScoreParams::METAL,
    scoring::METAL,
    Params::METAL,
    metal_file!("attention_scores/attention_scores.metal"),
];

const PROBABILITIES: &[MetalFile] =
    &[metal::TYPES, math::METAL, order::METAL, Rows::METAL, softmax::ROW, metal_file!("attention_scores/probabilities.metal")];

operands! {
    q: read(DType::FLOATS), "[B, Hq, Tq, D]";
    k: read(DType::FLOATS), "[B, Hkv, Tk, D], of q's type or any beside an f32 q";
    mask: read(scoring::MASKS) optional, scoring::MASK;
    positions: read(&[DType::I32]) optional, scoring::POSITIONS;
    lengths: read(&[DType::I32]) optional, scoring::LENGTHS;
    -> y: write(DType::FLOATS), "[B, Hq, Tq, Tk], of q's type";
}

impl AttentionScores {
    fn params(&self, operands::Inputs { q, k, mask, positions, lengths }: operands::Inputs) -> Result<Params> {
        Ok(Params { score: self.scoring.params([q, k], mask, positions, lengths)?, softmax: self.softmax.into() })
    }
}

impl AttentionScores {
    fn scale(&self, q: &[usize]) -> f32 {
        self.scoring.scale.unwrap_or_else(|| 1.0 / q.last().map_or(1.0, |&width| width as f32).sqrt())
    }

    /// The gradient of the scaled dot products, in f32; zero where no key is attended.
    fn gradient_of_dots(&self, gradient: &mut Gradient) -> Result<Operand> {
        let (y, upstream) = (gradient.output(0)?, gradient.upstream(0)?);
        let (y, upstream) = (gradient.widened(y)?, gradient.widened(upstream)?);
        let zero = gradient.number(DType::F32, 0.0)?;
        let none = gradient.number(DType::F32, f64::NEG_INFINITY)?;
        let mut found = if self.softmax {
            let parts = gradient.mul(y, upstream)?;
            let sum = gradient.reduce(Reduction::Sum, parts, &[3])?;
            let difference = gradient.binary(BinaryOp::Sub, upstream, sum)?;
            gradient.mul(y, difference)?
        } else {
            let is_none = gradient.compare(CompareOp::Eq, y, none)?;
            gradient.choose(is_none, zero, upstream)?
        };
        if self.scoring.softcap > 0.0 {
            // 1 − tanh², of the scores before the mask.
            let capped = AttentionScores { softmax: false, ..*self };
            let given: Vec<_> = [operands::AT.q, operands::AT.k].map(|at| gradient.optional(at)).into_iter().chain([None]).collect();
            let rest = [operands::AT.positions, operands::AT.lengths].map(|at| gradient.optional(at));
            let scores = gradient.apply_all(capped, &[given, rest.to_vec()].concat())?;
            let Some(&scores) = scores.first() else { return Err(Error::internal("scores have no result")) };
            let scores = gradient.widened(scores)?;
            let (tanh, one) = (gradient.with_scalar(BinaryOp::Div, scores, self.scoring.softcap.into())?, gradient.number(DType::F32, 1.0)?);
            let square = gradient.mul(tanh, tanh)?;
            let (slope, is_none) = (gradient.binary(BinaryOp::Sub, one, square)?, gradient.compare(CompareOp::Eq, scores, none)?);
            found = gradient.mul(found, slope)?;
            found = gradient.choose(is_none, zero, found)?;
        }
        Ok(found)
    }
}

impl Operator for AttentionScores {
    fn name(&self) -> &'static str {
        "attention_scores"
    }

    fn outputs(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        let inputs = operands::Inputs::new(inputs)?;
        self.params(inputs)?;
        let operands::Inputs { q, k, .. } = inputs;
        Ok(vec![TensorInfo::new(q.dtype, &[q.shape()[0], q.shape()[1], q.shape()[2], k.shape()[2]])?])
    }

    fn plan(&self, inputs: &[Option<TensorInfo>], outputs: &[TensorInfo], device: &DeviceProperties) -> Result<Plan> {
        let inputs = operands::Inputs::new(inputs)?;
        let (params, y) = (self.params(inputs)?, inputs.q.dtype);
        let count = outputs.iter().map(TensorInfo::elements).sum::<usize>();
        if !self.softmax || count == 0 || device.kind == DeviceKind::Cpu {
            return Ok(scores(inputs, outputs, &params, y, Argument::Output(0))?.into());
        }
        // On a GPU the scores of a row come from many threadgroups, and go through memory before their softmax.
        let rows = Rows { outer: params.score.batch * params.score.heads * params.score.queries, length: params.score.keys, inner: 1 };
        let buffers = [(Parameter::read("scores", DType::F32), Argument::Scratch(0)), (Parameter::write("y", y), Argument::Output(0))];
        let form = MetalForm::new(PROBABILITIES, "attention_probabilities");
        let softmax = Launch::on_gpu(KernelKey::new("attention_probabilities", &[y]), form, &rows, buffers);
        let softmax = rows.launch(softmax, device).with_threadgroup_memory(2 * order::PARTIALS);
        let launches = vec![scores(inputs, outputs, &params, DType::F32, Argument::Scratch(0))?, softmax];
        Ok(Plan { launches, scratch: vec![count * size_of::<f32>()] })
    }

    fn accepts_strides(&self, index: usize) -> bool {
        index < 3
    }

    fn gradient(&self, inputs: &[Option<TensorInfo>], upstream: &[Option<TensorInfo>], wanted: &[bool]) -> Result<Definition> {
        let mut found = None;
        Gradient::new(self, inputs, upstream)?.of(wanted, |gradient, index| {
            if index > operands::AT.k {
                return Err(Error::unsupported("attention_scores has no gradient of its mask"));
            }
            let (q, k) = (gradient.input(operands::AT.q)?, gradient.input(operands::AT.k)?);
            let dots = match found {
                Some(found) => found,
                None => *found.insert(self.gradient_of_dots(gradient)?),
            };
            let product = MatMul { output: Some(DType::F32), alpha: self.scale(q.info.shape()), ..MatMul::default() };
            let dots = shared_rows(gradient, dots, k)?;
            if index == operands::AT.q {
                let found = gradient.apply(product, &[dots, k])?;
                return gradient.reshape(found, q.info.shape());
            }
            let q = shared_rows(gradient, q, k)?;
            gradient.apply(MatMul { transpose_a: true, ..product }, &[dots, q])
        })
    }
}

/// The launch that makes the scores, as elements of type `y`.
fn scores(inputs: operands::Inputs, outputs: &[TensorInfo], params: &Params, y: DType, to: Argument) -> Result<Launch> {
    let mut buffers = inputs.parameters(&[TensorInfo::of(y, *outputs[0].shape())])?;
    buffers[operands::AT.y].1 = to;
    let key = KernelKey::new("attention_scores", &[inputs.q.dtype, inputs.k.dtype, inputs.dtype(operands::AT.mask), y]);
    let form = MetalForm::new(FILES, "attention_scores");
    let launch = if matches!(to, Argument::Scratch(_)) {
        Launch::on_gpu(key, form, params, buffers)
    } else {
        Launch::new(key, cpu::run, params, buffers).with_metal(form)
    };
    let s = &params.score;
    let extents = [s.batch * s.heads, s.attended_at_the_end(), s.width].map(|extent| extent as usize);
    let launch = launch.with_operations(product_operations(&extents));
    let extent = |n: u64| n.min(u64::from(u32::MAX)) as u32;
    // A simdgroup for four rows and 32 keys, up to four of them side by side.
    let simdgroups = s.keys.div_ceil(32).clamp(1, 4);
    let tiles = s.keys.div_ceil(32 * simdgroups) * (s.queries * s.group() as u64).div_ceil(4);
    let empty = outputs.iter().all(|y| y.elements() == 0);
    let grid = if empty { [0; 3] } else { [tiles, s.kv_heads, s.batch].map(extent) };
    Ok(launch.over(Extent(grid), Extent::linear(32 * simdgroups as u32)))
}

pub(crate) const DESCRIPTIONS: &[Description] = &[Description {
    name: "attention_scores",
    summary: "softcap(scale q k^T) + mask, -inf where a key is not attended; or the softmax of it",
    inputs: operands::INPUTS,
    outputs: operands::OUTPUTS,
    attributes: &joined::<{ Scoring::ATTRIBUTES.len() + AttentionScores::ATTRIBUTES.len() }>(Scoring::ATTRIBUTES, AttentionScores::ATTRIBUTES),
    build: |a| Ok(Box::new(AttentionScores::read(a, Scoring::read(a)?)?)),
}];
