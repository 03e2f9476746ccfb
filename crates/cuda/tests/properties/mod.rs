//! What launch plans may know of a GPU that need not be there.

use elinvar_core::{DType, DeviceKind, DeviceProperties};
use elinvar_kernels::cuda::CudaFeatures;

/// A GPU of this compute capability, cuBLASLt beside it.
pub(crate) fn gpu(capability: u32) -> DeviceProperties {
    DeviceProperties {
        kind: DeviceKind::Cuda,
        name: format!("sm_{capability}"),
        compute_units: 100,
        simd_width: 32,
        max_threads_per_threadgroup: 1024,
        threadgroup_memory: if capability == 90 { 227 << 10 } else { 99 << 10 },
        max_buffer_bytes: 1 << 36,
        unified_memory: false,
        dtypes: DType::ALL,
        features: CudaFeatures::of(capability, true),
    }
}
