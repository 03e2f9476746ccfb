//! A number given as an attribute, for a tensor of any type.

use std::str::FromStr;

use elinvar_core::{DType, Element, Error, Result};
use half::{bf16, f16};

/// A number whose type is that of the tensor it meets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalar {
    /// A whole number.
    Int(i128),
    /// A real number.
    Float(f64),
}

impl Scalar {
    /// The bits of the number in `dtype`, in the low bytes: rounded to nearest even for a floating-point type.
    ///
    /// # Errors
    /// A fraction, or a number out of range, for an integer type or bool (0 or 1).
    pub fn bits(self, dtype: DType) -> Result<u64> {
        if dtype.is_float() {
            return Ok(self.float_bits(dtype));
        }
        let (low, high) = range(dtype);
        match self.whole() {
            Some(value) if (low..=high).contains(&value) => Ok(value as u64),
            _ => Err(Error::invalid_argument(format!("{self} is no value of {dtype}: a whole number from {low} to {high} is"))),
        }
    }

    /// As [`Scalar::bits`], but an integer out of range becomes the nearest bound.
    ///
    /// # Errors
    /// A fraction for an integer type.
    pub fn saturated_bits(self, dtype: DType) -> Result<u64> {
        if dtype.is_float() {
            return self.bits(dtype);
        }
        let (low, high) = range(dtype);
        let bounded = match self {
            Scalar::Float(f64::INFINITY) => Scalar::Int(high),
            Scalar::Float(f64::NEG_INFINITY) => Scalar::Int(low),
            Scalar::Int(_) | Scalar::Float(_) => self.whole().map_or(self, |value| Scalar::Int(value.clamp(low, high))),
        };
        bounded.bits(dtype)
    }

    /// The number as f64.
    pub fn to_f64(self) -> f64 {
        match self {
            Scalar::Int(value) => value as f64,
            Scalar::Float(value) => value,
        }
    }

    /// The number, if it is whole.
    pub fn whole(self) -> Option<i128> {
        match self {
            Scalar::Int(value) => Some(value),
            Scalar::Float(value) => (value.fract() == 0.0).then_some(value as i128),
        }
    }

    fn float_bits(self, dtype: DType) -> u64 {
        match (dtype, self) {
            (DType::F32, Scalar::Int(value)) => u64::from((value as f32).to_bits()),
            (DType::F32, Scalar::Float(value)) => u64::from((value as f32).to_bits()),
            (DType::F16, _) => u64::from(f16::from_f64(self.to_f64()).to_bits()),
            _ => u64::from(bf16::from_f64(self.to_f64()).to_bits()),
        }
    }
}

/// The value of `T` whose bits are the low ones of `bits`.
pub(crate) fn low_bits<T: Element>(bits: u64) -> T {
    let mut value = T::zeroed();
    bytemuck::bytes_of_mut(&mut value).copy_from_slice(&bits.to_le_bytes()[..size_of::<T>()]);
    value
}

/// The least and the greatest value of an integer type or bool.
fn range(dtype: DType) -> (i128, i128) {
    let bits = 8 * dtype.size() as u32;
    match dtype {
        DType::Bool => (0, 1),
        DType::I8 | DType::I16 | DType::I32 | DType::I64 => (-(1 << (bits - 1)), (1 << (bits - 1)) - 1),
        DType::U8 | DType::U16 | DType::U32 | DType::U64 => (0, (1 << bits) - 1),
        // All bits.
        DType::F32 | DType::F16 | DType::BF16 | DType::F64 => (0, (1 << bits) - 1),
    }
}

impl std::fmt::Display for Scalar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Scalar::Int(value) => value.fmt(f),
            Scalar::Float(value) => value.fmt(f),
        }
    }
}

impl FromStr for Scalar {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let float = || text.parse().map(Scalar::Float).map_err(|_| Error::invalid_argument(format!("'{text}' is no number")));
        text.parse().map(Scalar::Int).or_else(|_| float())
    }
}

macro_rules! numbers {
    ($($variant:ident: $($type:ty)*;)*) => {$($(
        impl From<$type> for Scalar {
            fn from(value: $type) -> Self {
                Scalar::$variant(value.into())
            }
        }
    )*)*};
}
numbers! {
    Float: f32 f64;
    Int: i32 i64 u32;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_become_bits_of_their_type_or_are_rejected() {
        let scalar = |text: &str| text.parse::<Scalar>().unwrap();
        assert_eq!(scalar("-1").bits(DType::I8).unwrap() as u8, 255);
        assert_eq!(scalar("18446744073709551615").bits(DType::U64).unwrap(), u64::MAX);
        assert_eq!(scalar("2.0").bits(DType::I32).unwrap(), 2);
        assert_eq!(scalar("-inf").bits(DType::F32).unwrap(), u64::from(f32::NEG_INFINITY.to_bits()));
        assert_eq!(scalar("1").bits(DType::BF16).unwrap(), 0x3f80);
        assert!(scalar("256").bits(DType::U8).is_err() && scalar("0.5").bits(DType::I64).is_err() && scalar("2").bits(DType::Bool).is_err());
        assert!("two".parse::<Scalar>().is_err());
        assert_eq!((scalar("300").saturated_bits(DType::U8).unwrap(), scalar("-inf").saturated_bits(DType::I16).unwrap() as i16), (255, i16::MIN));
        assert!(scalar("nan").saturated_bits(DType::I8).is_err());
    }
}
