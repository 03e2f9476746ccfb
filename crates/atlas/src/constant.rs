//! Values in programs.

use elinvar_core::DType;

/// A value known when the program is written, as the bits of its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Constant {
    /// Its type.
    pub dtype: DType,
    /// Its bits, those of narrower types in the low ones and the others zero.
    pub bits: u64,
}

impl Constant {
    /// A truth value.
    pub const fn bool(value: bool) -> Self {
        Self { dtype: DType::Bool, bits: value as u64 }
    }

    /// A u32.
    pub const fn u32(value: u32) -> Self {
        Self { dtype: DType::U32, bits: value as u64 }
    }

    /// An i32.
    pub const fn i32(value: i32) -> Self {
        Self { dtype: DType::I32, bits: value as u32 as u64 }
    }

    /// An f32.
    pub const fn f32(value: f32) -> Self {
        Self { dtype: DType::F32, bits: value.to_bits() as u64 }
    }

    /// An f64.
    pub const fn f64(value: f64) -> Self {
        let bits = if value.is_nan() { nan_bits(DType::F64) } else { value.to_bits() };
        Self { dtype: DType::F64, bits }
    }

    /// An integer of any integer type, if it is one of its values.
    pub fn integer(dtype: DType, value: i128) -> Option<Self> {
        let width = 8 * dtype.size() as u32;
        let (low, high) = if is_signed(dtype) { (-(1i128 << (width - 1)), (1i128 << (width - 1)) - 1) } else { (0, (1i128 << width) - 1) };
        let mask = if width == 64 { u64::MAX } else { (1 << width) - 1 };
        (dtype.is_integer() && (low..=high).contains(&value)).then_some(Self { dtype, bits: value as u64 & mask })
    }

    /// The nearest value of a floating-point type.
    pub fn float(dtype: DType, value: f32) -> Self {
        let bits = match dtype {
            DType::F64 => f64::from(value).to_bits(),
            DType::F16 => u64::from(half::f16::from_f32(value).to_bits()),
            DType::BF16 => u64::from(half::bf16::from_f32(value).to_bits()),
            DType::F32 | DType::Bool | DType::I8 | DType::I16 | DType::I32 | DType::I64 | DType::U8 | DType::U16 | DType::U32 | DType::U64 => {
                u64::from(value.to_bits())
            }
        };
        if value.is_nan() { Self { dtype, bits: nan_bits(dtype) } } else { Self { dtype, bits } }
    }

    /// The value of a constant of f32, f16 or bf16.
    pub fn as_f32(self) -> f32 {
        match self.dtype {
            DType::F16 => half::f16::from_bits(self.bits as u16).to_f32(),
            DType::BF16 => half::bf16::from_bits(self.bits as u16).to_f32(),
            DType::F64
            | DType::F32
            | DType::Bool
            | DType::I8
            | DType::I16
            | DType::I32
            | DType::I64
            | DType::U8
            | DType::U16
            | DType::U32
            | DType::U64 => f32::from_bits(self.bits as u32),
        }
    }

    /// The value of a constant of floating-point type.
    pub fn as_f64(self) -> f64 {
        if self.dtype == DType::F64 { f64::from_bits(self.bits) } else { f64::from(self.as_f32()) }
    }

    /// The value of a constant of integer type.
    pub fn as_integer(self) -> i128 {
        let shift = 64 - 8 * self.dtype.size() as u32;
        if is_signed(self.dtype) { i128::from(((self.bits << shift) as i64) >> shift) } else { i128::from(self.bits) }
    }

    /// Whether the bits are a value of the type; there is one NaN.
    pub fn is_valid(self) -> bool {
        let width = 8 * self.dtype.size() as u32;
        let fits = width == 64 || self.bits >> width == 0;
        match self.dtype {
            DType::Bool => self.bits <= 1,
            DType::F32 | DType::F16 | DType::BF16 | DType::F64 => fits && (!self.as_f64().is_nan() || self.bits == nan_bits(self.dtype)),
            DType::I8 | DType::I16 | DType::I32 | DType::I64 | DType::U8 | DType::U16 | DType::U32 | DType::U64 => fits,
        }
    }
}

/// The bits of the NaN that constants have.
const fn nan_bits(dtype: DType) -> u64 {
    match dtype {
        DType::F64 => 0x7ff8_0000_0000_0000,
        DType::F16 => 0x7e00,
        DType::BF16 => 0x7fc0,
        DType::F32 | DType::Bool | DType::I8 | DType::I16 | DType::I32 | DType::I64 | DType::U8 | DType::U16 | DType::U32 | DType::U64 => 0x7fc0_0000,
    }
}

/// Whether it is a floating-point type.
pub const fn is_floating(dtype: DType) -> bool {
    dtype.is_float() || matches!(dtype, DType::F64)
}

/// Whether it is a signed integer type.
pub const fn is_signed(dtype: DType) -> bool {
    matches!(dtype, DType::I8 | DType::I16 | DType::I32 | DType::I64)
}
