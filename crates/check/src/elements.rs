//! Elements of the data types, as numbers and as text.

use elinvar_core::{DType, Error, Result};
use half::{bf16, f16};

/// Elements as numbers.
pub fn numbers(dtype: DType, bytes: &[u8]) -> Vec<f64> {
    macro_rules! read {
        ($type:ty, |$x:ident| $value:expr) => {
            bytes.chunks_exact(size_of::<$type>()).map(|chunk| bytemuck::pod_read_unaligned::<$type>(chunk)).map(|$x| $value).collect()
        };
    }
    match dtype {
        DType::F32 => read!(f32, |x| f64::from(x)),
        DType::F64 => read!(f64, |x| x),
        DType::F16 => read!(f16, |x| x.to_f64()),
        DType::BF16 => read!(bf16, |x| x.to_f64()),
        DType::I8 => read!(i8, |x| f64::from(x)),
        DType::I16 => read!(i16, |x| f64::from(x)),
        DType::I32 => read!(i32, |x| f64::from(x)),
        DType::I64 => read!(i64, |x| x as f64),
        DType::U16 => read!(u16, |x| f64::from(x)),
        DType::U32 => read!(u32, |x| f64::from(x)),
        DType::U64 => read!(u64, |x| x as f64),
        DType::U8 | DType::Bool => read!(u8, |x| f64::from(x)),
    }
}

/// A number as bytes of a data type.
///
/// # Errors
/// The text is no such number.
pub fn encode(dtype: DType, text: &str) -> Result<Vec<u8>> {
    macro_rules! bytes {
        ($type:ty) => {
            text.trim().parse::<$type>().ok().map(|value| value.to_ne_bytes().to_vec())
        };
    }
    let bytes = match dtype {
        DType::F32 => bytes!(f32),
        DType::F64 => bytes!(f64),
        DType::F16 => text.trim().parse().ok().map(|value| f16::from_f32(value).to_ne_bytes().to_vec()),
        DType::BF16 => text.trim().parse().ok().map(|value| bf16::from_f32(value).to_ne_bytes().to_vec()),
        DType::I8 => bytes!(i8),
        DType::I16 => bytes!(i16),
        DType::I32 => bytes!(i32),
        DType::I64 => bytes!(i64),
        DType::U8 => bytes!(u8),
        DType::U16 => bytes!(u16),
        DType::U32 => bytes!(u32),
        DType::U64 => bytes!(u64),
        DType::Bool => match text.trim() {
            "true" | "1" => Some(vec![1]),
            "false" | "0" => Some(vec![0]),
            _ => None,
        },
    };
    bytes.ok_or_else(|| Error::invalid_argument(format!("'{text}' is no {dtype}")))
}

/// The data type of a Metal type's elements, those of vectors too; none of structs and of names that the text gives.
pub fn scalar_type(metal: &str) -> Option<DType> {
    let name = metal.trim().trim_start_matches("metal::").trim_start_matches("packed_").trim_start_matches("atomic_");
    match name.trim_end_matches(['2', '3', '4']) {
        "float" => Some(DType::F32),
        "half" => Some(DType::F16),
        "bfloat" => Some(DType::BF16),
        "bool" => Some(DType::Bool),
        "char" | "int8_t" => Some(DType::I8),
        "short" | "int16_t" => Some(DType::I16),
        "int" | "int32_t" => Some(DType::I32),
        "long" | "int64_t" => Some(DType::I64),
        "uchar" | "uint8_t" => Some(DType::U8),
        "ushort" | "uint16_t" => Some(DType::U16),
        "uint" | "uint32_t" => Some(DType::U32),
        "ulong" | "uint64_t" => Some(DType::U64),
        _ => None,
    }
}
