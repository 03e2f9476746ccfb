//! The cross-entropy of rows of logits with the class that each should have, and its gradient, without a row of probabilities in memory.
//!
//! `loss = log S − (x_t − m)` with `m = max x`, `S = Σ exp(x − m)` and the target `t`; the gradient is `(exp(x − m) · (1 / S) − [k = t]) · g`. Computed in f32;
//! the gradient is rounded once.
//!
//! * Memory: a row is read once, and once more for the gradient, which is written once. A gradient that is given the loss's statistics, `m` and `S`, reads
//!   the row only then. A recorder takes a loss and its gradient in one launch.
//! * Order: that of [`crate::order`], in one pass, in which `m` is not known yet. A thread adds `exp(x − o)`, where its origin `o` is the least finite number
//!   at first. If the largest logit of a visit is more than 4 above it, by `x − o`, that logit becomes the origin before the visit is added, and the thread's
//!   sums are multiplied by `exp(o − x)`. At the end they are multiplied by `exp(o − m)`. What a factor below 1 makes less than 2^-100 is 0. In rows of up to
//!   256 logits, which a thread visits once, `o` is `m`. The exponential is [`exp_nonpositive`](crate::math::exp_nonpositive).
//! * Error against exact arithmetic: an exponential is taken from at most 4 above its origin, so that its argument rounds by `2 · 2^-24`; of the
//!   multiplications three count, `5 · 2^-24` each, for others are of sums that have become less than `e^-4` of the last. Of the loss
//!   `(d(n) + 22) · 2^-24` absolute beside `3 · 2^-24` relative; of the gradient, before its rounding, `(|x − m| + d(n) + 25) · 2^-24 · |g|`.
//! * A loss that is reduced is the sum of the rows' in the canonical order, or that divided by how many targets count: NaN if none does. It takes a second
//!   launch, whose error is that of [`crate::reduce`].
//! * Targets are i32, i64 or u32; negative ones count from the end, and one outside is an error of the submission, with a loss of NaN. A target that is `ignore_index` has
//!   neither loss nor gradient.

mod cpu;
mod exponentials;
#[cfg(any(test, feature = "conformance"))]
pub(crate) mod oracle;

use elinvar_core::{DType, DeviceProperties, Error, KernelKey, MetalFile, MetalForm, Parameter, Result, Shape};

use crate::{
    Argument, Definition, Description, Launch, Operator, Plan, TensorInfo,
    attributes::attributes,
    binary::BinaryOp,
    compare::CompareOp,
    description::describe,
    elementwise::{self, Operand, Space, dispatch::named},
    gather::index,
    gradient::{self, Gradient},
    math,
    metal::{self, metal_file, params},
    order,
    reduce::{Reduce, Reduction},
    rows::Rows,
    signature::{misshapen, operands},
};

const FILES: &[MetalFile] = &[
    metal::TYPES,
    Space::METAL,
    Operand::METAL,
    elementwise::METAL,
    math::METAL,
    order::METAL,
    index::METAL,
    Rows::METAL,
    Params::METAL,
    metal_file!("cross_entropy/cross_entropy.metal"),
];
const LOSS: MetalForm = MetalForm::new(FILES, "cross_entropy").with_error_flag(index::OUTSIDE);
const TOTAL: MetalForm = MetalForm::new(FILES, "cross_entropy_total");
const GRADIENT: MetalForm = MetalForm::new(FILES, "cross_entropy_gradient").with_error_flag(index::OUTSIDE);

named! {
    /// What becomes of the losses of all places.
    #[derive(Default)]
    pub enum LossReduction("reduction") {
        /// They are the result, in the shape of the targets.
        #[default]
        None "none",
        /// Their sum, divided by that of the weights of the places that count: NaN if none does.
        Mean "mean",
        /// Their sum.
        Sum "sum",
    }
}

attributes! {
    /// The cross-entropy of each row, or of all of them. Inputs `logits […, classes]` and `targets […]`; output `[…]`, f32, or `[]` where it is reduced, and the
    /// statistics where they are wanted.
    #[derive(Clone, Copy, Debug, Default)]
    pub struct CrossEntropy {
        /// The target of rows that do not count.
        pub ignore_index: Option<isize>,
        /// Also give `m` and `Σ e` of each row, with which the gradient looks at a row once.
        pub statistics: bool = false,
        /// What becomes of the rows' losses.
        pub reduction: LossReduction = none,
    }
}

attributes! {
    /// The gradient of [`CrossEntropy`] by its logits. Inputs as there, the gradient of the losses and, optionally, the statistics; output of the logits' shape
    /// and type, and the losses themselves where they are wanted too.
    #[derive(Clone, Copy, Debug, Default)]
    pub struct CrossEntropyGradient {
        /// As [`CrossEntropy::ignore_index`].
        pub ignore_index: Option<isize>,
    } and {
        /// Gives the losses too.
        pub with_loss: bool,
    }
}

