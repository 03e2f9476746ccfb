use bytemuck::Pod;
use half::{bf16, f16};
use std::{fmt, str::FromStr};

use crate::error::{Error, Result};

macro_rules! dtypes {
    ($($(#[$doc:meta])* $variant:ident $name:literal $bytes:literal;)* => $(#[$more_doc:meta])* $more:ident $more_name:literal $more_bytes:literal;) => {
        /// The type of a tensor's elements, each of which has bytes of its own. Formats that quantise blocks of elements are no data types: such a tensor is
        /// one of bytes, and the operators that read it have the format as an attribute, so that no other can take a block for an element.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum DType { $($(#[$doc])* $variant,)* $(#[$more_doc])* $more, }

        impl DType {
            /// Every data type that operators take.
            pub const ALL: &[DType] = &[$(DType::$variant,)*];

            /// Every data type of programs; a device has those of [`DeviceProperties::dtypes`](crate::DeviceProperties::dtypes).
            pub const PROGRAMS: &[DType] = &[$(DType::$variant,)* DType::$more];

            /// The short lower-case name: `f32`, `bf16`, `u8`, `bool`, …
            pub const fn name(self) -> &'static str {
                match self { $(DType::$variant => $name,)* DType::$more => $more_name }
            }

            /// Bytes of one element.
            pub const fn size(self) -> usize {
                match self { $(DType::$variant => $bytes,)* DType::$more => $more_bytes }
            }
        }
    };
}

dtypes! {
    /// IEEE binary32.
    F32 "f32" 4;
    /// IEEE binary16.
    F16 "f16" 2;
    /// bfloat16: the upper half of a binary32.
    BF16 "bf16" 2;
    /// Signed 8-bit integer.
    I8 "i8" 1;
    /// Signed 16-bit integer.
    I16 "i16" 2;
    /// Signed 32-bit integer.
    I32 "i32" 4;
    /// Signed 64-bit integer.
    I64 "i64" 8;
    /// Unsigned 8-bit integer.
    U8 "u8" 1;
    /// Unsigned 16-bit integer.
    U16 "u16" 2;
    /// Unsigned 32-bit integer.
    U32 "u32" 4;
    /// Unsigned 64-bit integer.
    U64 "u64" 8;
    /// A truth value, one byte: 0 or 1.
    Bool "bool" 1;
    =>
    /// IEEE binary64: for programs on devices that have it. No operator takes it.
    F64 "f64" 8;
}

impl DType {
    /// The type of programs of that name.
    ///
    /// # Errors
    /// There is none.
    pub fn of_program(name: &str) -> Result<Self> {
        Self::find(DType::PROGRAMS, name)
    }

    fn find(among: &[DType], name: &str) -> Result<Self> {
        among.iter().copied().find(|d| d.name() == name).ok_or_else(|| {
            let names: Vec<_> = among.iter().map(|d| d.name()).collect();
            Error::invalid_argument(format!("unknown data type '{name}': use one of {}", names.join(", ")))
        })
    }

    /// The floating-point types of operators.
    pub const FLOATS: &[DType] = &[DType::F32, DType::F16, DType::BF16];

    /// The integer types (bool is none).
    pub const INTEGERS: &[DType] = &[DType::I8, DType::I16, DType::I32, DType::I64, DType::U8, DType::U16, DType::U32, DType::U64];

    /// The types one can compute with: floating-point and integer.
    pub const NUMBERS: &[DType] =
        &[DType::F32, DType::F16, DType::BF16, DType::I8, DType::I16, DType::I32, DType::I64, DType::U8, DType::U16, DType::U32, DType::U64];

    /// Bytes of `elements` elements, or `None` on overflow.
    pub fn bytes(self, elements: usize) -> Option<usize> {
        elements.checked_mul(self.size())
    }

    /// f32, f16 or bf16: what is computed in f32.
    pub const fn is_float(self) -> bool {
        matches!(self, DType::F32 | DType::F16 | DType::BF16)
    }

    /// A signed or unsigned integer (bool is none).
    pub const fn is_integer(self) -> bool {
        !self.is_float() && !matches!(self, DType::Bool | DType::F64)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for DType {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::find(DType::ALL, name)
    }
}

/// A Rust type that stores the elements of a [`DType`]. Truth values are stored as `u8`, so `bool` has no element type of its own.
pub trait Element: Pod + Send + Sync + fmt::Debug + PartialOrd + 'static {
    /// The data type stored.
    const DTYPE: DType;
}

macro_rules! elements {
    ($($rust:ty => $dtype:ident),*) => { $(impl Element for $rust { const DTYPE: DType = DType::$dtype; })* };
}
elements!(f32 => F32, f16 => F16, bf16 => BF16, i8 => I8, i16 => I16, i32 => I32, i64 => I64, u8 => U8, u16 => U16, u32 => U32, u64 => U64, f64 => F64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_and_unknown_names_list_the_choices() {
        for &dtype in DType::ALL {
            assert_eq!(dtype.name().parse::<DType>().unwrap(), dtype);
        }
        let error = "float".parse::<DType>().unwrap_err();
        assert!(error.to_string().contains("bf16"), "{error}");
    }

    #[test]
    fn element_sizes_match_their_rust_types() {
        fn check<T: Element>() {
            assert_eq!(T::DTYPE.size(), size_of::<T>());
        }
        check::<f32>();
        check::<f16>();
        check::<bf16>();
        check::<i64>();
        check::<u8>();
        assert_eq!(DType::F32.bytes(usize::MAX), None);
    }
}
