//! The headers that give clang's C++ for OpenCL mode the vocabulary of Metal Shading Language.

/// The prelude's files, name and text: write them into one folder and include `msl.h` before the lowered text.
pub const PRELUDE: &[(&str, &str)] = prelude! {
    "simulator/prelude/":
    "msl.h" "runtime.h" "language.h" "limit_macros.h" "limits.h" "vector.h" "packed.h" "math.h" "integer.h" "synchronization.h" "collective.h" "simdgroup.h"
    "quadgroup.h" "simdgroup_matrix.h" "atomic.h" "utility.h" "entry.h"
};

/// What makes entry points: part of what a kernel is made from.
pub const ENTRIES: &[u8] = include_bytes!("lower/entries.rs");

/// The system headers that Metal texts include. The preprocessor leaves them where they stand: a device's prelude declares what they would.
pub const SYSTEM_HEADERS: &[&str] = &[
    "metal_stdlib",
    "metal_array",
    "metal_assert",
    "metal_atomic",
    "metal_command_buffer",
    "metal_common",
    "metal_compute",
    "metal_config",
    "metal_extended_vector",
    "metal_geometric",
    "metal_graphics",
    "metal_initializer_list",
    "metal_integer",
    "metal_limits",
    "metal_logging",
    "metal_math",
    "metal_matrix",
    "metal_numeric",
    "metal_os_log",
    "metal_pack",
    "metal_packed_vector",
    "metal_quadgroup",
    "metal_raytracing",
    "metal_relational",
    "metal_simdgroup",
    "metal_simdgroup_matrix",
    "metal_texture",
    "metal_tuple",
    "metal_type_traits",
    "metal_types",
    "metal_uniform",
    "metal_utility",
    "metal_vector",
    "metal_visible_function_table",
    "simd/simd.h",
    "stdint.h",
    "stddef.h",
    "limits.h",
    "float.h",
    "TargetConditionals.h",
];
