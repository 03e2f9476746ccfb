//! RMS normalisation of rows, alone or with the residual addition before it.
//!
//! `y = (x · r) · w` with `r = 1 / sqrt(Σ x² / n + ε)`, computed in f32, rounded once; `w` may have a type of its own. A row is all
//! axes from `axis` on. `add_rms_norm` first gives `s = a + b`, rounded to the type of `a`, and normalises that: the bits of an
//! addition followed by `rms_norm`.
//!
//! * Memory: every row is read once and written once; the second look at it hits the cache.
//! * Order: the squares are folded by `fma(x, x, a)` in the row order of [`crate::order`], whose `d(n)` it is that bounds the error.
//! * Error against exact arithmetic, before the rounding of the output, relative: `(d(n) / 2 + 5) · 2^-24`.
//! * See Zhang and Sennrich, *Root Mean Square Layer Normalization*, 2019; ONNX `RMSNormalization`; `torch.rms_norm`.

mod cpu;
#[cfg(any(test, feature = "conformance"))]
pub(crate) mod oracle;

use std::sync::Arc;

use elinvar_core::{DType, DeviceProperties, KernelKey, MetalFile, MetalForm, Result};

use crate::{
    Definition, Description, Launch, Operator, Plan, TensorInfo,
    attributes::attributes,
    binary::{Binary, BinaryOp},
    description::describe,
    gradient::Gradient,
    metal::{self, metal_file, params},
    norm_gradient::of_norm,
    order,
    rows::Rows,
    signature::{self, mismatch, misshapen, operands, shape_of},
};

attributes! {
    /// RMS normalisation. Inputs `x […]` and, optionally, `weight` of the shape of the normalised axes.
    #[derive(Clone, Copy, Debug)]
    pub struct RmsNorm {
        /// The first normalised axis; negative counts from the end.
        pub axis: isize = -1,
        /// Added to the mean of the squares.
        pub epsilon: f32 = 1e-5,
        /// Type of the output; that of `x` if absent.
        pub output: Option<DType>,
    }
}

impl Default for RmsNorm {
    fn default() -> Self {
        Self { axis: -1, epsilon: 1e-5, output: None }
    }
}

attributes! {
    /// Residual addition and RMS normalisation. Inputs `a`, `b` of one shape and type and, optionally, `weight`; outputs the sum and the
    /// normalised sum.
    #[derive(Clone, Copy, Debug)]
    pub struct AddRmsNorm {
        /// As [`RmsNorm::axis`].
        pub axis: isize = -1,
        /// As [`RmsNorm::epsilon`].
        pub epsilon: f32 = 1e-5,
    }
}

params! {
    struct Params {
        pub rows: Rows,
        pub epsilon: f32,
        /// Whether there is a weight.
        pub weighted: u32,
    }
}

/// A row that a threadgroup of another kernel normalises for itself; after [`crate::matmul::SHARED_ROW`].
pub(crate) const NORMALISED: MetalFile = metal_file!("rms_norm/normalised.metal");

const FILES: &[MetalFile] = &[metal::TYPES, order::METAL, Rows::METAL, Params::METAL, metal_file!("rms_norm/rms_norm.metal")];
const METAL: MetalForm = MetalForm::new(FILES, "rms_norm");

/// Checks the weight (or bias) of a normalisation over the axes of `x` from `axis`; both with their names.
pub(crate) fn check_weight((name, x): (&str, TensorInfo), axis: isize, (weight_name, weight): (&str, Option<TensorInfo>)) -> Result<()> {
    let normalised = &x.shape()[signature::axis(name, &x, axis)?..];
    match weight {
        Some(weight) if **weight.shape() != *normalised => {
            Err(mismatch(&[shape_of(weight_name, &weight), shape_of(name, &x)], format_args!("{normalised:?}")))
        }
        _ => Ok(()),
    }
}

const WEIGHT: &str = "the shape of x from axis on; 1 where absent";

operands! {
    x: read(DType::FLOATS), "[…]";
    weight: read(DType::FLOATS) optional, WEIGHT;
    -> y: write(DType::FLOATS), "as x, of type output";
}

operands! {
    mod added {
        a: read(DType::FLOATS), "[…]";
        b: read(like a), "as a";
        weight: read(DType::FLOATS) optional, WEIGHT;
        -> sum: write(like a), "as a";
        y: write(like a), "as a";
    }
}

