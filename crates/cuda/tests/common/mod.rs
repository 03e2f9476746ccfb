//! A GPU for a test, if there is one; kernels to try it with.

use std::{
    io::Write,
    ops::Deref,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use elinvar_core::{DType, Device, Dispatch, Extent, Grid, KernelKey, KernelSource, Metal, MetalFile, MetalForm, Parameter};
use elinvar_cuda::CudaBackend;

/// A GPU for one test at a time: some use up its memory.
pub(crate) struct Gpu {
    device: Device,
    _alone: MutexGuard<'static, ()>,
}

impl Deref for Gpu {
    type Target = Device;

    fn deref(&self) -> &Device {
        &self.device
    }
}

/// Device 0; nothing, said aloud, where there is none.
pub(crate) fn device() -> Option<Gpu> {
    static ALONE: Mutex<()> = Mutex::new(());
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    match CudaBackend::new(0) {
        Ok(backend) => Some(Gpu { device: Device::new(backend), _alone: alone }),
        Err(error) => {
            // Not captured, as what is printed would be.
            let _ = writeln!(std::io::stderr(), "SKIPPED, nothing was tested: {error}");
            None
        }
    }
}

/// The kernel `operator` of a text, a template over the element's type, over one buffer that it updates.
pub(crate) fn kernel(operator: &'static str, files: &'static [MetalFile]) -> Arc<KernelSource> {
    keyed(KernelKey::new(operator, &[DType::U32]), operator, files)
}

/// The same with more in its key, all of which are the template's arguments.
pub(crate) fn keyed(key: KernelKey, operator: &'static str, files: &'static [MetalFile]) -> Arc<KernelSource> {
    Arc::new(KernelSource {
        key,
        parameters: vec![Parameter::update("x", DType::U32)],
        params_bytes: 0,
        host: None,
        metal: Some(Metal::Form(MetalForm::new(files, operator))),
        native: None,
    })
}

/// A launch of a thread for each element.
pub(crate) fn over(device: &Device, kernel: &Arc<KernelSource>, buffer: &elinvar_core::Buffer) -> Dispatch {
    let threads = (buffer.bytes() / 4) as u32;
    Dispatch {
        pipeline: device.pipeline(kernel).unwrap(),
        bindings: vec![Some(buffer.bind(0, buffer.bytes()).unwrap())],
        params: [].into(),
        grid: Grid::Threadgroups([threads.div_ceil(64), 1, 1]),
        threadgroup: Extent::linear(64),
        threadgroup_memory: Vec::new(),
        work: Default::default(),
    }
}
