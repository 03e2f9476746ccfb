//! Kernels that the simulator runs too, for launches whose last threadgroups are smaller.

use std::sync::Arc;

use elinvar_core::{DType, KernelKey, KernelSource, Metal, MetalCode, Parameter, UserMetal};
use elinvar_msl::{MetalHeaders, preprocess};

/// A kernel that reads `x` and writes `out`.
pub(crate) fn kernel(name: &'static str) -> Arc<KernelSource> {
    kernel_of("nonuniform.metal", include_str!("../../../sim/tests/kernels/nonuniform.metal"), name)
}

/// The same of another text.
pub(crate) fn kernel_of(file: &str, text: &str, name: &'static str) -> Arc<KernelSource> {
    let text = UserMetal {
        name: file.to_owned(),
        code: MetalCode::Text(preprocess(file, text, &[], &MetalHeaders).unwrap()),
        kernel: name.to_owned(),
        constants: Vec::new(),
        fast_math: false,
        version: elinvar_core::METAL_VERSION,
        buffers: vec![0, 1],
        threadgroup: Vec::new(),
        rejections: Vec::new(),
        registers: None,
    };
    let (key, parameters) = (KernelKey::new(name, &[]), vec![Parameter::read("x", DType::U32), Parameter::write("out", DType::U32)]);
    Arc::new(KernelSource { key, parameters, params_bytes: 0, host: None, metal: Some(Metal::User(Arc::new(text))), native: None })
}
