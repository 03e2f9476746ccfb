//! From a data type to the Rust type its kernel is instantiated for.

use bytemuck::{Pod, Zeroable};
use elinvar_core::{DType, Element};

/// A truth value as it is stored: zero is false.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Pod, Zeroable)]
#[repr(transparent)]
pub(crate) struct Truth(u8);

impl Truth {
    #[inline(always)]
    pub(crate) fn new(value: bool) -> Self {
        Truth(u8::from(value))
    }

    #[inline(always)]
    pub(crate) fn get(self) -> bool {
        self.0 != 0
    }
}

impl Element for Truth {
    const DTYPE: DType = DType::Bool;
}

/// `Some($body)` with `$t` standing for the element type of an integer `$dtype`.
macro_rules! for_integers {
    ($dtype:expr, $t:ident => $body:expr) => {
        $crate::elementwise::dispatch::select!($dtype, $t => $body; I8 i8, I16 i16, I32 i32, I64 i64, U8 u8, U16 u16, U32 u32, U64 u64)
    };
}

/// The same for floating-point and integer types.
macro_rules! for_numbers {
    ($dtype:expr, $t:ident => $body:expr) => {
        $crate::elementwise::dispatch::select!($dtype, $t => $body;
            F32 f32, F16 half::f16, BF16 half::bf16, I8 i8, I16 i16, I32 i32, I64 i64, U8 u8, U16 u16, U32 u32, U64 u64)
    };
}

/// `$body` with `$t` standing for the unsigned type that stores the bits of `$dtype`.
macro_rules! for_storage {
    ($dtype:expr, $t:ident => $body:expr) => {
        match $dtype.size() {
            1 => {
                type $t = u8;
                $body
            }
            2 => {
                type $t = u16;
                $body
            }
            4 => {
                type $t = u32;
                $body
            }
            _ => {
                type $t = u64;
                $body
            }
        }
    };
}

macro_rules! select {
    ($dtype:expr, $t:ident => $body:expr; $($variant:ident $type:ty),*) => {
        match $dtype {
            $(elinvar_core::DType::$variant => {
                type $t = $type;
                Some($body)
            })*
            _ => None,
        }
    };
}

pub(crate) use {for_integers, for_numbers, for_storage, select};

/// Defines an enumeration whose variants, names and documentation come from one table; attributes may have it.
macro_rules! named {
    ($(#[$meta:meta])* $vis:vis enum $type:ident ($what:literal) { $($(#[$doc:meta])* $variant:ident $name:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        $vis enum $type { $($(#[$doc])* $variant,)* }

        impl $type {
            /// All of them.
            pub const ALL: &[$type] = &[$($type::$variant,)*];

            /// The name.
            pub const fn name(self) -> &'static str {
                match self { $($type::$variant => $name,)* }
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }

        impl $crate::attributes::Attribute for $type {
            const KIND: $crate::AttributeKind = $crate::AttributeKind::Word(&[$($name,)*]);

            fn parse(text: &str) -> Option<Self> {
                text.parse().ok()
            }
        }

        impl std::str::FromStr for $type {
            type Err = elinvar_core::Error;

            fn from_str(name: &str) -> elinvar_core::Result<Self> {
                $type::ALL.iter().copied().find(|v| v.name() == name).ok_or_else(|| {
                    let names = $crate::attributes::choice($type::ALL.iter().map(|v| v.name()));
                    elinvar_core::Error::invalid_argument(format!(concat!("unknown ", $what, " '{}': expected {}"), name, names))
                })
            }
        }
    };
}

pub(crate) use named;
