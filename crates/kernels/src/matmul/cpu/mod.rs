//! The CPU engines of the matrix products.

pub mod dot;
pub mod operand;
pub mod rows;
pub mod simd;
#[cfg(target_arch = "x86_64")]
pub mod x86;
