//! Names, types and values of a program in Metal.

use elinvar_core::{DType, metal_type};

use crate::program::{Constant, Shared};

/// A name of the program's: behind a prefix, so that it means nothing in the languages that the text is lowered to, nor in the library.
pub(super) fn own(name: &str) -> String {
    format!("p_{name}")
}

/// The type of an element in memory: truth values are bytes, zero or not.
pub(super) const fn element_name(dtype: DType) -> &'static str {
    if matches!(dtype, DType::Bool) { "uchar" } else { metal_type(dtype) }
}

/// How many elements a shared array has, as the text says it.
pub(super) fn length_of(shared: &Shared) -> String {
    if shared.length == 0 { format!("atlas_parameters.length_{}", shared.name) } else { format!("{}ul", shared.length) }
}

pub(super) const fn is_half(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::BF16)
}

/// A constant.
pub(super) fn literal(constant: Constant) -> String {
    let dtype = constant.dtype;
    if dtype == DType::Bool {
        return (constant.bits != 0).to_string();
    }
    if dtype.is_float() {
        let value = constant.as_f32();
        let text = match value {
            v if v.is_nan() => "NAN".to_owned(),
            v if v.is_infinite() => "INFINITY".to_owned(),
            v => format!("{:?}f", v.abs()),
        };
        return if value.is_sign_negative() && !value.is_nan() { format!("(-{text})") } else { text };
    }
    let value = constant.as_integer();
    match dtype {
        DType::U32 => format!("{value}u"),
        DType::U64 => format!("{value}ul"),
        DType::I32 if value == i128::from(i32::MIN) => "(-2147483647 - 1)".to_owned(),
        DType::I64 if value == i128::from(i64::MIN) => "(-9223372036854775807l - 1l)".to_owned(),
        DType::I32 if value < 0 => format!("({value})"),
        DType::I32 => value.to_string(),
        DType::I64 if value < 0 => format!("({value}l)"),
        DType::I64 => format!("{value}l"),
        DType::I8 | DType::I16 | DType::U8 | DType::U16 | DType::Bool | DType::F32 | DType::F16 | DType::BF16 | DType::F64 => {
            format!("{}({value})", metal_type(dtype))
        }
    }
}

/// Zero, as an element of memory.
pub(super) fn zero(dtype: DType) -> String {
    format!("{}(0)", element_name(dtype))
}

/// The type in which a reduction computes.
pub(super) const fn exchanged(dtype: DType) -> &'static str {
    if matches!(dtype, DType::Bool) { "uint" } else { held(dtype) }
}

/// The type of a register: 16-bit floats are held as the f32 of the same value.
pub(super) const fn held(dtype: DType) -> &'static str {
    if is_half(dtype) { "float" } else { metal_type(dtype) }
}

/// An element of memory as a register's value.
pub(super) fn loaded(dtype: DType, element: String) -> String {
    match dtype {
        DType::Bool => format!("({element} != 0)"),
        DType::F16 | DType::BF16 => format!("atlas::widen({element})"),
        DType::F32 | DType::F64 | DType::I8 | DType::I16 | DType::I32 | DType::I64 | DType::U8 | DType::U16 | DType::U32 | DType::U64 => element,
    }
}

/// A register's value as an element of memory.
pub(super) fn stored(dtype: DType, value: String) -> String {
    match dtype {
        DType::Bool => format!("uchar({value})"),
        DType::F16 | DType::BF16 => format!("atlas::narrow<{}>({value})", metal_type(dtype)),
        DType::F32 | DType::F64 | DType::I8 | DType::I16 | DType::I32 | DType::I64 | DType::U8 | DType::U16 | DType::U32 | DType::U64 => value,
    }
}

/// The value of an expression over f32 as one of the type.
pub(super) fn rounded(dtype: DType, value: String) -> String {
    if is_half(dtype) { format!("atlas::rounded<{}>({value})", metal_type(dtype)) } else { value }
}
