//! Layer normalisation of rows.
//!
//! `y = v · w`, or `fma(v, w, b)` with a bias, where `v = (x − μ) · r`, `μ = Σ x / n`, `r = 1 / sqrt(Σ (x − μ)² / n + ε)`, computed in f32,
//! rounded once; `w` and `b` may have types of their own. A row is all axes from `axis` on.
//!
//! * Memory: every row is read once and written once; the later looks at it hit the cache.
//! * Order: both sums are folded in the row order of [`crate::order`], the squares by `fma(x − μ, x − μ, a)`.
//! * Error against exact arithmetic, before the rounding of the output: `(d(n) + 6) · 2^-24 · (max |x| · r + |v|) · |w|`.
//! * See Ba, Kiros and Hinton, *Layer Normalization*, 2016; ONNX `LayerNormalization`; `torch.layer_norm`.

mod cpu;
#[cfg(any(test, feature = "conformance"))]
pub(crate) mod oracle;

use elinvar_core::{DType, DeviceProperties, Error, KernelKey, MetalFile, MetalForm, Parameter, Result, Shape};

use crate::{
    Argument, AttributeInfo, AttributeKind, Description, Launch, Operator, Plan, Port, TensorInfo,
    metal::{self, metal_file, params},
    optional, order, required,
    rms_norm::check_weight,
    rows::Rows,
};

/// Layer normalisation. Inputs `x […]` and, optionally, `weight` and `bias` of one type and of the shape of the normalised axes.
#[derive(Clone, Copy, Debug)]
pub struct LayerNorm {
    /// The first normalised axis; negative counts from the end.
    pub axis: isize,
    /// Added to the variance.
    pub epsilon: f32,
    /// Also give `μ` and `r`, f32, of the shape of `x` with extents of one for the normalised axes.
    pub statistics: bool,
}

params! {
    struct Params {
        pub rows: Rows,
        pub epsilon: f32,
        /// Whether there is a weight.
        pub weighted: u32,
        /// Whether there is a bias.
        pub biased: u32,
        /// Whether mean and inverse deviation are wanted.
        pub statistics: u32,
    }
}

const FILES: &[MetalFile] = &[metal::TYPES, order::METAL, Rows::METAL, Params::METAL, metal_file!("layer_norm/layer_norm.metal")];

impl Operator for LayerNorm {
    fn infer(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        let (x, weight, bias) = (required(inputs, 0, "x")?, optional(inputs, 1), optional(inputs, 2));
        check_weight(x.shape(), self.axis, weight, "weight")?;
        check_weight(x.shape(), self.axis, bias, "bias")?;
        if let (Some(w), Some(b)) = (weight, bias)
            && w.dtype != b.dtype
        {
            return Err(Error::invalid_argument(format!("weight is {} and bias is {}: they must be alike", w.dtype, b.dtype)));
        }
        cpu::kernel(x.dtype, DType::F32)?;
        let mut outputs = vec![TensorInfo::of(x.dtype, *x.shape())];
        if self.statistics {
            let mut dims = x.shape().to_vec();
            dims[x.shape().axis(self.axis)?..].fill(1);
            outputs.extend([TensorInfo::of(DType::F32, Shape::new(&dims)?); 2]);
        }
        Ok(outputs)
    }

    fn plan(&self, inputs: &[Option<TensorInfo>], _outputs: &[TensorInfo], device: &DeviceProperties) -> Result<Plan> {
        let x = required(inputs, 0, "x")?;
        let (weighted, biased) = (optional(inputs, 1), optional(inputs, 2));
        let weight = weighted.or(biased).map_or(DType::F32, |w| w.dtype);
        let [mean, inv_std] = if self.statistics { [Argument::Output(1), Argument::Output(2)] } else { [Argument::Absent; 2] };
        let buffers = [
            (Parameter::read("x", x.dtype), Argument::Input(0)),
            (Parameter::read("weight", weight).or_absent(), Argument::Input(1)),
            (Parameter::read("bias", weight).or_absent(), Argument::Input(2)),
            (Parameter::write("y", x.dtype), Argument::Output(0)),
            (Parameter::write("mean", DType::F32).or_absent(), mean),
            (Parameter::write("inv_std", DType::F32).or_absent(), inv_std),
        ];
        let rows = Rows::from_axis(x.shape(), self.axis)?;
        let [weighted, biased] = [weighted, biased].map(|input| input.is_some().into());
        let params = Params { rows, epsilon: self.epsilon, weighted, biased, statistics: self.statistics.into() };
        // Registers hold weight and bias beside a row of one simdgroup, or of f32 unless threads are many. Otherwise threads get as few registers as in
        // threadgroups of 1024, so that a unit has several rows under way.
        let length = rows.length as usize;
        let at_once = length <= order::ONE_SIMDGROUP || x.dtype.size() > 2 && order::row_threads(length) <= 512;
        let threads: u32 = match at_once {
            true if length <= order::ONE_SIMDGROUP => 256,
            true => 512,
            false => 1024,
        };
        let key = rows.key(KernelKey::new("layer_norm", &[x.dtype, weight])).with("threads", threads).with("at_once", u32::from(at_once));
        let launch = Launch::new(key, cpu::kernel(x.dtype, weight)?, &params, buffers);
        // Rows without elements still have statistics.
        let launched = Rows { length: rows.length.max(self.statistics.into()), ..rows };
        let launch = launched.launch(launch.with_metal(MetalForm::new(FILES, "layer_norm")), device);
        Ok(launch.with_threadgroup_memory(2 * order::PARTIALS).into())
    }
}

pub(crate) const DESCRIPTIONS: &[Description] = &[Description {
    name: "layer_norm",
    summary: "(x - mean x) / sqrt(var x + epsilon) * weight + bias over the axes from axis on",
    inputs: &[
        Port::new("x", DType::FLOATS, "[…]"),
        Port::new("weight", DType::FLOATS, "the shape of x from axis on; 1 where absent").or_absent(),
        Port::new("bias", DType::FLOATS, "as weight; 0 where absent").or_absent(),
    ],
    outputs: &[
        Port::new("y", DType::FLOATS, "as x"),
        Port::new("mean", &[DType::F32], "with statistics: the shape of x, 1 from axis on").or_absent(),
        Port::new("inv_std", &[DType::F32], "with statistics: 1 / sqrt(var x + epsilon), as mean").or_absent(),
    ],
    attributes: &[
        AttributeInfo { name: "axis", kind: AttributeKind::Int, default: Some("-1"), doc: "the first normalised axis; negative counts from the end" },
        AttributeInfo { name: "epsilon", kind: AttributeKind::Float, default: Some("1e-5"), doc: "added to the variance" },
        AttributeInfo { name: "statistics", kind: AttributeKind::Bool, default: Some("false"), doc: "also give mean and inv_std" },
    ],
    build: |a| Ok(Box::new(LayerNorm { axis: a.get("axis")?, epsilon: a.get("epsilon")?, statistics: a.flag("statistics")? })),
}];