params! {
    struct Params {
        pub rows: Rows,
        /// The target that is ignored.
        pub ignored: i64,
        /// Whether there is one.
        pub ignores: u32,
        /// Whether a gradient has the losses beside it.
        pub with_loss: u32,
        /// Whether a loss gives statistics, or a gradient takes them.
        pub statistics: u32,
        /// Whether a total is divided by how many targets count.
        pub mean: u32,
    }
}

operands! {
    logits: read(DType::FLOATS), "[…, classes]";
    targets: read(index::TYPES), "[…], the class of each row; negative ones count from the end";
    -> loss: write(&[DType::F32]), "[…], or [] where it is reduced";
    max: write(&[DType::F32]) optional, "with statistics: […], the largest logit";
    sum: write(&[DType::F32]) optional, "with statistics: […], the sum of exp(logits - max)";
}

operands! {
    mod backward {
        logits: read(DType::FLOATS), "[…, classes]";
        targets: read(index::TYPES), "[…], the class of each row; negative ones count from the end";
        dloss: read(&[DType::F32]), "[…], the gradient of each loss";
        max: read(&[DType::F32]) optional, "[…], of the statistics of cross_entropy: both or none";
        sum: read(&[DType::F32]) optional, "[…], of the statistics of cross_entropy";
        -> dlogits: write(like logits), "as logits";
        loss: write(&[DType::F32]) optional, "of cross_entropy_with_gradient: […]";
    }
}

/// The losses' shape.
fn checked(logits: TensorInfo, targets: TensorInfo) -> Result<Shape> {
    let Some((&classes, rows)) = logits.shape().split_last() else { return Err(misshapen!(logits; "[…, classes]")) };
    if targets.shape()[..] != *rows {
        return Err(misshapen!(targets, logits; "targets of {rows:?}"));
    }
    if classes == 0 && targets.elements() > 0 {
        return Err(misshapen!(logits; "at least one class"));
    }
    Shape::new(rows)
}

fn params(logits: TensorInfo, ignore_index: Option<isize>, with_loss: bool, statistics: bool) -> Result<Params> {
    let (rows, ignored) = (Rows::new(logits.shape(), -1)?, ignore_index.unwrap_or_default() as i64);
    Ok(Params { rows, ignored, ignores: ignore_index.is_some().into(), with_loss: with_loss.into(), statistics: statistics.into(), mean: 0 })
}

/// The key of a kernel over these rows, with how many threads share one, unless it shares a simdgroup with others.
fn key(name: &'static str, types: &[DType; 2], rows: &Rows) -> KernelKey {
    let length = rows.length as usize;
    let count = if order::row_lanes(length) == 32 { order::row_threads(length) as u32 } else { 0 };
    KernelKey::new(name, types).with("count", count).with("threads", order::row_threads_bound(length))
}

impl Operator for CrossEntropy {
    fn name(&self) -> &'static str {
        "cross_entropy"
    }

    fn outputs(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        let operands::Inputs { logits, targets } = operands::Inputs::new(inputs)?;
        let mut outputs = vec![TensorInfo::of(DType::F32, checked(logits, targets)?); if self.statistics { 3 } else { 1 }];
        if self.reduction != LossReduction::None {
            outputs[0] = TensorInfo::of(DType::F32, Shape::new(&[])?);
        }
        Ok(outputs)
    }

    fn plan(&self, inputs: &[Option<TensorInfo>], outputs: &[TensorInfo], device: &DeviceProperties) -> Result<Plan> {
        let inputs = operands::Inputs::new(inputs)?;
        let (params, types) = (params(inputs.logits, self.ignore_index, false, self.statistics)?, [inputs.logits.dtype, inputs.targets.dtype]);
        let kernel = cpu::loss(types[0], types[1])?;
        let mut buffers = inputs.parameters(outputs)?;
        let total = match self.reduction {
            LossReduction::None => None,
            LossReduction::Mean | LossReduction::Sum => {
                let losses = (Parameter::read("losses", DType::F32), Argument::Scratch(0));
                let given = [losses, buffers[operands::AT.targets].clone(), buffers[operands::AT.loss].clone()];
                buffers[operands::AT.loss].1 = Argument::Scratch(0);
                let (params, count) = (Params { mean: (self.reduction == LossReduction::Mean).into(), ..params }, inputs.targets.elements());
                let key = KernelKey::new("cross_entropy_total", &types[1..]).with("threads", order::row_threads_bound(count));
                let [grid, threadgroup] = order::row_launch(1, count, device);
                let launch = Launch::new(key, cpu::total(types[1])?, &params, given).with_metal(TOTAL).over(grid, threadgroup);
                Some((launch.with_threadgroup_memory(2 * order::PARTIALS), count))
            }
        };
        let launch = Launch::new(key("cross_entropy", &types, &params.rows), kernel, &params, buffers);
        let mut plan: Plan = params.rows.launch(launch.with_metal(LOSS), device).with_threadgroup_memory(2 * order::PARTIALS).into();
        if let Some((launch, count)) = total {
            plan.launches.push(launch);
            plan.scratch.push(4 * count.max(1));
        }
        Ok(plan)
    }

    fn gradient(&self, inputs: &[Option<TensorInfo>], upstream: &[Option<TensorInfo>], wanted: &[bool]) -> Result<Definition> {
        if upstream.iter().skip(1).any(Option::is_some) {
            return Err(Error::unsupported("cross_entropy has no gradient of its statistics"));
        }
        Gradient::new(self, inputs, upstream)?.of(wanted, |gradient, _| {
            let (logits, targets, mut dloss) = (gradient.input(operands::AT.logits)?, gradient.input(operands::AT.targets)?, gradient.upstream(0)?);
            if self.reduction == LossReduction::Mean {
                let count = self.count(gradient, targets)?;
                dloss = gradient.binary(BinaryOp::Div, dloss, count)?;
            }
            let mut given = vec![logits, targets, gradient.broadcast(dloss, targets.info.shape())?];
            if self.statistics {
                given.extend([gradient.output(1)?, gradient.output(2)?]);
            }
            gradient.apply(CrossEntropyGradient { ignore_index: self.ignore_index, with_loss: false }, &given)
        })
    }
}

