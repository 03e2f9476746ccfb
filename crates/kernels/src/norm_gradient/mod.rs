//! The gradients of [`RmsNorm`](crate::rms_norm::RmsNorm) and [`LayerNorm`](crate::layer_norm::LayerNorm) by their rows.
//!
//! With `c = x − μ` (`μ = 0` for `rms_norm`), `r = 1 / sqrt(Σ c² / n + ε)`, `v = c · r` and `h = g · w` of the gradient `g`:
//! `dx = ((h − Σ h / n) − v · (Σ h c · r / n)) · r`, for `rms_norm` without `Σ h / n`. Computed in f32, rounded once. `r` and `μ` are outputs too, for
//! [`NormWeightGradient`]. An addend, which is what a residual stream has as its gradient, is added to the rounded `dx`.
//!
//! * Memory: the rows are read once and the result is written once; the later looks at rows that registers do not hold hit the cache.
//! * Order: the sums are folded in the row order of [`crate::order`], products by fma; `μ` and `r` have the bits of the norms.
//! * Error against exact arithmetic, before the rounding of the output: `(d(n) + 10) · 2^-24 · (max |h| + |v| Σ |h v| / n) · r`.

mod cpu;
#[cfg(any(test, feature = "conformance"))]
pub(crate) mod oracle;

use elinvar_core::{DType, DeviceProperties, KernelKey, MetalFile, MetalForm, Result, Shape};

use crate::{
    Definition, Description, Launch, Operand, Operator, Plan, TensorInfo,
    attributes::attributes,
    binary::{Binary, BinaryOp},
    description::describe,
    gradient::{self, Gradient},
    metal::{self, metal_file, params},
    norm_weight_gradient::NormWeightGradient,
    order,
    rms_norm::check_weight,
    rows::Rows,
    signature::{misshapen, operands},
};

attributes! {
    /// The gradient of a norm by its rows. Inputs `x […]`, `weight` of the normalised axes' shape, optional, `dy`, as `x`, and an `addend`, as `x`, optional; outputs
    /// `dx` or the sum of that and the addend, as `x`, and f32, of the shape of `x` with extents of one for the normalised axes, `r` and, of `layer_norm`, `μ`.
    #[derive(Clone, Copy, Debug)]
    pub struct NormGradient {
        /// The first normalised axis; negative counts from the end.
        pub axis: isize = -1,
        /// Added to the mean of the squares, or to the variance.
        pub epsilon: f32 = 1e-5,
    } and {
        /// Of `layer_norm`.
        pub centred: bool,
    }
}

params! {
    struct Params {
        pub rows: Rows,
        pub epsilon: f32,
        /// Whether there is a weight.
        pub weighted: u32,
        /// Whether there is an addend.
        pub added: u64,
    }
}

const FILES: &[MetalFile] = &[metal::TYPES, order::METAL, Rows::METAL, Params::METAL, metal_file!("norm_gradient/norm_gradient.metal")];

operands! {
    x: read(DType::FLOATS), "[…]";
    weight: read(DType::FLOATS) optional, "the shape of x from axis on; 1 where absent";
    dy: read(like x), "the gradient of the norm, as x";
    addend: read(like x) optional, "what is added to the gradient, as x";
    -> dx: write(like x), "as x";
    scale: write(&[DType::F32]), "the inverse deviation: the shape of x, 1 from axis on";
    mean: write(&[DType::F32]) optional, "of layer_norm: the mean, as scale";
}

