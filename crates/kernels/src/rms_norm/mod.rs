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

use elinvar_core::{DType, DeviceProperties, Error, KernelKey, MetalFile, MetalForm, Parameter, Result, Shape};

use crate::{
    Argument, AttributeInfo, AttributeKind, Definition, Description, Launch, Operator, Plan, Port, TensorInfo,
    binary::{Binary, BinaryOp},
    metal::{self, metal_file, params},
    optional, order, required,
    rows::Rows,
};

/// RMS normalisation. Inputs `x […]` and, optionally, `weight` of the shape of the normalised axes.
#[derive(Clone, Copy, Debug)]
pub struct RmsNorm {
    /// The first normalised axis; negative counts from the end.
    pub axis: isize,
    /// Added to the mean of the squares.
    pub epsilon: f32,
}

/// Residual addition and RMS normalisation. Inputs `a`, `b` of one shape and type and, optionally, `weight`; outputs the sum and the
/// normalised sum.
#[derive(Clone, Copy, Debug)]
pub struct AddRmsNorm {
    /// As [`RmsNorm::axis`].
    pub axis: isize,
    /// As [`RmsNorm::epsilon`].
    pub epsilon: f32,
}

params! {
    struct Params {
        pub rows: Rows,
        pub epsilon: f32,
        /// Whether there is a weight.
        pub weighted: u32,
    }
}

const FILES: &[MetalFile] = &[metal::TYPES, order::METAL, Rows::METAL, Params::METAL, metal_file!("rms_norm/rms_norm.metal")];

/// Checks the weight (or bias) of a normalisation over the axes of `shape` from `axis`.
pub(crate) fn check_weight(shape: &Shape, axis: isize, weight: Option<TensorInfo>, name: &str) -> Result<()> {
    let normalised = &shape[shape.axis(axis)?..];
    match weight {
        Some(w) if !w.dtype.is_float() => Err(Error::invalid_argument(format!("{name} is {}: f32, f16 or bf16 expected", w.dtype))),
        Some(w) if **w.shape() != *normalised => {
            Err(Error::invalid_argument(format!("{name} has shape {}: {normalised:?} expected, the normalised axes of x", w.shape())))
        }
        _ => Ok(()),
    }
}

/// Whether there is a weight, and its type.
fn weight_type(weight: Option<TensorInfo>) -> (u32, DType) {
    weight.map_or((0, DType::F32), |w| (1, w.dtype))
}

impl Operator for RmsNorm {
    fn infer(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        let x = required(inputs, 0, "x")?;
        check_weight(x.shape(), self.axis, optional(inputs, 1), "weight")?;
        cpu::kernel(x.dtype, DType::F32)?;
        Ok(vec![TensorInfo::of(x.dtype, *x.shape())])
    }

    fn plan(&self, inputs: &[Option<TensorInfo>], _outputs: &[TensorInfo], device: &DeviceProperties) -> Result<Plan> {
        let x = required(inputs, 0, "x")?;
        let (weighted, weight) = weight_type(optional(inputs, 1));
        let rows = Rows::from_axis(x.shape(), self.axis)?;
        let buffers = [
            (Parameter::read("x", x.dtype), Argument::Input(0)),
            (Parameter::read("weight", weight).or_absent(), Argument::Input(1)),
            (Parameter::write("y", x.dtype), Argument::Output(0)),
        ];
        let params = Params { rows, epsilon: self.epsilon, weighted };
        let key = rows.key(KernelKey::new("rms_norm", &[x.dtype, weight])).with("threads", order::row_threads_bound(rows.length as usize));
        let launch = Launch::new(key, cpu::kernel(x.dtype, weight)?, &params, buffers).with_metal(MetalForm::new(FILES, "rms_norm"));
        Ok(rows.launch(launch, device).with_threadgroup_memory(order::PARTIALS).into())
    }
}

