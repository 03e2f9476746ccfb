//! What the CUDA kernels for tensor cores share.

use elinvar_core::MetalFile;

use super::{Params, scoring::NO_MASK};
use crate::metal::metal_file;

/// After [`NUMBERS`](crate::cuda::NUMBERS) and the structs of the parameter block.
pub(super) const SCORING: MetalFile = metal_file!("attention/scoring.cu");

/// Whether a score is a dot product and a factor, and rows of keys and values are of one width.
pub(super) fn is_plain(params: &Params) -> bool {
    let s = &params.score;
    s.mask_type == NO_MASK && s.softcap == 0.0 && s.scale > 0.0 && s.scale.is_finite() && s.width == params.value_width
}

/// A function that gives the macros of an instance, if there is one: those of its types and its width, and more.
macro_rules! function_of_defines {
    ($name:ident $(, $more:literal = $value:literal)*) => {
        pub(super) fn $name(
            q: elinvar_core::DType,
            kv: elinvar_core::DType,
            width: u64,
        ) -> Option<&'static [(&'static str, &'static str)]> {
            use elinvar_core::DType::{BF16, F16, F32};
            Some(match (q, kv, width) {
                (F32, F16, 64) => &[("Q", "float"), ("KV", "f16"), ("WIDTH", "64") $(, ($more, $value))*],
                (F32, F16, 128) => &[("Q", "float"), ("KV", "f16"), ("WIDTH", "128") $(, ($more, $value))*],
                (F32, BF16, 64) => &[("Q", "float"), ("KV", "bf16"), ("WIDTH", "64") $(, ($more, $value))*],
                (F32, BF16, 128) => &[("Q", "float"), ("KV", "bf16"), ("WIDTH", "128") $(, ($more, $value))*],
                (F16, F16, 64) => &[("Q", "f16"), ("KV", "f16"), ("WIDTH", "64") $(, ($more, $value))*],
                (F16, F16, 128) => &[("Q", "f16"), ("KV", "f16"), ("WIDTH", "128") $(, ($more, $value))*],
                (BF16, BF16, 64) => &[("Q", "bf16"), ("KV", "bf16"), ("WIDTH", "64") $(, ($more, $value))*],
                (BF16, BF16, 128) => &[("Q", "bf16"), ("KV", "bf16"), ("WIDTH", "128") $(, ($more, $value))*],
                _ => return None,
            })
        }
    };
}
pub(super) use function_of_defines;

function_of_defines!(defines);
