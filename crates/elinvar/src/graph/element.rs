//! Operators on elements.

use elinvar_kernels::{ElementOp, TensorInfo};

use super::value::{Action, Operand, Output, Value, only};

/// Elements of one launch, and of memory up to the last that an operand has: what programs count them in has 32 bits.
const MAX_ELEMENTS: usize = 1 << 31;
/// An operator that a program can have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Element {
    pub(super) op: ElementOp,
    pub(super) info: TensorInfo,
    pub(super) value: Value,
}

impl Element {
    pub(super) fn of(action: &Action, inputs: &[Option<Operand>], outputs: &[Output]) -> Option<Self> {
        let Action::Operator(operator) = action else { return None };
        let (op, value) = (operator.element_op()?, only(outputs)?);
        let operands = inputs.iter().copied().collect::<Option<Vec<_>>>()?;
        let dtypes: Vec<_> = operands.iter().map(|operand| operand.info.dtype).collect();
        let infos: Vec<_> = operands.iter().map(|operand| Some(operand.seen())).collect();
        let info = *operator.infer(&infos).ok()?.first()?;
        let mut reaches = operands.iter().map(|operand| operand.info.layout.span().end).chain([info.elements()]);
        (op.fuses(&dtypes) && reaches.all(|elements| elements <= MAX_ELEMENTS)).then_some(Self { op, info, value })
    }

    /// Whether the operand is this result as it lies there.
    pub(super) fn is_whole(&self, operand: &Operand) -> bool {
        operand.value == self.value && operand.info == self.info
    }
}
