//! Floating-point elements: what [`elinvar_math::float`] says, and a choice among the types at run time.

pub use elinvar_math::float::*;

/// `$body` with `$type` standing for the element type of a floating-point `$dtype`; others contradict the declaration.
macro_rules! with_float {
    ($dtype:expr, $type:ident => $body:expr) => {
        match $dtype {
            elinvar_core::DType::F32 => {
                type $type = f32;
                $body
            }
            elinvar_core::DType::F16 => {
                type $type = half::f16;
                $body
            }
            elinvar_core::DType::BF16 => {
                type $type = half::bf16;
                $body
            }
            other => return Err($crate::signature::no_kernel(other)),
        }
    };
}
pub(crate) use with_float;
