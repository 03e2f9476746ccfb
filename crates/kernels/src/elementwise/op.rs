use elinvar_core::DType;

use crate::{Scalar, binary::BinaryOp, compare::CompareOp, unary::UnaryOp};

/// An operator on elements, as a program that computes one element after the other has it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ElementOp {
    /// A function of one operand.
    Unary(UnaryOp),
    /// A function of two operands of one type.
    Binary(BinaryOp),
    /// A function of one operand and a number.
    WithScalar(BinaryOp, f32),
    /// `a · b + c`, rounded once.
    Fma,
    /// Between two numbers.
    Clamp(Scalar, Scalar),
    /// By a condition one of two operands.
    Select,
    /// A truth value.
    Compare(CompareOp),
    /// A conversion.
    Cast(DType),
}

impl ElementOp {
    /// Whether a program can compute it of operands of these types, which the operator takes.
    pub fn fuses(&self, dtypes: &[DType]) -> bool {
        match self {
            ElementOp::Binary(op) => dtypes.iter().all(|dtype| *dtype == dtypes[0]) && op.takes(dtypes[0]),
            ElementOp::Compare(op) => dtypes[0] != DType::Bool || matches!(op, CompareOp::Eq | CompareOp::Ne),
            ElementOp::Unary(_) | ElementOp::WithScalar(..) | ElementOp::Fma | ElementOp::Clamp(..) | ElementOp::Select | ElementOp::Cast(_) => true,
        }
    }
}
