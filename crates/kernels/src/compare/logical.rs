//! Logic of truth values. They are bytes 0 and 1, so two of them meet in kernels that exist already.

use elinvar_core::{DType, DeviceProperties, HostArguments, KernelKey, MetalFile, MetalForm, Result};

use super::{Compare, CompareOp};
use crate::{
    Description, ElementOp, Launch, Operator, Plan, TensorInfo,
    binary::{Binary, BinaryOp},
    elementwise::{
        self, Operand, Space,
        blocks::{Strided, map1},
        dispatch::{Truth, named},
        over_elements,
    },
    metal::{self, metal_file, params},
    signature::{self, operands},
    simd,
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

operands! {
    mod pair {
        a: read(&[DType::Bool]), "any shape";
        b: read(&[DType::Bool]), "any shape that broadcasts with a";
        -> y: write(&[DType::Bool]), "the shape a and b broadcast to";
    }
}

operands! {
    mod single {
        x: read(&[DType::Bool]), "any shape";
        -> y: write(&[DType::Bool]), "as x";
    }
}

impl Operator for Logical {
    fn name(&self) -> &'static str {
        self.op.name()
    }

    fn outputs(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        let pair::Inputs { a, b } = pair::Inputs::new(inputs)?;
        Ok(vec![TensorInfo::of(DType::Bool, signature::broadcast(&[("a", a), ("b", b)])?)])
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
    fn name(&self) -> &'static str {
        "logical_not"
    }

    fn outputs(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        let single::Inputs { x } = single::Inputs::new(inputs)?;
        Ok(vec![TensorInfo::of(DType::Bool, *x.shape())])
    }

    fn plan(&self, inputs: &[Option<TensorInfo>], outputs: &[TensorInfo], _device: &DeviceProperties) -> Result<Plan> {
        let inputs = single::Inputs::new(inputs)?;
        let (space, [x]) = Space::collapse([&inputs.x.layout]);
        let launch = Launch::new(KernelKey::new("logical_not", &[DType::Bool]), not, &NotParams { space, x }, inputs.parameters(outputs)?);
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
    map1(Strided::new(&space, &x, arguments.input::<Truth>(single::AT.x)?)?, arguments.output::<Truth>(single::AT.y)?, &not_block);
    Ok(())
}

simd! {
    fn not_block(x: &[Truth], y: &mut [Truth]) {
        for (y, x) in y.iter_mut().zip(x) {
            *y = Truth::new(!x.get());
        }
    }
}

const fn described(name: &'static str, summary: &'static str, build: fn(&crate::Attributes) -> Result<Box<dyn Operator>>) -> Description {
    Description { name, summary, inputs: pair::INPUTS, outputs: pair::OUTPUTS, attributes: &[], build }
}

pub(super) const AND: Description = described("logical_and", "a and b, broadcast", |_| Ok(Box::new(Logical { op: LogicalOp::And })));
pub(super) const OR: Description = described("logical_or", "a or b, broadcast", |_| Ok(Box::new(Logical { op: LogicalOp::Or })));
pub(super) const XOR: Description = described("logical_xor", "a or b but not both, broadcast", |_| Ok(Box::new(Logical { op: LogicalOp::Xor })));
pub(super) const NOT: Description =
    Description { inputs: single::INPUTS, outputs: single::OUTPUTS, ..described("logical_not", "not x", |_| Ok(Box::new(LogicalNot))) };
