//! Arithmetic, comparisons and logic of two tensors, broadcast by NumPy's rule; see [`elinvar_kernels::binary`] and [`elinvar_kernels::compare`].

use elinvar_kernels::{
    binary::{Binary, BinaryOp},
    compare::{Compare, CompareOp, Logical, LogicalNot, LogicalOp},
    ternary::Where,
};

use super::operators;
use crate::tensor::Tensor;

macro_rules! pairs {
    ($operator:ident $ops:ident $errors:literal;
        $($(#[$doc:meta])* $name:ident $into:ident $($in_place:ident)? = $op:ident $x:literal, $other:literal => $shown:literal $(of $out:literal)?;)*) => {
        operators! {$(
            $(#[$doc])*
            $name $into $($in_place)? (&self, other: &Tensor) => $operator { op: $ops::$op }, Some(other);
            errors $errors;
            example concat!("let (x, y) = (executor.tensor(", $x, ")?, executor.tensor(", $other, ")?);"); ("&y") => $shown $(of $out)?;
        )*}
    };
}

pairs! { Binary BinaryOp "Shapes that do not broadcast, data types that differ, or out of memory.";
    /// a + b
    add add_into add_ = Add "&[2], &[1i32, 2]", "&[1], &[10i32]" => "[11, 12]";
    /// a − b
    sub sub_into sub_ = Sub "&[2], &[13i32, 12]", "&[1], &[10i32]" => "[3, 2]";
    /// a · b
    mul mul_into mul_ = Mul "&[2], &[1i32, 2]", "&[1], &[10i32]" => "[10, 20]";
    /// a / b
    div div_into div_ = Div "&[2], &[1f32, 6.0]", "&[1], &[4f32]" => "[0.25,  1.5]";
    /// The smaller.
    minimum minimum_into minimum_ = Min "&[2], &[1i32, 5]", "&[1], &[3i32]" => "[1, 3]";
    /// The larger.
    maximum maximum_into maximum_ = Max "&[2], &[1i32, 5]", "&[1], &[3i32]" => "[3, 5]";
    /// a to the power b; b may be of another numeric type.
    pow pow_into pow_ = Pow "&[2], &[2f32, 3.0]", "&[1], &[2i32]" => "[4.0, 9.0]";
    /// a − b · trunc(a / b): what division towards zero leaves.
    fmod fmod_into fmod_ = Rem "&[2], &[7i32, -7]", "&[1], &[4i32]" => "[ 3, -3]";
    /// Bits that both have.
    bitwise_and bitwise_and_into bitwise_and_ = And "&[2], &[6i32, 9]", "&[1], &[3i32]" => "[2, 1]";
    /// Bits that either has.
    bitwise_or bitwise_or_into bitwise_or_ = Or "&[2], &[6i32, 8]", "&[1], &[1i32]" => "[7, 9]";
    /// Bits that differ.
    bitwise_xor bitwise_xor_into bitwise_xor_ = Xor "&[2], &[6i32, 9]", "&[1], &[3i32]" => "[ 5, 10]";
    /// a shifted left by b bits, modulo the width.
    left_shift left_shift_into left_shift_ = Shl "&[2], &[1i32, 3]", "&[1], &[2i32]" => "[ 4, 12]";
    /// a shifted right by b bits, modulo the width, copying the sign of signed types.
    right_shift right_shift_into right_shift_ = Shr "&[2], &[12i32, -8]", "&[1], &[2i32]" => "[ 3, -2]";
}

pairs! { Compare CompareOp "Shapes that do not broadcast, data types that differ, or out of memory.";
    /// a = b, as bool.
    eq eq_into = Eq "&[2], &[1i32, 5]", "&[1], &[5i32]" => "[false,  true]" of "DType::Bool, &[2]";
    /// a ≠ b, as bool.
    ne ne_into = Ne "&[2], &[1i32, 5]", "&[1], &[5i32]" => "[ true, false]" of "DType::Bool, &[2]";
    /// a < b, as bool.
    lt lt_into = Lt "&[2], &[1i32, 5]", "&[1], &[5i32]" => "[ true, false]" of "DType::Bool, &[2]";
    /// a ≤ b, as bool.
    le le_into = Le "&[2], &[1i32, 5]", "&[1], &[5i32]" => "[true, true]" of "DType::Bool, &[2]";
    /// a > b, as bool.
    gt gt_into = Gt "&[2], &[1i32, 5]", "&[1], &[5i32]" => "[false, false]" of "DType::Bool, &[2]";
    /// a ≥ b, as bool.
    ge ge_into = Ge "&[2], &[1i32, 5]", "&[1], &[5i32]" => "[false,  true]" of "DType::Bool, &[2]";
}

macro_rules! logic {
    ($($(#[$doc:meta])* $name:ident $into:ident $in_place:ident = $op:ident => $shown:literal;)*) => {
        operators! {$(
            $(#[$doc])*
            $name $into $in_place (&self, other: &Tensor) => Logical { op: LogicalOp::$op }, Some(other);
            errors "Not bools, shapes that do not broadcast, or out of memory.";
            example "let (x, y) = (executor.eye(DType::Bool, 2)?, executor.full(DType::Bool, &[1], 1)?);"; ("&y") => $shown;
        )*}
    };
}

logic! {
    /// a and b, of truth values.
    logical_and logical_and_into logical_and_ = And => "[[ true, false],\\n [false,  true]]";
    /// a or b, of truth values.
    logical_or logical_or_into logical_or_ = Or => "[[true, true],\\n [true, true]]";
    /// a or b but not both, of truth values.
    logical_xor logical_xor_into logical_xor_ = Xor => "[[false,  true],\\n [ true, false]]";
}

operators! {
    /// Not a, of truth values.
    logical_not logical_not_into logical_not_ (&self) => LogicalNot;
    errors "Not bools, or out of memory.";
    example "let x = executor.eye(DType::Bool, 2)?;"; () => "[[false,  true],\\n [ true, false]]";

    /// Where this tensor of truth values is true the element of `a`, else that of `b`, broadcast: NumPy's `where`, which is a word of Rust's.
    select select_into (&self, a: &Tensor, b: &Tensor) => Where, Some(a), Some(b);
    errors "Not a bool tensor, shapes that do not broadcast, or types that differ.";
    example "let x = executor.eye(DType::Bool, 2)?;\nlet (a, b) = (executor.full(DType::F32, &[1], 5)?, executor.full(DType::F32, &[1], 1)?);";
    ("&a", "&b") => "[[5.0, 1.0],\\n [1.0, 5.0]]" of "DType::F32, &[2, 2]";
}
