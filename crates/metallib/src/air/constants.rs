//! Values of function constants.

use elinvar_core::ConstantValue;

/// A constant's value as the global variable of type `stored` holds it.
pub(super) fn literal(value: ConstantValue, stored: &str, kind: &str) -> String {
    let float = |value: f32| match stored {
        "half" => format!("0xH{:04X}", half::f16::from_f32(value).to_bits()),
        _ => format!("0x{:016X}", f64::from(value).to_bits()),
    };
    let is_float = matches!(stored, "float" | "half");
    match value {
        ConstantValue::Bool(value) if is_float => float(f32::from(u8::from(value))),
        ConstantValue::Bool(value) => u8::from(value).to_string(),
        ConstantValue::Int(value) if is_float => float(value as f32),
        ConstantValue::Uint(value) if is_float => float(value as f32),
        // A bool is a byte that holds 0 or 1.
        ConstantValue::Int(value) if kind == "b" => u8::from(value != 0).to_string(),
        ConstantValue::Uint(value) if kind == "b" => u8::from(value != 0).to_string(),
        ConstantValue::Int(value) => wrapped(value as u64, stored),
        ConstantValue::Uint(value) => wrapped(value, stored),
        ConstantValue::Float(value) if is_float => float(value),
        ConstantValue::Float(value) => wrapped(value as i64 as u64, stored),
    }
}

fn wrapped(value: u64, stored: &str) -> String {
    match stored {
        "i8" => (value as i8).to_string(),
        "i16" => (value as i16).to_string(),
        "i32" => (value as i32).to_string(),
        _ => (value as i64).to_string(),
    }
}
