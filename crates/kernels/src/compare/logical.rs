//! Logic of truth values. They are bytes 0 and 1, so two of them meet in kernels that exist already.

use elinvar_core::{DType, DeviceProperties, Error, HostArguments, KernelKey, MetalFile, MetalForm, Parameter, Result};

use super::{Compare, CompareOp};
use crate::{
    Argument, Description, ElementOp, Launch, Operator, Plan, Port, TensorInfo,
    binary::{Binary, BinaryOp},
    elementwise::{
        self, Operand, Space,
        blocks::{Strided, map1},
        broadcast_shape,
        dispatch::{Truth, named},
        over_elements,
    },
    metal::{self, metal_file, params},
    required, simd,
    unary::UnaryOp,
};

const FILES: &[MetalFile] = &[metal::TYPES, Space::METAL, Operand::METAL, elementwise::METAL, NotParams::METAL, metal_file!("compare/logical.metal")];
const METAL: MetalForm = MetalForm::new(FILES, "logical_not");

named! {
    /// The operations of [`Logical`].
    pub enum LogicalOp("logical operation") {
        /// Both: the smaller byte.
        And "logical_and",
        /// At least one: the larger byte.
        Or "logical_or",
        /// Exactly one: whether the bytes differ.
        Xor "logical_xor",
    }
}

/// `y = a op b` of bools, broadcast.
#[derive(Clone, Copy, Debug)]
pub struct Logical {
    /// The operation.
    pub op: LogicalOp,
}

impl Operator for Logical {
    fn infer(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        let (a, b) = (required(inputs, 0, "a")?, required(inputs, 1, "b")?);
        if let Some(wrong) = [&a, &b].iter().find(|t| t.dtype != DType::Bool) {
            return Err(Error::invalid_argument(format!("{} of {}: bool expected", self.op, wrong.dtype)));
        }
        Ok(vec![TensorInfo::of(DType::Bool, broadcast_shape(&[&a, &b])?)])
    }

    fn plan(&self, inputs: &[Option<TensorInfo>], outputs: &[TensorInfo], device: &DeviceProperties) -> Result<Plan> {
        let byte = |t: &TensorInfo| TensorInfo { dtype: DType::U8, ..*t };
        let bytes: Vec<_> = inputs.iter().map(|i| i.as_ref().map(byte)).collect();
        match self.op {
            LogicalOp::And => Binary { op: BinaryOp::Min }.plan(&bytes, &[byte(&outputs[0])], device),
            LogicalOp::Or => Binary { op: BinaryOp::Max }.plan(&bytes, &[byte(&outputs[0])], device),
            LogicalOp::Xor => Compare { op: CompareOp::Ne }.plan(&bytes, outputs, device),
        }
    }

    fn accepts_strides(&self, _index: usize) -> bool {
        true
    }

    fn element_op(&self) -> Option<ElementOp> {
        Some(ElementOp::Binary(match self.op {
            LogicalOp::And => BinaryOp::And,
            LogicalOp::Or => BinaryOp::Or,
            LogicalOp::Xor => BinaryOp::Xor,
        }))
    }
}

/// `y = not x` of bools.
#[derive(Clone, Copy, Debug)]
pub struct LogicalNot;

params! {
    /// The parameter block.
    pub struct NotParams {
        /// What is visited.
        pub space: Space,
        /// The input.
        pub x: Operand,
    }
}

impl Operator for LogicalNot {
    fn infer(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        let x = required(inputs, 0, "x")?;
        if x.dtype != DType::Bool {
            return Err(Error::invalid_argument(format!("logical_not of {}: bool expected", x.dtype)));
        }
        Ok(vec![TensorInfo::of(DType::Bool, *x.shape())])
    }

    fn plan(&self, inputs: &[Option<TensorInfo>], _outputs: &[TensorInfo], _device: &DeviceProperties) -> Result<Plan> {
        let (space, [x]) = Space::collapse([&required(inputs, 0, "x")?.layout]);
        let buffers = [(Parameter::read("x", DType::Bool), Argument::Input(0)), (Parameter::write("y", DType::Bool), Argument::Output(0))];
        let launch = Launch::new(KernelKey::new("logical_not", &[DType::Bool]), not, &NotParams { space, x }, buffers);
        Ok(over_elements(launch.with_metal(METAL), space.elements()).into())
    }

    fn accepts_strides(&self, _index: usize) -> bool {
        true
    }

    fn element_op(&self) -> Option<ElementOp> {
        Some(ElementOp::Unary(UnaryOp::Not))
    }
}

fn not(arguments: &mut HostArguments<'_>) -> Result<()> {
    let NotParams { space, x } = arguments.params()?;
    map1(Strided::new(&space, &x, arguments.input::<Truth>(0)?)?, arguments.output::<Truth>(1)?, &not_block);
    Ok(())
}

simd! {
    fn not_block(x: &[Truth], y: &mut [Truth]) {
        for (y, x) in y.iter_mut().zip(x) {
            *y = Truth::new(!x.get());
        }
    }
}

const INPUTS: &[Port] = &[Port::new("a", &[DType::Bool], "any shape"), Port::new("b", &[DType::Bool], "any shape that broadcasts with a")];
const OUTPUTS: &[Port] = &[Port::new("y", &[DType::Bool], "the shape a and b broadcast to")];

const fn described(name: &'static str, summary: &'static str, build: fn(&crate::Attributes) -> Result<Box<dyn Operator>>) -> Description {
    Description { name, summary, inputs: INPUTS, outputs: OUTPUTS, attributes: &[], build }
}

pub(super) const AND: Description = described("logical_and", "a and b, broadcast", |_| Ok(Box::new(Logical { op: LogicalOp::And })));
pub(super) const OR: Description = described("logical_or", "a or b, broadcast", |_| Ok(Box::new(Logical { op: LogicalOp::Or })));
pub(super) const XOR: Description = described("logical_xor", "a or b but not both, broadcast", |_| Ok(Box::new(Logical { op: LogicalOp::Xor })));
pub(super) const NOT: Description = Description {
    inputs: &[Port::new("x", &[DType::Bool], "any shape")],
    outputs: &[Port::new("y", &[DType::Bool], "as x")],
    ..described("logical_not", "not x", |_| Ok(Box::new(LogicalNot)))
};
