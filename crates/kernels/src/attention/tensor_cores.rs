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

/// A function that gives the macros of an instance, if there is one: those of its types (of queries, of keys and values, and of the output) and its width, and more.
macro_rules! function_of_defines {
    ($name:ident $(, $more:literal = $value:literal)*) => {
        pub(super) fn $name(
            types: [elinvar_core::DType; 3],
            width: u64,
        ) -> Option<&'static [(&'static str, &'static str)]> {
            use elinvar_core::DType::{BF16, F16, F32};
            const INSTANCES: [([elinvar_core::DType; 3], u64, &[(&str, &str)]); 16] = [
                ([F32, F16, F32], 64, &[("Q", "float"), ("KV", "f16"), ("Y", "float"), ("WIDTH", "64") $(, ($more, $value))*]),
                ([F32, F16, F32], 128, &[("Q", "float"), ("KV", "f16"), ("Y", "float"), ("WIDTH", "128") $(, ($more, $value))*]),
                ([F32, F16, F16], 64, &[("Q", "float"), ("KV", "f16"), ("Y", "f16"), ("WIDTH", "64") $(, ($more, $value))*]),
                ([F32, F16, F16], 128, &[("Q", "float"), ("KV", "f16"), ("Y", "f16"), ("WIDTH", "128") $(, ($more, $value))*]),
                ([F32, F16, BF16], 64, &[("Q", "float"), ("KV", "f16"), ("Y", "bf16"), ("WIDTH", "64") $(, ($more, $value))*]),
                ([F32, F16, BF16], 128, &[("Q", "float"), ("KV", "f16"), ("Y", "bf16"), ("WIDTH", "128") $(, ($more, $value))*]),
                ([F32, BF16, F32], 64, &[("Q", "float"), ("KV", "bf16"), ("Y", "float"), ("WIDTH", "64") $(, ($more, $value))*]),
                ([F32, BF16, F32], 128, &[("Q", "float"), ("KV", "bf16"), ("Y", "float"), ("WIDTH", "128") $(, ($more, $value))*]),
                ([F32, BF16, F16], 64, &[("Q", "float"), ("KV", "bf16"), ("Y", "f16"), ("WIDTH", "64") $(, ($more, $value))*]),
                ([F32, BF16, F16], 128, &[("Q", "float"), ("KV", "bf16"), ("Y", "f16"), ("WIDTH", "128") $(, ($more, $value))*]),
                ([F32, BF16, BF16], 64, &[("Q", "float"), ("KV", "bf16"), ("Y", "bf16"), ("WIDTH", "64") $(, ($more, $value))*]),
                ([F32, BF16, BF16], 128, &[("Q", "float"), ("KV", "bf16"), ("Y", "bf16"), ("WIDTH", "128") $(, ($more, $value))*]),
                ([F16, F16, F16], 64, &[("Q", "f16"), ("KV", "f16"), ("Y", "f16"), ("WIDTH", "64") $(, ($more, $value))*]),
                ([F16, F16, F16], 128, &[("Q", "f16"), ("KV", "f16"), ("Y", "f16"), ("WIDTH", "128") $(, ($more, $value))*]),
                ([BF16, BF16, BF16], 64, &[("Q", "bf16"), ("KV", "bf16"), ("Y", "bf16"), ("WIDTH", "64") $(, ($more, $value))*]),
                ([BF16, BF16, BF16], 128, &[("Q", "bf16"), ("KV", "bf16"), ("Y", "bf16"), ("WIDTH", "128") $(, ($more, $value))*]),
            ];
            INSTANCES.into_iter().find(|(of, wide, _)| (*of, *wide) == (types, width)).map(|(.., defines)| defines)
        }
    };
}
pub(super) use function_of_defines;

function_of_defines!(defines);
