//! The gradients of [`SwiGlu`] by its inputs, from these and the gradient `g` of its output.
//!
//! `db = g · silu` and `da = (g · b) · (alpha · silu · (1 − s) + s)` with `s = sigmoid(alpha · a)` and `silu = a · s`, computed in f32, rounded once.
//!
//! * Memory: three tensors are read once, and two are written once.
//! * Order: elementwise; `s` and `1 − s` are [`sigmoids`](crate::math::sigmoids), and what `g · b` is multiplied by is `fma(alpha · silu, 1 − s, s)`.
//! * Error against exact arithmetic, before the rounding of the output, for an `alpha` of one: of `db` `8 · 2^-24` relative; of `da`
//!   `(16 · |silu| · (1 − s) + 8 · s) · 2^-24 · |g · b|`. Another `alpha` adds `|alpha · a| · 2^-24` relative to `s` and to `1 − s`.

mod cpu;
#[cfg(any(test, feature = "conformance"))]
pub(crate) mod oracle;

use elinvar_core::{DType, DeviceProperties, KernelKey, MetalFile, MetalForm, Result};

use super::{Params, SwiGlu, of_type, params};
use crate::{
    Argument, Description, Launch, Operator, Plan, TensorInfo,
    attributes::attributes,
    description::describe,
    elementwise::{self, Operand, Space, over_elements},
    math,
    metal::{self, metal_file},
    signature::{misshapen, operands},
};

const FILES: &[MetalFile] =
    &[metal::TYPES, Space::METAL, Operand::METAL, elementwise::METAL, Params::METAL, math::METAL, metal_file!("swiglu/gradient/gradient.metal")];
const METAL: MetalForm = MetalForm::new(FILES, "swiglu_gradient");

attributes! {
    /// The gradients of SwiGLU by its inputs. Inputs as there, and `dy`; outputs as its inputs.
    #[derive(Clone, Copy, Debug)]
    pub struct SwiGluGradient {
        /// Scales the argument of the sigmoid.
        pub alpha: f32 = 1,
    }
}

operands! {
    a: read(DType::FLOATS), "as of swiglu";
    b: read(like a) optional, "as of swiglu";
    dy: read(like a), "the gradient of what swiglu gave, in its shape";
    -> da: write(like a), "as a";
    db: write(like a) optional, "with b: as b";
}

impl Operator for SwiGluGradient {
    fn name(&self) -> &'static str {
        "swiglu_gradient"
    }

    fn outputs(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        let operands::Inputs { a, b, dy } = operands::Inputs::new(inputs)?;
        let y = SwiGlu { alpha: self.alpha }.outputs(&[Some(a), b])?[0];
        if dy.shape() != y.shape() {
            return Err(misshapen!(dy, a; "{}", y.shape()));
        }
        Ok([Some(a), b].into_iter().flatten().map(|info| TensorInfo::of(info.dtype, *info.shape())).collect())
    }

    fn plan(&self, inputs: &[Option<TensorInfo>], outputs: &[TensorInfo], _device: &DeviceProperties) -> Result<Plan> {
        let inputs = operands::Inputs::new(inputs)?;
        let (params, mut buffers) = (params(inputs.a, inputs.b, self.alpha), inputs.parameters(outputs)?);
        if inputs.b.is_none() {
            buffers[operands::AT.b].1 = Argument::Input(operands::AT.a);
        }
        let launch = Launch::new(KernelKey::new("swiglu_gradient", &[inputs.a.dtype]), cpu::kernel(inputs.a.dtype)?, &params, buffers);
        Ok(over_elements(launch.with_metal(of_type(METAL, inputs.a.dtype)), inputs.dy.elements()).into())
    }
}

pub(crate) const DESCRIPTIONS: &[Description] = &[describe!("swiglu_gradient", "the gradients of swiglu by its inputs", operands, SwiGluGradient)];
