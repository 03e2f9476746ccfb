//! The gated activation `y = silu(a) · b`, with `silu(a) = a · sigmoid(a)`, of two tensors or of the two halves of one.
//!
//! * Memory: inputs are read once, the output is written once.
//! * Order: elementwise, in f32: [`silu`](crate::math::silu) (for another `alpha` than one: `a · sigmoid(alpha · a)`), then the product, then
//!   one rounding to the output's type.
//! * before the rounding of the output, relative: `2 · 2^-24`; for another `alpha`: `(4 + |alpha · a|) · 2^-24`.
//! * See Shazeer, *GLU Variants Improve Transformer*, 2020; ONNX `SwiGLU`.

mod cpu;
#[cfg(any(test, feature = "conformance"))]
pub(crate) mod oracle;

use elinvar_core::{DType, DeviceProperties, KernelKey, MetalFile, MetalForm, Result, Shape};

use crate::{
    Argument, Definition, Description, Launch, Operator, Plan, TensorInfo,
    attributes::attributes,
    binary::BinaryOp,
    copy::Concat,
    description::describe,
    elementwise::{self, Operand, Space, over_elements},
    gradient::Gradient,
    math,
    metal::{self, metal_file, params},
    signature::{misshapen, operands},
    ternary::Fma,
    unary::UnaryOp,
};

const FILES: &[MetalFile] =
    &[metal::TYPES, Space::METAL, Operand::METAL, elementwise::METAL, Params::METAL, math::METAL, metal_file!("swiglu/swiglu.metal")];
const METAL: MetalForm = MetalForm::new(FILES, "swiglu");

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
        let elements = outputs[0].elements() as u64;
        let params = if inputs.b.is_some() {
            Params { rows: 1, columns: elements, a_stride: 0, b_stride: 0, b_offset: 0, alpha: self.alpha, reserved: 0 }
        } else {
            let columns = a.shape().last().map_or(0, |&n| n as u64 / 2);
            let rows = elements.checked_div(columns).unwrap_or(0);
            buffers[operands::AT.b].1 = Argument::Input(operands::AT.a);
            Params { rows, columns, a_stride: 2 * columns, b_stride: 2 * columns, b_offset: columns, alpha: self.alpha, reserved: 0 }
        };
        let launch = Launch::new(KernelKey::new("swiglu", &[a.dtype]), cpu::kernel(a.dtype)?, &params, buffers);
        Ok(over_elements(launch.with_metal(METAL), elements as usize).into())
    }

    fn gradient(&self, inputs: &[Option<TensorInfo>], upstream: &[Option<TensorInfo>], wanted: &[bool]) -> Result<Definition> {
        let (mut found, alpha) = (None, f64::from(self.alpha));
        Gradient::new(self, inputs, upstream)?.of(wanted, |gradient, index| {
            let (a, upstream) = (gradient.input(operands::AT.a)?, gradient.upstream(0)?);
            let halves = gradient.optional(operands::AT.b).is_none();
            let [a, b] = match gradient.optional(operands::AT.b) {
                Some(b) => [a, b],
                None => {
                    let (last, n) = (a.info.shape().rank() - 1, upstream.info.shape()[upstream.info.shape().rank() - 1]);
                    [a.view(a.info.layout.slice(last, 0, n, 1)?), a.view(a.info.layout.slice(last, if n == 0 { 0 } else { n }, n, 1)?)]
                }
            };
            let [a, b, upstream] = [gradient.widened(a)?, gradient.widened(b)?, gradient.widened(upstream)?];
            let (sigmoid, silu) = match found {
                Some(found) => found,
                None => {
                    let scaled = if alpha == 1.0 { a } else { gradient.with_scalar(BinaryOp::Mul, a, alpha)? };
                    let sigmoid = gradient.unary(UnaryOp::Sigmoid, scaled)?;
                    *found.insert((sigmoid, gradient.mul(a, sigmoid)?))
                }
            };
            let of_b = gradient.mul(upstream, silu)?;
            if index == operands::AT.b {
                return Ok(of_b);
            }
            // sigmoid + alpha · silu · (1 − sigmoid)
            let one = gradient.number(DType::F32, 1.0)?;
            let rest = gradient.binary(BinaryOp::Sub, one, sigmoid)?;
            let bend = if alpha == 1.0 { silu } else { gradient.with_scalar(BinaryOp::Mul, silu, alpha)? };
            let slope = gradient.apply(Fma, &[bend, rest, sigmoid])?;
            let upstream = gradient.mul(upstream, b)?;
            let of_a = gradient.mul(upstream, slope)?;
            if halves { gradient.apply(Concat { axis: -1 }, &[of_a, of_b]) } else { Ok(of_a) }
        })
    }
}

pub(crate) const DESCRIPTIONS: &[Description] = &[describe!("swiglu", "silu(a) * b, or of the two halves of a's last axis", operands, SwiGlu)];
