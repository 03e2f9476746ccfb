//! Names of a program in Metal: as they are, unless the language or the library has a meaning for them.

use std::collections::HashSet;

use elinvar_core::{DType, metal_type};

/// Words that cannot be names: of C++, types that the text uses, macros.
const RESERVED: &[&str] = &[
    "alignas",
    "alignof",
    "and",
    "and_eq",
    "asm",
    "as_type",
    "atomic_thread_fence",
    "atlas",
    "atomic_int",
    "atomic_uint",
    "auto",
    "bfloat",
    "bitand",
    "bitor",
    "bool",
    "break",
    "case",
    "catch",
    "char",
    "class",
    "compl",
    "concept",
    "const",
    "constant",
    "constexpr",
    "const_cast",
    "continue",
    "decltype",
    "default",
    "delete",
    "device",
    "do",
    "double",
    "dynamic_cast",
    "else",
    "enum",
    "explicit",
    "export",
    "extern",
    "false",
    "float",
    "for",
    "fragment",
    "friend",
    "global",
    "goto",
    "half",
    "if",
    "inline",
    "int",
    "isnan",
    "kernel",
    "local",
    "long",
    "main",
    "mem_flags",
    "memory_order_relaxed",
    "memory_order_seq_cst",
    "metal",
    "mutable",
    "namespace",
    "new",
    "noexcept",
    "not",
    "not_eq",
    "nullptr",
    "operator",
    "or",
    "or_eq",
    "printf",
    "private",
    "program",
    "protected",
    "public",
    "ptrdiff_t",
    "register",
    "reinterpret_cast",
    "requires",
    "return",
    "sampler",
    "short",
    "signed",
    "size_t",
    "sizeof",
    "static",
    "static_assert",
    "static_cast",
    "strict",
    "struct",
    "switch",
    "template",
    "texture",
    "this",
    "thread",
    "thread_local",
    "thread_scope_device",
    "threadgroup",
    "threadgroup_barrier",
    "throw",
    "true",
    "try",
    "typedef",
    "typeid",
    "typename",
    "uchar",
    "uint",
    "uint2",
    "uint3",
    "ulong",
    "union",
    "unsigned",
    "ushort",
    "using",
    "vec",
    "vector",
    "vertex",
    "virtual",
    "void",
    "volatile",
    "wchar_t",
    "while",
    "xor",
    "xor_eq",
];

/// Names already given.
#[derive(Clone, Default)]
pub(super) struct Names(HashSet<String>);

impl Names {
    /// A name for `name` that no other has.
    pub(super) fn give(&mut self, name: &str) -> String {
        let is_macro = name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_') && name.len() > 1;
        let is_odd =
            name.starts_with('_') || name.contains("__") || name.starts_with("atlas") || name.starts_with("ATLAS") || name.starts_with("elv");
        let mut given = if is_odd || is_macro { format!("v_{}", name.trim_start_matches('_').replace("__", "_")) } else { name.to_owned() };
        while RESERVED.contains(&given.as_str()) || self.0.contains(&given) || given.ends_with('_') {
            given.push('0');
        }
        self.0.insert(given.clone());
        given
    }
}

/// The type of an element in memory: truth values are bytes, zero or not.
pub(super) const fn element_name(dtype: DType) -> &'static str {
    match dtype {
        DType::Bool => "uchar",
        _ => metal_type(dtype),
    }
}