impl Operator for AddRmsNorm {
    fn infer(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        let (a, b) = (required(inputs, 0, "a")?, required(inputs, 1, "b")?);
        if (a.dtype, a.shape()) != (b.dtype, b.shape()) {
            let (x, y) = (a.shape(), b.shape());
            return Err(Error::invalid_argument(format!("a is {} {x} and b is {} {y}: they must be alike", a.dtype, b.dtype)));
        }
        check_weight(a.shape(), self.axis, optional(inputs, 2), "weight")?;
        cpu::add_kernel(a.dtype, DType::F32)?;
        Ok(vec![TensorInfo::of(a.dtype, *a.shape()); 2])
    }

    fn plan(&self, inputs: &[Option<TensorInfo>], _outputs: &[TensorInfo], device: &DeviceProperties) -> Result<Plan> {
        let a = required(inputs, 0, "a")?;
        let (weighted, weight) = weight_type(optional(inputs, 2));
        let rows = Rows::from_axis(a.shape(), self.axis)?;
        let buffers = [
            (Parameter::read("a", a.dtype), Argument::Input(0)),
            (Parameter::read("b", a.dtype), Argument::Input(1)),
            (Parameter::read("weight", weight).or_absent(), Argument::Input(2)),
            (Parameter::write("sum", a.dtype), Argument::Output(0)),
            (Parameter::write("y", a.dtype), Argument::Output(1)),
        ];
        let params = Params { rows, epsilon: self.epsilon, weighted };
        let key = rows.key(KernelKey::new("add_rms_norm", &[a.dtype, weight])).with("threads", order::row_threads_bound(rows.length as usize));
        let launch = Launch::new(key, cpu::add_kernel(a.dtype, weight)?, &params, buffers).with_metal(MetalForm::new(FILES, "add_rms_norm"));
        Ok(rows.launch(launch, device).with_threadgroup_memory(order::PARTIALS).into())
    }

    fn stands_for(&self, inputs: &[Option<TensorInfo>]) -> Result<Option<Definition>> {
        self.infer(inputs)?;
        let mut definition = Definition::new(inputs);
        let sum = definition.apply_one(Binary { op: BinaryOp::Add }, &[definition.input(0), definition.input(1)])?;
        let norm = RmsNorm { axis: self.axis, epsilon: self.epsilon };
        let normalised = definition.apply_one(norm, &[Some(sum), definition.input(2)])?;
        definition.outputs = vec![sum, normalised];
        Ok(Some(definition))
    }
}

const WEIGHT: Port = Port::new("weight", DType::FLOATS, "the shape of x from axis on; 1 where absent").or_absent();

const ATTRIBUTES: &[AttributeInfo] = &[
    AttributeInfo { name: "axis", kind: AttributeKind::Int, default: Some("-1"), doc: "the first normalised axis; negative counts from the end" },
    AttributeInfo { name: "epsilon", kind: AttributeKind::Float, default: Some("1e-5"), doc: "added to the mean of the squares" },
];

pub(crate) const DESCRIPTIONS: &[Description] = &[
    Description {
        name: "rms_norm",
        summary: "x / sqrt(mean x^2 + epsilon) * weight over the axes from axis on",
        inputs: &[Port::new("x", DType::FLOATS, "[…]"), WEIGHT],
        outputs: &[Port::new("y", DType::FLOATS, "as x")],
        attributes: ATTRIBUTES,
        build: |a| Ok(Box::new(RmsNorm { axis: a.get("axis")?, epsilon: a.get("epsilon")? })),
    },
    Description {
        name: "add_rms_norm",
        summary: "sum = a + b and its rms_norm",
        inputs: &[Port::new("a", DType::FLOATS, "[…]"), Port::new("b", DType::FLOATS, "as a"), WEIGHT],
        outputs: &[Port::new("sum", DType::FLOATS, "as a"), Port::new("y", DType::FLOATS, "as a")],
        attributes: ATTRIBUTES,
        build: |a| Ok(Box::new(AddRmsNorm { axis: a.get("axis")?, epsilon: a.get("epsilon")? })),
    },
];
