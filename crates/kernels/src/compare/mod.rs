//! Comparisons of two tensors and logic of truth values, broadcast by NumPy's rule; the output is bool, bytes 0 and 1.
//!
//! * Comparisons are exact, of two tensors of one type, bool included (false is less than true). NaN is not equal to, less or greater than
//!   anything; `ne` is the opposite of `eq`.
//! * Memory: each operand is read once, the output is written once.

mod cpu;
mod logical;
#[cfg(any(test, feature = "conformance"))]
pub(crate) mod oracle;

use elinvar_core::{DType, DeviceProperties, KernelKey, MetalFile, MetalForm, Parameter, Result};

pub use logical::{Logical, LogicalNot, LogicalOp, NotParams};

use crate::{
    Argument, Description, Launch, Operator, Plan, Port, TensorInfo,
    binary::BinaryParams,
    elementwise::{self, Operand, Space, broadcast_shape, over_elements, same_dtype, storage},
    metal::{self, metal_file},
    required,
};

const FILES: &[MetalFile] =
    &[metal::TYPES, Space::METAL, Operand::METAL, elementwise::METAL, BinaryParams::METAL, metal_file!("compare/compare.metal")];
const METAL: MetalForm = MetalForm::new(FILES, "compare");

/// `y = a op b`, broadcast, as bool; `a` and `b` of one type.
#[derive(Clone, Copy, Debug)]
pub struct Compare {
    /// The relation.
    pub op: CompareOp,
}

/// The relations that kernels exist for; the others change the operands' places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relation {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
}

impl CompareOp {
    /// The kernel's relation, and whether the operands change places.
    fn relation(self) -> (Relation, bool) {
        match self {
            CompareOp::Eq => (Relation::Equal, false),
            CompareOp::Ne => (Relation::NotEqual, false),
            CompareOp::Lt => (Relation::Less, false),
            CompareOp::Le => (Relation::LessOrEqual, false),
            CompareOp::Gt => (Relation::Less, true),
            CompareOp::Ge => (Relation::LessOrEqual, true),
        }
    }
}

impl Relation {
    fn name(self) -> &'static str {
        match self {
            Relation::Equal => "eq",
            Relation::NotEqual => "ne",
            Relation::Less => "lt",
            Relation::LessOrEqual => "le",
        }
    }

    /// The function object in Metal.
    fn function(self) -> &'static [&'static str] {
        match self {
            Relation::Equal => &["Equal"],
            Relation::NotEqual => &["NotEqual"],
            Relation::Less => &["Less"],
            Relation::LessOrEqual => &["LessOrEqual"],
        }
    }

    /// The type the kernel compares as: whether integers are equal is seen from their bits.
    fn dtype(self, dtype: DType) -> DType {
        let equality = matches!(self, Relation::Equal | Relation::NotEqual);
        if dtype == DType::Bool || dtype.is_integer() && equality { storage(dtype) } else { dtype }
    }
}

impl Operator for Compare {
    fn infer(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        let (a, b) = (required(inputs, 0, "a")?, required(inputs, 1, "b")?);
        same_dtype(self.op, &[&a, &b])?;
        Ok(vec![TensorInfo::of(DType::Bool, broadcast_shape(&[&a, &b])?)])
    }

    fn plan(&self, inputs: &[Option<TensorInfo>], outputs: &[TensorInfo], _device: &DeviceProperties) -> Result<Plan> {
        let (relation, swapped) = self.op.relation();
        let (left, right) = if swapped { (1, 0) } else { (0, 1) };
        let (a, b) = (required(inputs, left, "a")?, required(inputs, right, "b")?);
        let dtype = relation.dtype(a.dtype);
        let buffers = [
            (Parameter::read("a", dtype), Argument::Input(left)),
            (Parameter::read("b", dtype), Argument::Input(right)),
            (Parameter::write("y", DType::Bool), Argument::Output(0)),
        ];
        let (space, [a, b]) = Space::broadcast(*outputs[0].shape(), [&a, &b])?;
        let launch = Launch::new(KernelKey::new(relation.name(), &[dtype]), cpu::twin(relation, dtype)?, &BinaryParams { space, a, b }, buffers)
            .with_metal(METAL.with_arguments(relation.function()));
        Ok(over_elements(launch, space.elements()).into())
    }

    fn accepts_strides(&self, _index: usize) -> bool {
        true
    }
}

macro_rules! relations {
    ($($(#[$doc:meta])* $variant:ident $name:literal $summary:literal;)*) => {
        crate::elementwise::dispatch::named! {
            /// The relations of [`Compare`].
            pub enum CompareOp("comparison") { $($(#[$doc])* $variant $name,)* }
        }

        pub(crate) const DESCRIPTIONS: &[Description] = &[
            $(Description {
                name: $name,
                summary: $summary,
                inputs: &[Port::new("a", DType::ALL, "any shape"), Port::new("b", DType::ALL, "of a's type, any shape that broadcasts with a")],
                outputs: &[Port::new("y", &[DType::Bool], "the shape a and b broadcast to")],
                attributes: &[],
                build: |_| Ok(Box::new(Compare { op: CompareOp::$variant })),
            },)*
            logical::AND,
            logical::OR,
            logical::XOR,
            logical::NOT,
        ];
    };
}

relations! {
    /// a = b.
    Eq "eq" "a = b, broadcast";
    /// a ≠ b.
    Ne "ne" "a /= b, broadcast";
    /// a < b.
    Lt "lt" "a < b, broadcast";
    /// a ≤ b.
    Le "le" "a <= b, broadcast";
    /// a > b.
    Gt "gt" "a > b, broadcast";
    /// a ≥ b.
    Ge "ge" "a >= b, broadcast";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comparisons_take_two_of_one_type_and_give_bool() {
        let info = |dtype| Some(TensorInfo::new(dtype, &[3]).unwrap());
        for &op in CompareOp::ALL {
            assert_eq!(op.to_string().parse::<CompareOp>().unwrap(), op);
            assert_eq!(Compare { op }.infer(&[info(DType::I8), info(DType::I8)]).unwrap()[0].dtype, DType::Bool);
            assert!(Compare { op }.infer(&[info(DType::I8), info(DType::U8)]).is_err());
        }
    }
}
