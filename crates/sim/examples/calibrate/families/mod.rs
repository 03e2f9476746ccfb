//! The families of kernels, and how the kernels of each are launched.

mod attention;
mod elementwise;
mod products;
mod quantised;
mod reductions;

use crate::launch::{Launch, Name};

/// A text of kernels.
pub(crate) struct Family {
    pub(crate) name: &'static str,
    /// The text, in MLX's folder of kernels.
    pub(crate) file: &'static str,
    /// How a kernel of it is launched.
    pub(crate) launch: fn(Name<'_>) -> Option<Launch>,
}

/// Kernels that may differ, and why.
pub(crate) const EXPLAINED: &[(fn(Name<'_>) -> bool, &str)] =
    &[(quantised::walks_off, "undefined by the text: it reads beyond a private array")];

pub(crate) const FAMILIES: &[Family] = &[
    Family { name: "unary", file: "unary", launch: elementwise::strided },
    Family { name: "binary", file: "binary", launch: elementwise::strided },
    Family { name: "binary_two", file: "binary_two", launch: elementwise::strided },
    Family { name: "ternary", file: "ternary", launch: elementwise::strided },
    Family { name: "copy", file: "copy", launch: elementwise::strided },
    Family { name: "arange", file: "arange", launch: elementwise::arange },
    Family { name: "random", file: "random", launch: elementwise::random },
    Family { name: "rope", file: "rope", launch: elementwise::rope },
    Family { name: "searchsorted", file: "searchsorted", launch: elementwise::searchsorted },
    Family { name: "softmax", file: "softmax", launch: reductions::rows },
    Family { name: "logsumexp", file: "logsumexp", launch: reductions::rows },
    Family { name: "rms_norm", file: "rms_norm", launch: reductions::rows },
    Family { name: "layer_norm", file: "layer_norm", launch: reductions::rows },
    Family { name: "arg_reduce", file: "arg_reduce", launch: reductions::arg_reduce },
    Family { name: "reduce", file: "reduce", launch: reductions::reduce },
    Family { name: "scan", file: "scan", launch: reductions::scan },
    Family { name: "sort", file: "sort", launch: reductions::sort },
    Family { name: "dot", file: "dot", launch: reductions::dot },
    Family { name: "gemv", file: "gemv", launch: products::gemv },
    Family { name: "gemv_masked", file: "gemv_masked", launch: products::gemv },
    Family { name: "steel_gemm_fused", file: "steel/gemm/kernels/steel_gemm_fused", launch: products::steel_fused },
    Family { name: "steel_gemm_splitk", file: "steel/gemm/kernels/steel_gemm_splitk", launch: products::steel_splitk },
    Family { name: "steel_gemm_gather", file: "steel/gemm/kernels/steel_gemm_gather", launch: products::steel_gather },
    Family { name: "steel_gemm_segmented", file: "steel/gemm/kernels/steel_gemm_segmented", launch: products::steel_segmented },
    Family { name: "steel_gemm_masked", file: "steel/gemm/kernels/steel_gemm_masked", launch: products::steel_masked },
    Family { name: "quantized", file: "quantized", launch: quantised::quantised },
    Family { name: "fp_quantized", file: "fp_quantized", launch: quantised::quantised },
    Family { name: "attention", file: "scaled_dot_product_attention", launch: attention::sdpa_vector },
];
