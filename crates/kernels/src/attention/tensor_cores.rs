//! What the CUDA kernels for tensor cores share.

use elinvar_core::{DType, MetalFile};

use super::{Params, scoring::NO_MASK};
use crate::metal::metal_file;

/// After [`NUMBERS`](crate::cuda::NUMBERS) and the structs of the parameter block.
pub(super) const SCORING: MetalFile = metal_file!("attention/scoring.cu");

/// Whether a score is a dot product and a factor, and rows of keys and values are of one width.
pub(super) fn is_plain(params: &Params) -> bool {
    let s = &params.score;
    s.mask_type == NO_MASK && s.softcap == 0.0 && s.scale > 0.0 && s.scale.is_finite() && s.width == params.value_width
}

/// The macros of an instance, if there is one.
pub(super) fn defines(q: DType, kv: DType, width: u64) -> Option<&'static [(&'static str, &'static str)]> {
    Some(match (q, kv, width) {
        (DType::F32, DType::F16, 64) => &[("Q", "float"), ("KV", "f16"), ("WIDTH", "64")],
        (DType::F32, DType::F16, 128) => &[("Q", "float"), ("KV", "f16"), ("WIDTH", "128")],
        (DType::F32, DType::BF16, 64) => &[("Q", "float"), ("KV", "bf16"), ("WIDTH", "64")],
        (DType::F32, DType::BF16, 128) => &[("Q", "float"), ("KV", "bf16"), ("WIDTH", "128")],
        (DType::F16, DType::F16, 64) => &[("Q", "f16"), ("KV", "f16"), ("WIDTH", "64")],
        (DType::F16, DType::F16, 128) => &[("Q", "f16"), ("KV", "f16"), ("WIDTH", "128")],
        (DType::BF16, DType::BF16, 64) => &[("Q", "bf16"), ("KV", "bf16"), ("WIDTH", "64")],
        (DType::BF16, DType::BF16, 128) => &[("Q", "bf16"), ("KV", "bf16"), ("WIDTH", "128")],
        _ => return None,
    })
}