impl CrossEntropy {
    /// How many targets count, as a number in f32.
    fn count(&self, gradient: &mut Gradient, targets: crate::Operand) -> Result<crate::Operand> {
        let Some(ignored) = self.ignore_index else { return gradient.number(DType::F32, targets.info.elements() as f64) };
        let (targets, ignored) = (gradient.cast(targets, DType::I64)?, gradient.number(DType::I64, ignored as f64)?);
        let counts = gradient.compare(CompareOp::Ne, targets, ignored)?;
        let counts = gradient.cast(counts, DType::F32)?;
        gradient.apply(Reduce { reduction: Reduction::Sum, axes: Vec::new(), keepdims: false }, &[counts])
    }
}

impl Operator for CrossEntropyGradient {
    fn name(&self) -> &'static str {
        if self.with_loss { "cross_entropy_with_gradient" } else { "cross_entropy_gradient" }
    }

    fn outputs(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        let backward::Inputs { logits, targets, dloss, max, sum } = backward::Inputs::new(inputs)?;
        if *dloss.shape() != checked(logits, targets)? {
            return Err(misshapen!(dloss, targets; "one shape"));
        }
        match (max, sum) {
            (None, None) => {}
            (Some(max), Some(_)) if max.shape() != dloss.shape() => return Err(misshapen!(max, targets; "one shape")),
            (Some(_), Some(sum)) if sum.shape() != dloss.shape() => return Err(misshapen!(sum, targets; "one shape")),
            (Some(_), Some(_)) => {}
            (Some(_), None) | (None, Some(_)) => return Err(misshapen!(logits; "max and sum, or neither, beside it")),
        }
        let outputs = [TensorInfo::of(logits.dtype, *logits.shape()), TensorInfo::of(DType::F32, *dloss.shape())];
        Ok(outputs[..if self.with_loss { 2 } else { 1 }].to_vec())
    }

    fn plan(&self, inputs: &[Option<TensorInfo>], outputs: &[TensorInfo], device: &DeviceProperties) -> Result<Plan> {
        let inputs = backward::Inputs::new(inputs)?;
        let (types, given) = ([inputs.logits.dtype, inputs.targets.dtype], inputs.max.is_some());
        let params = params(inputs.logits, self.ignore_index, self.with_loss, given)?;
        let kernel = cpu::gradient(types[0], types[1])?;
        let launch = Launch::new(key("cross_entropy_gradient", &types, &params.rows), kernel, &params, inputs.parameters(outputs)?);
        Ok(params.rows.launch(launch.with_metal(GRADIENT), device).with_threadgroup_memory(2 * order::PARTIALS).into())
    }

    fn stands_for(&self, inputs: &[Option<TensorInfo>]) -> Result<Option<Definition>> {
        self.infer(inputs)?;
        if !self.with_loss {
            return Ok(None);
        }
        let (mut definition, at) = (Definition::new(inputs), backward::AT);
        let given = [at.logits, at.targets, at.dloss, at.max, at.sum].map(|index| definition.input(index));
        let loss = definition.apply_one(CrossEntropy { ignore_index: self.ignore_index, ..CrossEntropy::default() }, &given[..2])?;
        let dlogits = definition.apply_one(Self { with_loss: false, ..*self }, &given)?;
        definition.outputs = vec![dlogits, loss];
        Ok(Some(definition))
    }

    fn gradient(&self, _: &[Option<TensorInfo>], _: &[Option<TensorInfo>], _: &[bool]) -> Result<Definition> {
        Err(gradient::none(self))
    }
}

pub(crate) const DESCRIPTIONS: &[Description] = &[
    describe!("cross_entropy", "minus the logarithm of the softmax of each row, at the class it should have", operands, CrossEntropy),
    describe!("cross_entropy_gradient", "the gradient of cross_entropy by its logits", backward, CrossEntropyGradient(false)),
    describe!("cross_entropy_with_gradient", "the gradient of cross_entropy by its logits, and the losses", backward, CrossEntropyGradient(true)),
];
