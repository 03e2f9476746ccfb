//! Functions of three tensors, broadcast by NumPy's rule: fma, clamp and where.
//!
//! * `fma`: a · b + c, rounded once to f32 and, for a half, once more to the half.
//! * `clamp`: min(max(x, low), high), so `high` wins where the bounds cross; NaN in any of them gives NaN.
//! * `where`: elements move as bits.
//! * Error: none but those roundings. Memory: each operand is read once, the output written once.

mod clamp;
mod cpu;
#[cfg(any(test, feature = "conformance"))]
pub(crate) mod oracle;

use elinvar_core::{DType, DeviceProperties, KernelKey, MetalFile, MetalForm, Result};

pub use clamp::{Clamp, ClampParams};

use crate::{
    Definition, Description, ElementOp, Launch, Operator, Plan, TensorInfo,
    description::describe,
    elementwise::{self, Operand, Space, over_elements},
    functions::Ternary,
    gradient::{Gradient, scalar},
    metal::{self, metal_file, params},
    signature::{self, operands},
};

const FILES: &[MetalFile] =
    &[metal::TYPES, Space::METAL, Operand::METAL, elementwise::METAL, TernaryParams::METAL, metal_file!("ternary/ternary.metal")];
const FMA: MetalForm = MetalForm::new(FILES, "fused_multiply_add");
const WHERE: MetalForm = MetalForm::new(FILES, "choose");

/// `y = a · b + c`, broadcast, of one floating-point type.
#[derive(Clone, Copy, Debug)]
pub struct Fma;

/// `y = a` where the condition holds, else `b`, broadcast; `a` and `b` of one type.
#[derive(Clone, Copy, Debug)]
pub struct Where;

params! {
    /// The parameter block.
    pub struct TernaryParams {
        /// What is visited.
        pub space: Space,
        /// The operands in order.
        pub operands: [Operand; 3],
    }
}

operands! {
    a: read(DType::FLOATS), "any shape";
    b: read(like a), "any shape that broadcasts with a and c";
    c: read(like a), "any shape that broadcasts with a and b";
    -> y: write(like a), "the shape all broadcast to";
}

operands! {
    mod choice {
        condition: read(&[DType::Bool]), "any shape";
        a: read(DType::ALL) bits, "any shape that broadcasts with the others";
        b: read(like a) bits, "any shape that broadcasts with the others";
        -> y: write(like a) bits, "the shape all broadcast to";
    }
}

impl Operator for Fma {
    fn name(&self) -> &'static str {
        "fma"
    }

    fn outputs(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        let operands::Inputs { a, b, c } = operands::Inputs::new(inputs)?;
        Ok(vec![TensorInfo::of(a.dtype, signature::broadcast(&[("a", a), ("b", b), ("c", c)])?)])
    }

    fn plan(&self, inputs: &[Option<TensorInfo>], outputs: &[TensorInfo], _device: &DeviceProperties) -> Result<Plan> {
        let (inputs, y) = (operands::Inputs::new(inputs)?, outputs[0]);
        let (space, operands) = Space::broadcast(*y.shape(), [&inputs.a, &inputs.b, &inputs.c])?;
        let buffers = inputs.parameters(outputs)?;
        let launch = Launch::new(KernelKey::new("fma", &[y.dtype]), cpu::fma(y.dtype)?, &TernaryParams { space, operands }, buffers);
        Ok(over_elements(launch.with_metal(FMA), space.elements()).into())
    }

    fn accepts_strides(&self, _index: usize) -> bool {
        true
    }

    fn element_op(&self) -> Option<ElementOp> {
        Some(ElementOp::Fma)
    }

    fn gradient(&self, inputs: &[Option<TensorInfo>], upstream: &[Option<TensorInfo>], wanted: &[bool]) -> Result<Definition> {
        scalar::gradient(self, Ternary::Fma.derivative(), None, inputs, upstream, wanted)
    }
}

impl Operator for Where {
    fn name(&self) -> &'static str {
        "where"
    }

    fn outputs(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        let choice::Inputs { condition, a, b } = choice::Inputs::new(inputs)?;
        Ok(vec![TensorInfo::of(a.dtype, signature::broadcast(&[("condition", condition), ("a", a), ("b", b)])?)])
    }

    fn plan(&self, inputs: &[Option<TensorInfo>], outputs: &[TensorInfo], _device: &DeviceProperties) -> Result<Plan> {
        let inputs = choice::Inputs::new(inputs)?;
        let (space, operands) = Space::broadcast(*outputs[0].shape(), [&inputs.condition, &inputs.a, &inputs.b])?;
        let buffers = inputs.parameters(outputs)?;
        let bits = buffers[choice::AT.y].0.dtype;
        let launch = Launch::new(KernelKey::new("where", &[bits]), cpu::select(bits), &TernaryParams { space, operands }, buffers);
        Ok(over_elements(launch.with_metal(WHERE), space.elements()).into())
    }

    fn accepts_strides(&self, _index: usize) -> bool {
        true
    }

    fn element_op(&self) -> Option<ElementOp> {
        Some(ElementOp::Select)
    }

    fn gradient(&self, inputs: &[Option<TensorInfo>], upstream: &[Option<TensorInfo>], wanted: &[bool]) -> Result<Definition> {
        Gradient::new(self, inputs, upstream)?.of(wanted, |gradient, index| {
            let (condition, upstream) = (gradient.input(choice::AT.condition)?, gradient.upstream(0)?);
            let zero = gradient.number(upstream.info.dtype, 0.0)?;
            let [a, b] = if index == choice::AT.a { [upstream, zero] } else { [zero, upstream] };
            gradient.choose(condition, a, b)
        })
    }
}

pub(crate) const DESCRIPTIONS: &[Description] = &[
    describe!("fma", "a * b + c, rounded once, broadcast", operands, = Fma),
    describe!("clamp", "min(max(x, min), max), broadcast", clamp::operands, Clamp),
    describe!("where", "a where the condition holds, else b, broadcast", choice, = Where),
];
