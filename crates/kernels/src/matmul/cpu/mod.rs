//! The CPU engines of the matrix products.

#[cfg(target_arch = "x86_64")]
pub(crate) mod bf16;
pub(crate) mod dot;
pub(crate) mod gemm;
pub(crate) mod level;
pub(crate) mod operand;
pub(crate) mod pack;
pub(crate) mod plan;
pub(crate) mod product;
pub(crate) mod rows;
pub(crate) mod scratch;
mod several;
pub(crate) mod simd;
pub(crate) mod tile;
pub(crate) mod unit;
#[cfg(target_arch = "x86_64")]
pub(crate) mod x86;
