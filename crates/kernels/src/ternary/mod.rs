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

use elinvar_core::{DType, DeviceProperties, Error, KernelKey, MetalFile, MetalForm, Parameter, Result};

pub use clamp::{Clamp, ClampParams};

use crate::{
    Argument, AttributeInfo, AttributeKind, Description, ElementOp, Launch, Operator, Plan, Port, TensorInfo,
    elementwise::{self, Operand, Space, broadcast_shape, over_elements, same_dtype, storage},
    metal::{self, metal_file, params},
    required,
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

impl Operator for Fma {
    fn infer(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        let (a, b, c) = (required(inputs, 0, "a")?, required(inputs, 1, "b")?, required(inputs, 2, "c")?);
        let dtype = same_dtype("fma", &[&a, &b, &c])?;
        if !dtype.is_float() {
            return Err(Error::invalid_argument(format!("fma of {dtype}: f32, f16 or bf16 expected")));
        }
        Ok(vec![TensorInfo::of(dtype, broadcast_shape(&[&a, &b, &c])?)])
    }

    fn plan(&self, inputs: &[Option<TensorInfo>], outputs: &[TensorInfo], _device: &DeviceProperties) -> Result<Plan> {
        let (a, b, c, y) = (required(inputs, 0, "a")?, required(inputs, 1, "b")?, required(inputs, 2, "c")?, outputs[0]);
        let (space, operands) = Space::broadcast(*y.shape(), [&a, &b, &c])?;
        let buffers = [
            (Parameter::read("a", y.dtype), Argument::Input(0)),
            (Parameter::read("b", y.dtype), Argument::Input(1)),
            (Parameter::read("c", y.dtype), Argument::Input(2)),
            (Parameter::write("y", y.dtype), Argument::Output(0)),
        ];
        let launch = Launch::new(KernelKey::new("fma", &[y.dtype]), cpu::fma(y.dtype)?, &TernaryParams { space, operands }, buffers);
        Ok(over_elements(launch.with_metal(FMA), space.elements()).into())
    }

    fn accepts_strides(&self, _index: usize) -> bool {
        true
    }

    fn element_op(&self) -> Option<ElementOp> {
        Some(ElementOp::Fma)
    }
}

impl Operator for Where {
    fn infer(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        let (condition, a, b) = (required(inputs, 0, "condition")?, required(inputs, 1, "a")?, required(inputs, 2, "b")?);
        if condition.dtype != DType::Bool {
            return Err(Error::invalid_argument(format!("where with a condition of {}: bool expected", condition.dtype)));
        }
        Ok(vec![TensorInfo::of(same_dtype("where", &[&a, &b])?, broadcast_shape(&[&condition, &a, &b])?)])
    }

    fn plan(&self, inputs: &[Option<TensorInfo>], outputs: &[TensorInfo], _device: &DeviceProperties) -> Result<Plan> {
        let (condition, a, b) = (required(inputs, 0, "condition")?, required(inputs, 1, "a")?, required(inputs, 2, "b")?);
        let (space, operands) = Space::broadcast(*outputs[0].shape(), [&condition, &a, &b])?;
        let bits = storage(a.dtype);
        let buffers = [
            (Parameter::read("condition", DType::Bool), Argument::Input(0)),
            (Parameter::read("a", bits), Argument::Input(1)),
            (Parameter::read("b", bits), Argument::Input(2)),
            (Parameter::write("y", bits), Argument::Output(0)),
        ];
        let launch = Launch::new(KernelKey::new("where", &[bits]), cpu::select(bits), &TernaryParams { space, operands }, buffers);
        Ok(over_elements(launch.with_metal(WHERE), space.elements()).into())
    }

    fn accepts_strides(&self, _index: usize) -> bool {
        true
    }

    fn element_op(&self) -> Option<ElementOp> {
        Some(ElementOp::Select)
    }
}

const fn number(name: &'static str, doc: &'static str) -> AttributeInfo {
    AttributeInfo { name, kind: AttributeKind::Float, default: Some(""), doc }
}

pub(crate) const DESCRIPTIONS: &[Description] = &[
    Description {
        name: "fma",
        summary: "a * b + c, rounded once, broadcast",
        inputs: &[
            Port::new("a", DType::FLOATS, "any shape"),
            Port::new("b", DType::FLOATS, "any shape that broadcasts with a and c"),
            Port::new("c", DType::FLOATS, "any shape that broadcasts with a and b"),
        ],
        outputs: &[Port::new("y", DType::FLOATS, "the shape all broadcast to")],
        attributes: &[],
        build: |_| Ok(Box::new(Fma)),
    },
    Description {
        name: "clamp",
        summary: "min(max(x, min), max), broadcast",
        inputs: &[
            Port::new("x", DType::NUMBERS, "any shape"),
            Port::new("min", DType::NUMBERS, "lower bounds, of x's type, any shape that broadcasts with x").or_absent(),
            Port::new("max", DType::NUMBERS, "upper bounds, alike").or_absent(),
        ],
        outputs: &[Port::new("y", DType::NUMBERS, "the shape all broadcast to")],
        attributes: &[
            number("min", "the lower bound where there is no tensor of them; none if not given"),
            number("max", "the upper bound where there is no tensor of them; none if not given"),
        ],
        build: |a| Ok(Box::new(Clamp { min: a.optional("min")?, max: a.optional("max")? })),
    },
    Description {
        name: "where",
        summary: "a where the condition holds, else b, broadcast",
        inputs: &[
            Port::new("condition", &[DType::Bool], "any shape"),
            Port::new("a", DType::ALL, "any shape that broadcasts with the others"),
            Port::new("b", DType::ALL, "of a's type, any shape that broadcasts with the others"),
        ],
        outputs: &[Port::new("y", DType::ALL, "the shape all broadcast to")],
        attributes: &[],
        build: |_| Ok(Box::new(Where)),
    },
];
