//! The gated activation `y = silu(a) · b`, with `silu(a) = a · sigmoid(a)`, of two tensors or of the two halves of one.
//!
//! * Memory: inputs are read once, the output is written once.
//! * Order: elementwise, in f32: [`gate`](crate::math::gate), then the product, then one rounding to the output's type.
//! * Error before the rounding of the output, relative: `9 · 2^-24`; for another `alpha` than one: `(9 + |alpha · a|) · 2^-24`.
//! * See Shazeer, *GLU Variants Improve Transformer*, 2020; ONNX `SwiGLU`.

mod cpu;
pub mod gradient;
#[cfg(any(test, feature = "conformance"))]
pub(crate) mod oracle;

use elinvar_core::{DType, DeviceProperties, KernelKey, MetalFile, MetalForm, Result, Shape};

use crate::{
    Argument, Definition, Description, Launch, Operator, Plan, TensorInfo,
    attributes::attributes,
    description::describe,
    elementwise::{self, Operand, Space, over_elements},
    gradient::Gradient,
    math,
    metal::{self, metal_file, params},
    signature::{misshapen, operands},
};

use gradient::SwiGluGradient;

const FILES: &[MetalFile] =
    &[metal::TYPES, Space::METAL, Operand::METAL, elementwise::METAL, Params::METAL, math::METAL, metal_file!("swiglu/swiglu.metal")];
const METAL: MetalForm = MetalForm::new(FILES, "swiglu");

/// Registers of a thread that takes 16-bit elements: with more, too few threads run at once for the speed of memory.
const REGISTERS: u32 = 40;

/// A form for elements of this type.
fn of_type(form: MetalForm, dtype: DType) -> MetalForm {
    if dtype.size() == 2 { form.with_registers(REGISTERS) } else { form }
}

attributes! {
    /// SwiGLU. Inputs `a […]` and `b`, alike; or `a […, 2n]` alone, whose first half of the last axis is gated and second half multiplied.
    #[derive(Clone, Copy, Debug)]
    pub struct SwiGlu {
        /// Scales the argument of the sigmoid.
        pub alpha: f32 = 1,
    }
}

params! {
    /// Element `i` of row `r` of the output comes from `a[r · a_stride + i]` and `b[r · b_stride + b_offset + i]`.
    struct Params {
        pub rows: u64,
        pub columns: u64,
        pub a_stride: u64,
        pub b_stride: u64,
        pub b_offset: u64,
        pub alpha: f32,
        pub reserved: u32,
    }
}

operands! {
    a: read(DType::FLOATS), "[…]; without b […, 2n], its halves along the last axis standing for a and b";
    b: read(like a) optional, "as a";
    -> y: write(like a), "as a; without b […, n]";
}

/// Where elements lie in two tensors, or in one that holds both.
fn params(a: TensorInfo, b: Option<TensorInfo>, alpha: f32) -> Params {
    if b.is_some() {
        return Params { rows: 1, columns: a.elements() as u64, a_stride: 0, b_stride: 0, b_offset: 0, alpha, reserved: 0 };
    }
    let columns = a.shape().last().map_or(0, |&n| n as u64 / 2);
    let rows = (a.elements() as u64 / 2).checked_div(columns).unwrap_or(0);
    Params { rows, columns, a_stride: 2 * columns, b_stride: 2 * columns, b_offset: columns, alpha, reserved: 0 }
}

impl Operator for SwiGlu {
    fn name(&self) -> &'static str {
        "swiglu"
    }

    fn outputs(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        let operands::Inputs { a, b } = operands::Inputs::new(inputs)?;
        if let Some(b) = b {
            if a.shape() != b.shape() {
                return Err(misshapen!(a, b; "one shape"));
            }
            return Ok(vec![TensorInfo::of(a.dtype, *a.shape())]);
        }
        let mut dims = a.shape().to_vec();
        match dims.last_mut() {
            Some(last) if last.is_multiple_of(2) => *last /= 2,
            _ => return Err(misshapen!(a; "an even last axis, as there is no b")),
        }
        Ok(vec![TensorInfo::of(a.dtype, Shape::new(&dims)?)])
    }

    fn plan(&self, inputs: &[Option<TensorInfo>], outputs: &[TensorInfo], _device: &DeviceProperties) -> Result<Plan> {
        let inputs = operands::Inputs::new(inputs)?;
        let (a, mut buffers) = (inputs.a, inputs.parameters(outputs)?);
        if inputs.b.is_none() {
            buffers[operands::AT.b].1 = Argument::Input(operands::AT.a);
        }
        let params = params(a, inputs.b, self.alpha);
        let launch = Launch::new(KernelKey::new("swiglu", &[a.dtype]), cpu::kernel(a.dtype)?, &params, buffers);
        Ok(over_elements(launch.with_metal(of_type(METAL, a.dtype)), outputs[0].elements()).into())
    }

    fn gradient(&self, inputs: &[Option<TensorInfo>], upstream: &[Option<TensorInfo>], wanted: &[bool]) -> Result<Definition> {
        let mut found = Vec::new();
        Gradient::new(self, inputs, upstream)?.of(wanted, |gradient, index| {
            if found.is_empty() {
                let given = [Some(gradient.input(operands::AT.a)?), gradient.optional(operands::AT.b), Some(gradient.upstream(0)?)];
                found = gradient.apply_all(SwiGluGradient { alpha: self.alpha }, &given)?;
            }
            Ok(found[index])
        })
    }
}

pub(crate) const DESCRIPTIONS: &[Description] = &[describe!("swiglu", "silu(a) * b, or of the two halves of a's last axis", operands, SwiGlu)];
