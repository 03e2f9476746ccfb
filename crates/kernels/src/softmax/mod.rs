//! Softmax and log-softmax along one axis.
//!
//! `y = e · (1 / Σ e)` with `e = exp(x − m)`, and `y = (x − m) − log Σ e`, with `m = max x`, computed in f32, rounded once.
//!
//! * Memory: every row is read once and written once; the second look at it hits the cache.
//! * Order: the row order of [`crate::order`], for the maximum (by [`larger`](crate::order::larger)) and for the sum; the exponential is
//!   [`exp_nonpositive`](crate::math::exp_nonpositive), which is 0 below −87.683.
//! * Error against exact arithmetic, before the rounding of the output: `(|x − m| + d(n) + 6) · 2^-24` relative, and for the logarithm
//!   `(d(n) + 3) · 2^-24` absolute beside `3 · 2^-24` relative.
//! * A row of −∞ alone gives NaN, as 0 · ∞ does, and so does a row with a NaN.

mod cpu;
pub mod gradient;
#[cfg(any(test, feature = "conformance"))]
pub(crate) mod oracle;

use elinvar_core::{DType, DeviceProperties, KernelKey, MetalFile, MetalForm, Result};

use crate::{
    Definition, Description, Launch, Operator, Plan, TensorInfo,
    attributes::attributes,
    description::describe,
    gradient::Gradient,
    math,
    metal::{self, metal_file},
    order,
    rows::Rows,
    signature::{self, operands},
};

/// The softmax of one row, in Metal.
pub(crate) const ROW: MetalFile = metal_file!("softmax/row.metal");

use gradient::SoftmaxGradient;

const FILES: &[MetalFile] = &[metal::TYPES, math::METAL, order::METAL, Rows::METAL, ROW, metal_file!("softmax/softmax.metal")];
const METAL: MetalForm = MetalForm::new(FILES, "softmax");

attributes! {
    /// Softmax (or its logarithm) along `axis`. Input and output `[…]`, f32, f16 or bf16.
    #[derive(Clone, Copy, Debug)]
    pub struct Softmax {
        /// The axis; negative counts from the end.
        pub axis: isize = -1,
    } and {
        /// Give the logarithm.
        pub log: bool,
    }
}

operands! {
    x: read(DType::FLOATS), "[…], any shape with at least one axis";
    -> y: write(like x), "as x";
}

impl Operator for Softmax {
    fn name(&self) -> &'static str {
        if self.log { "log_softmax" } else { "softmax" }
    }

    fn outputs(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        let operands::Inputs { x } = operands::Inputs::new(inputs)?;
        signature::axis("x", &x, self.axis)?;
        Ok(vec![TensorInfo::of(x.dtype, *x.shape())])
    }

    fn plan(&self, inputs: &[Option<TensorInfo>], outputs: &[TensorInfo], device: &DeviceProperties) -> Result<Plan> {
        let inputs = operands::Inputs::new(inputs)?;
        let x = inputs.x;
        let rows = Rows::new(x.shape(), self.axis)?;
        let key = rows.key(KernelKey::new("softmax", &[x.dtype]).with("log", u32::from(self.log)));
        let launch = Launch::new(key, cpu::kernel(x.dtype, self.log)?, &rows, inputs.parameters(outputs)?).with_metal(METAL);
        Ok(rows.launch(launch, device).with_threadgroup_memory(2 * order::PARTIALS).into())
    }

    fn gradient(&self, inputs: &[Option<TensorInfo>], upstream: &[Option<TensorInfo>], wanted: &[bool]) -> Result<Definition> {
        Gradient::new(self, inputs, upstream)?.of(wanted, |gradient, _| {
            let (y, upstream) = (gradient.output(0)?, gradient.upstream(0)?);
            gradient.apply(SoftmaxGradient { axis: self.axis, log: self.log }, &[y, upstream])
        })
    }
}

pub(crate) const DESCRIPTIONS: &[Description] = &[
    describe!("softmax", "exp(x - max x) / sum exp(x - max x) along an axis", operands, Softmax(false)),
    describe!("log_softmax", "logarithm of the softmax along an axis", operands, Softmax(true)),
];
