//! The families of kernels, and how the kernels of each are launched.

mod attention;
mod elementwise;
mod products;
mod quantised;
mod reductions;
mod transforms;

use crate::launch::{Launch, Name};

/// A text of kernels.
pub(crate) struct Family {
    pub(crate) name: &'static str,
    /// The text, in MLX's folder of kernels.
    pub(crate) file: &'static str,
    /// How a kernel of it is launched.
    pub(crate) launch: fn(Name<'_>) -> Option<Launch>,
    /// The template's instance that the text is asked for where it does not name the library's kernel itself.
    pub(crate) instance: fn(Name<'_>) -> Option<String>,
}

/// A family whose text names all of its kernels.
const fn named(name: &'static str, file: &'static str, launch: fn(Name<'_>) -> Option<Launch>) -> Family {
    Family { name, file, launch, instance: |_| None }
}

/// Why the bits of some kernels may differ.
pub(crate) struct Explanation {
    pub(crate) applies: fn(Name<'_>) -> bool,
    pub(crate) why: &'static str,
}

pub(crate) const EXPLANATIONS: &[Explanation] =
    &[Explanation { applies: quantised::walks_off, why: "undefined by the text: it reads beyond a private array" }];

pub(crate) const FAMILIES: &[Family] = &[
    named("unary", "unary", elementwise::strided),
    named("binary", "binary", elementwise::strided),
    named("binary_two", "binary_two", elementwise::strided),
    named("ternary", "ternary", elementwise::strided),
    named("copy", "copy", elementwise::strided),
    named("arange", "arange", elementwise::arange),
    named("random", "random", elementwise::random),
    named("rope", "rope", elementwise::rope),
    named("searchsorted", "searchsorted", elementwise::searchsorted),
    named("softmax", "softmax", reductions::rows),
    named("logsumexp", "logsumexp", reductions::rows),
    named("rms_norm", "rms_norm", reductions::rows),
    named("layer_norm", "layer_norm", reductions::rows),
    named("arg_reduce", "arg_reduce", reductions::arg_reduce),
    named("reduce", "reduce", reductions::reduce),
    named("scan", "scan", reductions::scan),
    named("sort", "sort", reductions::sort),
    named("dot", "dot", reductions::dot),
    named("gemv", "gemv", products::gemv),
    named("gemv_masked", "gemv_masked", products::gemv),
    named("steel_gemm_fused", "steel/gemm/kernels/steel_gemm_fused", products::steel_fused),
    named("steel_gemm_splitk", "steel/gemm/kernels/steel_gemm_splitk", products::steel_splitk),
    named("steel_gemm_gather", "steel/gemm/kernels/steel_gemm_gather", products::steel_gather),
    named("steel_gemm_segmented", "steel/gemm/kernels/steel_gemm_segmented", products::steel_segmented),
    named("steel_gemm_masked", "steel/gemm/kernels/steel_gemm_masked", products::steel_masked),
    Family { name: "quantized", file: "quantized", launch: quantised::quantised, instance: quantised::affine },
    Family { name: "fp_quantized", file: "fp_quantized", launch: quantised::quantised, instance: quantised::floating },
    named("fft", "fft", transforms::fft),
    named("conv", "conv", transforms::conv),
    named("steel_conv", "steel/conv/kernels/steel_conv", transforms::steel_conv),
    named("steel_conv_3d", "steel/conv/kernels/steel_conv_3d", transforms::steel_conv),
    named("steel_conv_general", "steel/conv/kernels/steel_conv_general", transforms::steel_conv),
    named("sdpa_vector", "scaled_dot_product_attention", attention::sdpa_vector),
    Family { name: "steel_attention", file: "steel/attn/kernels/steel_attention", launch: attention::steel, instance: attention::steel_instance },
];
