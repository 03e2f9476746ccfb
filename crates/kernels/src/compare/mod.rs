//! Comparisons of two tensors and logic of truth values, broadcast by NumPy's rule; the output is bool, bytes 0 and 1.
//!
//! * Comparisons are exact, of two tensors of one type, bool included (false is less than true). NaN is not equal to, less or greater than
//!   anything; `ne` is the opposite of `eq`.
//! * Memory: each operand is read once, the output is written once.

mod cpu;
mod descriptions;
mod logical;
#[cfg(any(test, feature = "conformance"))]
pub(crate) mod oracle;

use elinvar_core::{DType, DeviceProperties, KernelKey, MetalFile, MetalForm, Result};

pub(crate) use descriptions::DESCRIPTIONS;
pub use logical::{Logical, LogicalNot, LogicalOp, NotParams};

pub use crate::functions::Compare as CompareOp;
use crate::{
    ElementOp, Launch, Operator, Plan, TensorInfo,
    binary::BinaryParams,
    elementwise::{self, Operand, Space, over_elements},
    metal::{self, metal_file},
    signature::{self, operands},
};

const FILES: &[MetalFile] =
    &[metal::TYPES, Space::METAL, Operand::METAL, elementwise::METAL, BinaryParams::METAL, CompareOp::OBJECTS, metal_file!("compare/compare.metal")];
const METAL: MetalForm = MetalForm::new(FILES, "compare");

/// `y = a op b`, broadcast, as bool; `a` and `b` of one type.
#[derive(Clone, Copy, Debug)]
pub struct Compare {
    /// The relation.
    pub op: CompareOp,
}

operands! {
    a: read(DType::ALL), "any shape";
    b: read(like a), "any shape that broadcasts with a";
    -> y: write(&[DType::Bool]), "the shape a and b broadcast to";
}

impl Operator for Compare {
    fn name(&self) -> &'static str {
        self.op.name()
    }

    fn outputs(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        let operands::Inputs { a, b } = operands::Inputs::new(inputs)?;
        Ok(vec![TensorInfo::of(DType::Bool, signature::broadcast(&[("a", a), ("b", b)])?)])
    }

    fn plan(&self, inputs: &[Option<TensorInfo>], outputs: &[TensorInfo], _device: &DeviceProperties) -> Result<Plan> {
        let operands::Inputs { a, b } = operands::Inputs::new(inputs)?;
        // Truth values are bytes 0 and 1.
        let dtype = if a.dtype == DType::Bool { DType::U8 } else { a.dtype };
        let [a, b] = [a, b].map(|x| TensorInfo { dtype, ..x });
        let buffers = operands::Inputs { a, b }.parameters(outputs)?;
        let (space, [a, b]) = Space::broadcast(*outputs[0].shape(), [&a, &b])?;
        let launch = Launch::new(KernelKey::new(self.op.name(), &[dtype]), cpu::kernel(self.op, dtype)?, &BinaryParams { space, a, b }, buffers)
            .with_metal(METAL.with_arguments(self.op.object()));
        Ok(over_elements(launch, space.elements()).into())
    }

    fn accepts_strides(&self, _index: usize) -> bool {
        true
    }

    fn element_op(&self) -> Option<ElementOp> {
        Some(ElementOp::Compare(self.op))
    }
}
