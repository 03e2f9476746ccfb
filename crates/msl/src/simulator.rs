//! The headers that give clang's C++ for OpenCL mode the vocabulary of Metal Shading Language.

/// The prelude's files, name and text: write them into one folder and include `msl.h` before the lowered text.
pub const PRELUDE: &[(&str, &str)] = &[("runtime.h", include_str!("simulator/prelude/runtime.h"))];