impl Operator for RmsNorm {
    fn name(&self) -> &'static str {
        "rms_norm"
    }

    fn outputs(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        let operands::Inputs { x, weight } = operands::Inputs::new(inputs)?;
        check_weight(("x", x), self.axis, ("weight", weight))?;
        let output = self.output.unwrap_or(x.dtype);
        operands::OUTPUTS[0].check(output)?;
        Ok(vec![TensorInfo::of(output, *x.shape())])
    }

    fn plan(&self, inputs: &[Option<TensorInfo>], outputs: &[TensorInfo], device: &DeviceProperties) -> Result<Plan> {
        let definition = self.stands_for(inputs)?;
        if let Some(definition) = definition.as_ref().filter(|_| device.simd_width <= 1) {
            return definition.plan(device);
        }
        let inputs = operands::Inputs::new(inputs)?;
        let (x, weight) = (inputs.x, inputs.dtype(operands::AT.weight));
        let rows = Rows::from_axis(x.shape(), self.axis)?;
        let params = Params { rows, epsilon: self.epsilon, weighted: inputs.weight.is_some().into() };
        let key = KernelKey::new("rms_norm", &[x.dtype, weight, outputs[0].dtype]);
        let (key, buffers) = (rows.key(key).with("threads", order::row_threads_bound(rows.length as usize)), inputs.parameters(outputs)?);
        let launch = match definition {
            Some(_) => Launch::on_gpu(key, METAL, &params, buffers),
            None => Launch::new(key, cpu::kernel(x.dtype, weight)?, &params, buffers).with_metal(METAL),
        };
        Ok(rows.launch(launch, device).with_threadgroup_memory(order::PARTIALS).into())
    }

    fn rounded(&self, to: DType, _: &[Option<TensorInfo>], device: &DeviceProperties) -> Result<Option<Arc<dyn Operator>>> {
        let gains = self.output.is_none() && to.is_float() && device.simd_width > 1;
        Ok(gains.then(|| Arc::new(Self { output: Some(to), ..*self }) as Arc<dyn Operator>))
    }

    fn stands_for(&self, inputs: &[Option<TensorInfo>]) -> Result<Option<Definition>> {
        Definition::converted(Self { output: None, ..*self }, inputs, operands::AT.x, self.output)
    }

    fn gradient(&self, inputs: &[Option<TensorInfo>], upstream: &[Option<TensorInfo>], wanted: &[bool]) -> Result<Definition> {
        if let Some(definition) = self.stands_for(inputs)? {
            return definition.gradient(self, upstream, wanted);
        }
        of_norm(Gradient::new(self, inputs, upstream)?, wanted, self.axis, self.epsilon, false)
    }
}

impl Operator for AddRmsNorm {
    fn name(&self) -> &'static str {
        "add_rms_norm"
    }

    fn outputs(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        let added::Inputs { a, b, weight } = added::Inputs::new(inputs)?;
        if a.shape() != b.shape() {
            return Err(misshapen!(a, b; "one shape"));
        }
        check_weight(("a", a), self.axis, ("weight", weight))?;
        Ok(vec![TensorInfo::of(a.dtype, *a.shape()); 2])
    }

    fn plan(&self, inputs: &[Option<TensorInfo>], outputs: &[TensorInfo], device: &DeviceProperties) -> Result<Plan> {
        let inputs = added::Inputs::new(inputs)?;
        let (a, weight) = (inputs.a, inputs.dtype(added::AT.weight));
        let rows = Rows::from_axis(a.shape(), self.axis)?;
        let params = Params { rows, epsilon: self.epsilon, weighted: inputs.weight.is_some().into() };
        let key = rows.key(KernelKey::new("add_rms_norm", &[a.dtype, weight])).with("threads", order::row_threads_bound(rows.length as usize));
        let launch = Launch::new(key, cpu::add_kernel(a.dtype, weight)?, &params, inputs.parameters(outputs)?)
            .with_metal(MetalForm::new(FILES, "add_rms_norm"));
        Ok(rows.launch(launch, device).with_threadgroup_memory(order::PARTIALS).into())
    }

    fn stands_for(&self, inputs: &[Option<TensorInfo>]) -> Result<Option<Definition>> {
        self.infer(inputs)?;
        let mut definition = Definition::new(inputs);
        let sum = definition.apply_one(Binary { op: BinaryOp::Add }, &[definition.input(0), definition.input(1)])?;
        let norm = RmsNorm { axis: self.axis, epsilon: self.epsilon, output: None };
        let normalised = definition.apply_one(norm, &[Some(sum), definition.input(2)])?;
        definition.outputs = vec![sum, normalised];
        Ok(Some(definition))
    }
}

pub(crate) const DESCRIPTIONS: &[Description] = &[
    describe!("rms_norm", "x / sqrt(mean x^2 + epsilon) * weight over the axes from axis on", operands, RmsNorm),
    describe!("add_rms_norm", "sum = a + b and its rms_norm", added, AddRmsNorm),
];
