//! Names and types of a program in Metal.

use elinvar_core::{DType, metal_type};

/// A name of the program's: behind a prefix, so that it means nothing in the languages that the text is lowered to, nor in the library.
pub(super) fn own(name: &str) -> String {
    format!("p_{name}")
}

/// The type of an element in memory: truth values are bytes, zero or not.
pub(super) const fn element_name(dtype: DType) -> &'static str {
    match dtype {
        DType::Bool => "uchar",
        _ => metal_type(dtype),
    }
}
