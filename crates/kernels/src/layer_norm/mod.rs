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

use elinvar_core::{DType, DeviceProperties, Error, KernelKey, MetalFile, MetalForm, Result, Shape};

use crate::{
    Definition, Description, Launch, Operator, Plan, TensorInfo,
    attributes::attributes,
    description::describe,
    gradient::Gradient,
    metal::{self, metal_file, params},
    norm_gradient::of_norm,
    order,
    rms_norm::check_weight,
    rows::Rows,
    signature::operands,
};

attributes! {
    /// Layer normalisation. Inputs `x […]` and, optionally, `weight` and `bias` of one type and of the shape of the normalised axes.
    #[derive(Clone, Copy, Debug)]
    pub struct LayerNorm {
        /// The first normalised axis; negative counts from the end.
        pub axis: isize = -1,
        /// Added to the variance.
        pub epsilon: f32 = 1e-5,
        /// Also give `μ` and `r`, f32, of the shape of `x` with extents of one for the normalised axes.
        pub statistics: bool = false,
    }
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

operands! {
    x: read(DType::FLOATS), "[…]";
    weight: read(DType::FLOATS) optional, "the shape of x from axis on; 1 where absent";
    bias: read(like weight) optional, "as weight; 0 where absent";
    -> y: write(like x), "as x";
    mean: write(&[DType::F32]) optional, "with statistics: the shape of x, 1 from axis on";
    inv_std: write(&[DType::F32]) optional, "with statistics: 1 / sqrt(var x + epsilon), as mean";
}

impl Operator for LayerNorm {
    fn name(&self) -> &'static str {
        "layer_norm"
    }

    fn outputs(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        let operands::Inputs { x, weight, bias } = operands::Inputs::new(inputs)?;
        check_weight(("x", x), self.axis, ("weight", weight))?;
        check_weight(("x", x), self.axis, ("bias", bias))?;
        let mut outputs = vec![TensorInfo::of(x.dtype, *x.shape())];
        if self.statistics {
            let mut dims = x.shape().to_vec();
            dims[x.shape().axis(self.axis)?..].fill(1);
            outputs.extend([TensorInfo::of(DType::F32, Shape::new(&dims)?); 2]);
        }
        Ok(outputs)
    }

    fn plan(&self, inputs: &[Option<TensorInfo>], outputs: &[TensorInfo], device: &DeviceProperties) -> Result<Plan> {
        let inputs = operands::Inputs::new(inputs)?;
        let (x, weight) = (inputs.x, inputs.dtype(operands::AT.weight));
        let rows = Rows::from_axis(x.shape(), self.axis)?;
        let [weighted, biased] = [inputs.weight, inputs.bias].map(|input| input.is_some().into());
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
        let launch = Launch::new(key, cpu::kernel(x.dtype, weight)?, &params, inputs.parameters(outputs)?);
        // Rows without elements still have statistics.
        let launched = Rows { length: rows.length.max(self.statistics.into()), ..rows };
        let launch = launched.launch(launch.with_metal(MetalForm::new(FILES, "layer_norm")), device);
        Ok(launch.with_threadgroup_memory(2 * order::PARTIALS).into())
    }

    fn gradient(&self, inputs: &[Option<TensorInfo>], upstream: &[Option<TensorInfo>], wanted: &[bool]) -> Result<Definition> {
        if self.statistics && upstream.iter().skip(1).any(Option::is_some) {
            return Err(Error::unsupported("layer_norm has no gradient of its statistics"));
        }
        of_norm(Gradient::new(self, inputs, upstream)?, wanted, self.axis, self.epsilon, true)
    }
}

pub(crate) const DESCRIPTIONS: &[Description] =
    &[describe!("layer_norm", "(x - mean x) / sqrt(var x + epsilon) * weight + bias over the axes from axis on", operands, LayerNorm)];
