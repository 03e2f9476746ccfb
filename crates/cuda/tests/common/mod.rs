//! A GPU for a test, if there is one; kernels to try it with.

use std::sync::Arc;

use elinvar_core::{DType, Device, Dispatch, Extent, KernelKey, KernelSource, MetalFile, MetalForm, Parameter};
use elinvar_cuda::CudaBackend;

/// Device 0; nothing, said aloud, where there is none.
pub fn device() -> Option<Device> {
    match CudaBackend::new(0) {
        Ok(backend) => Some(Device::new(backend)),
        Err(error) => {
            println!("SKIPPED, nothing was tested: {error}");
            None
        }
    }
}

/// The kernel `operator` of a text, a template over the element's type, over one buffer that it updates.
pub fn kernel(operator: &'static str, files: &'static [MetalFile]) -> Arc<KernelSource> {
    Arc::new(KernelSource {
        key: KernelKey::new(operator, &[DType::U32]),
        parameters: vec![Parameter::update("x", DType::U32)],
        params_bytes: 0,
        host: None,
        metal: Some(MetalForm::new(files, operator)),
        cuda: None,
    })
}

/// A launch of a thread for each element.
pub fn over(device: &Device, kernel: &Arc<KernelSource>, buffer: &elinvar_core::Buffer) -> Dispatch {
    let threads = (buffer.bytes() / 4) as u32;
    Dispatch {
        pipeline: device.pipeline(kernel).unwrap(),
        bindings: vec![Some(buffer.bind(0, buffer.bytes()).unwrap())],
        params: Vec::new(),
        grid: Extent::linear(threads.div_ceil(64)),
        threadgroup: Extent::linear(64),
        threadgroup_memory: 0,
    }
}
