//! The gradient of [`Softmax`](super::Softmax) by its input, from its output `y` and the gradient `g` of that.
//!
//! `dx = y · (g − Σ y g)`, and of the logarithm `dx = g − exp(y) · Σ g`, computed in f32, rounded once.
//!
//! * Memory: both rows are read once and the result is written once; the second look at rows that registers do not hold hits the cache.
//! * Order: the row order of [`crate::order`], products folded by `fma(y, g, a)`; the exponential is [`exp_nonpositive`](crate::math::exp_nonpositive).
//! * Error against exact arithmetic, before the rounding of the output: `(d(n) + 2) · 2^-24 · Σ |y g| · |y|` beside `2 · 2^-24` relative; of the logarithm
//!   `(d(n) + 4) · 2^-24 · Σ |g| · exp(y)`.

mod cpu;
#[cfg(any(test, feature = "conformance"))]
pub(crate) mod oracle;

use elinvar_core::{DType, DeviceProperties, KernelKey, MetalFile, MetalForm, Result};

use crate::{
    Description, Launch, Operator, Plan, TensorInfo,
    attributes::attributes,
    description::describe,
    math,
    metal::{self, metal_file},
    order,
    rows::Rows,
    signature::{self, misshapen, operands},
};

const FILES: &[MetalFile] = &[metal::TYPES, math::METAL, order::METAL, Rows::METAL, metal_file!("softmax/gradient/gradient.metal")];

attributes! {
    /// The gradient of the softmax (or of its logarithm) along `axis`. Inputs `y […]` and `dy`, alike; output as they are.
    #[derive(Clone, Copy, Debug)]
    pub struct SoftmaxGradient {
        /// The axis; negative counts from the end.
        pub axis: isize = -1,
    } and {
        /// Of the logarithm.
        pub log: bool,
    }
}

operands! {
    y: read(DType::FLOATS), "[…], what the softmax gave";
    dy: read(like y), "its gradient, as y";
    -> dx: write(like y), "as y";
}

impl Operator for SoftmaxGradient {
    fn name(&self) -> &'static str {
        if self.log { "log_softmax_gradient" } else { "softmax_gradient" }
    }

    fn outputs(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        let operands::Inputs { y, dy } = operands::Inputs::new(inputs)?;
        signature::axis("y", &y, self.axis)?;
        if y.shape() != dy.shape() {
            return Err(misshapen!(y, dy; "one shape"));
        }
        Ok(vec![TensorInfo::of(y.dtype, *y.shape())])
    }

    fn plan(&self, inputs: &[Option<TensorInfo>], outputs: &[TensorInfo], device: &DeviceProperties) -> Result<Plan> {
        let inputs = operands::Inputs::new(inputs)?;
        let y = inputs.y;
        let rows = Rows::new(y.shape(), self.axis)?;
        let key = rows.key(KernelKey::new("softmax_gradient", &[y.dtype]).with("log", u32::from(self.log)));
        let key = key.with("threads", order::row_threads_bound(rows.length as usize));
        let launch = Launch::new(key, cpu::kernel(y.dtype, self.log)?, &rows, inputs.parameters(outputs)?);
        let launch = launch.with_metal(MetalForm::new(FILES, "softmax_gradient"));
        Ok(rows.launch(launch, device).with_threadgroup_memory(order::PARTIALS).into())
    }
}

pub(crate) const DESCRIPTIONS: &[Description] = &[
    describe!("softmax_gradient", "the gradient of softmax by its input", operands, SoftmaxGradient(false)),
    describe!("log_softmax_gradient", "the gradient of log_softmax by its input", operands, SoftmaxGradient(true)),
];
