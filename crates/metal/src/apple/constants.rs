//! Values of function constants.

use elinvar_core::ConstantValue;
use half::{bf16, f16};
use objc2_metal::MTLDataType;

/// A value's bytes as a type of Metal's; nothing if it does not fit.
pub(super) fn constant_bytes(kind: MTLDataType, value: ConstantValue) -> Option<[u8; 8]> {
    let mut bytes = [0; 8];
    let mut put = |from: &[u8]| bytes.iter_mut().zip(from).for_each(|(to, &from)| *to = from);
    match (kind, value) {
        (MTLDataType::Bool, ConstantValue::Bool(v)) => put(&[u8::from(v)]),
        (MTLDataType::Char, ConstantValue::Int(v)) => put(&i8::try_from(v).ok()?.to_ne_bytes()),
        (MTLDataType::Short, ConstantValue::Int(v)) => put(&i16::try_from(v).ok()?.to_ne_bytes()),
        (MTLDataType::Int, ConstantValue::Int(v)) => put(&i32::try_from(v).ok()?.to_ne_bytes()),
        (MTLDataType::Long, ConstantValue::Int(v)) => put(&v.to_ne_bytes()),
        (MTLDataType::UChar, ConstantValue::Uint(v)) => put(&u8::try_from(v).ok()?.to_ne_bytes()),
        (MTLDataType::UShort, ConstantValue::Uint(v)) => put(&u16::try_from(v).ok()?.to_ne_bytes()),
        (MTLDataType::UInt, ConstantValue::Uint(v)) => put(&u32::try_from(v).ok()?.to_ne_bytes()),
        (MTLDataType::ULong, ConstantValue::Uint(v)) => put(&v.to_ne_bytes()),
        (MTLDataType::Float, ConstantValue::Float(v)) => put(&v.to_ne_bytes()),
        (MTLDataType::Half, ConstantValue::Float(v)) => put(&f16::from_f32(v).to_ne_bytes()),
        (MTLDataType::BFloat, ConstantValue::Float(v)) => put(&bf16::from_f32(v).to_ne_bytes()),
        _ => return None,
    }
    Some(bytes)
}