impl Operator for NormGradient {
    fn name(&self) -> &'static str {
        if self.centred { "layer_norm_gradient" } else { "rms_norm_gradient" }
    }

    fn outputs(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        let operands::Inputs { x, weight, dy, addend } = operands::Inputs::new(inputs)?;
        check_weight(("x", x), self.axis, ("weight", weight))?;
        if x.shape() != dy.shape() {
            return Err(misshapen!(dy, x; "one shape"));
        }
        if let Some(addend) = addend.filter(|addend| addend.shape() != x.shape()) {
            return Err(misshapen!(addend, x; "one shape"));
        }
        let mut dims = x.shape().to_vec();
        dims[x.shape().axis(self.axis)?..].fill(1);
        let statistics = TensorInfo::of(DType::F32, Shape::new(&dims)?);
        let outputs = [TensorInfo::of(x.dtype, *x.shape()), statistics, statistics];
        Ok(outputs[..if self.centred { 3 } else { 2 }].to_vec())
    }

    fn plan(&self, inputs: &[Option<TensorInfo>], outputs: &[TensorInfo], device: &DeviceProperties) -> Result<Plan> {
        let inputs = operands::Inputs::new(inputs)?;
        let (x, weight) = (inputs.x, inputs.dtype(operands::AT.weight));
        let rows = Rows::from_axis(x.shape(), self.axis)?;
        let params = Params { rows, epsilon: self.epsilon, weighted: inputs.weight.is_some().into(), added: inputs.addend.is_some().into() };
        let key = rows
            .key(KernelKey::new("norm_gradient", &[x.dtype, weight]).with("centred", u32::from(self.centred)))
            .with("threads", order::row_threads_bound(rows.length as usize));
        let launch = Launch::new(key, cpu::kernel(x.dtype, weight)?, &params, inputs.parameters(outputs)?);
        // Rows without elements still have statistics.
        let launched = Rows { length: rows.length.max(1), ..rows };
        let launch = launched.launch(launch.with_metal(MetalForm::new(FILES, "norm_gradient")), device);
        Ok(launch.with_threadgroup_memory(4 * order::PARTIALS).into())
    }

    fn stands_for(&self, inputs: &[Option<TensorInfo>]) -> Result<Option<Definition>> {
        self.infer(inputs)?;
        let mut definition = Definition::new(inputs);
        let given = operands::AT;
        let Some(addend) = definition.input(given.addend) else { return Ok(None) };
        let taken = [given.x, given.weight, given.dy].map(|index| definition.input(index));
        let mut outputs = definition.apply(*self, &taken)?;
        outputs[0] = definition.apply_one(Binary { op: BinaryOp::Add }, &[Some(addend), Some(outputs[0])])?;
        definition.outputs = outputs;
        Ok(Some(definition))
    }

    fn gradient(&self, _: &[Option<TensorInfo>], _: &[Option<TensorInfo>], _: &[bool]) -> Result<Definition> {
        Err(gradient::none(self))
    }
}

/// The gradients of a norm, found as they are asked for.
pub(crate) struct OfNorm {
    operator: NormGradient,
    rows: Option<Vec<Operand>>,
    sums: Option<Vec<Operand>>,
}

impl OfNorm {
    pub(crate) fn new(axis: isize, epsilon: f32, centred: bool) -> Self {
        Self { operator: NormGradient { axis, epsilon, centred }, rows: None, sums: None }
    }

    /// The gradient of the norm's input 0, of its weight, input 1, or of its bias, input 2.
    pub(crate) fn by(&mut self, gradient: &mut Gradient, index: usize) -> Result<Operand> {
        let (x, upstream) = (gradient.input(0)?, gradient.upstream(0)?);
        let rows = match &mut self.rows {
            Some(rows) => rows,
            // A bias by itself needs nothing of the rows.
            None if index == 2 => return Ok(upstream),
            none => none.insert(gradient.apply_all(self.operator, &[Some(x), gradient.optional(1), Some(upstream)])?),
        };
        if index == 0 {
            return Ok(rows[0]);
        }
        let sums = match &mut self.sums {
            Some(sums) => sums,
            None if index == 2 => return Ok(upstream),
            none => {
                let operator = NormWeightGradient { axis: self.operator.axis, centred: self.operator.centred };
                none.insert(gradient.apply_all(operator, &[Some(x), Some(upstream), Some(rows[1]), rows.get(2).copied()])?)
            }
        };
        Ok(sums[index - 1])
    }
}

pub(crate) const DESCRIPTIONS: &[Description] = &[
    describe!("rms_norm_gradient", "the gradient of rms_norm by its rows, and their inverse deviations", operands, NormGradient(false)),
    describe!("layer_norm_gradient", "the gradient of layer_norm by its rows, their inverse deviations and means", operands, NormGradient(true)),
];
