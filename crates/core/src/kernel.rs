use std::{any::Any, fmt, sync::Arc};

use crate::{device_id::DeviceId, error::Error, host::HostForm, key::KernelKey, metal::Metal, signature::Parameter};

/// What one vendor's devices run in place of a kernel's Metal form; a device knows its own form's type.
pub trait NativeForm: Any + fmt::Debug + Send + Sync {
    /// What a launch fails with that has raised its error flag to `flag`, if the form may reject an input: see [`MetalForm::with_error_flag`](crate::MetalForm).
    fn rejected(&self, flag: u32) -> Option<Error>;
}

/// A kernel as data: its identity, what it binds, and its forms; each device compiles the form it can run.
#[derive(Clone, Debug)]
pub struct KernelSource {
    /// Its identity.
    pub key: KernelKey,
    /// Its buffers in binding order.
    pub parameters: Vec<Parameter>,
    /// Size of its parameter block in bytes (zero for none).
    pub params_bytes: usize,
    /// What the CPU device runs.
    pub host: Option<HostForm>,
    /// The Metal text, from which GPU devices compile.
    pub metal: Option<Metal>,
    /// What devices that know its type run in place of the Metal form.
    pub native: Option<Arc<dyn NativeForm>>,
}

impl KernelSource {
    /// Its native form, if that is of this type.
    pub fn native<F: NativeForm>(&self) -> Option<&F> {
        let form: &dyn Any = &**self.native.as_ref()?;
        form.downcast_ref()
    }

    /// Whether its Metal form may reject what it is given: see [`MetalForm::with_error_flag`](crate::MetalForm::with_error_flag).
    pub fn rejects(&self) -> bool {
        self.metal.as_ref().is_some_and(Metal::rejects)
    }

    /// What a launch fails with that has raised its word to `word`; nothing if the kernel rejects nothing.
    pub fn rejected(&self, word: u32) -> Option<Error> {
        let error = match (&self.metal, &self.native) {
            (Some(metal), _) => Some(metal.rejected(word)),
            (None, Some(native)) => native.rejected(word),
            (None, None) => None,
        };
        error.map(|error| error.context(&self.key.operator))
    }
}

/// What a device says of a kernel it has prepared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PipelineInfo {
    /// Threads that run in lockstep (Metal's `threadExecutionWidth`).
    pub execution_width: usize,
    /// The most threads of a threadgroup (Metal's `maxTotalThreadsPerThreadgroup`): fewer than the device allows where the kernel needs many registers.
    pub max_threads: usize,
    /// Bytes of threadgroup memory that the kernel declares itself (Metal's `staticThreadgroupMemoryLength`), beside what a launch gives it; 0 where the
    /// device does not report it.
    pub threadgroup_memory: usize,
}

/// A kernel prepared by a device.
#[derive(Clone)]
pub struct Pipeline {
    source: Arc<KernelSource>,
    state: Arc<dyn Any + Send + Sync>,
    info: Option<PipelineInfo>,
    /// The device that keeps it, if it went through one.
    device: Option<DeviceId>,
}

impl Pipeline {
    /// `state` is whatever the device needs to launch it.
    pub fn new(source: Arc<KernelSource>, state: Arc<dyn Any + Send + Sync>) -> Self {
        Self { source, state, info: None, device: None }
    }

    /// The same with what the device says of it.
    pub fn with_info(self, info: PipelineInfo) -> Self {
        Self { info: Some(info), ..self }
    }

    /// The same, kept by that device.
    pub(crate) fn of(self, device: DeviceId) -> Self {
        Self { device: Some(device), ..self }
    }

    pub(crate) fn device(&self) -> Option<DeviceId> {
        self.device
    }

    /// What the device says of it, if it says anything: the device's own properties hold otherwise.
    pub fn info(&self) -> Option<PipelineInfo> {
        self.info
    }

    /// The kernel it was made from.
    pub fn source(&self) -> &Arc<KernelSource> {
        &self.source
    }

    /// The device's state, if it is a `T`.
    pub fn state<T: 'static>(&self) -> Option<&T> {
        self.state.downcast_ref()
    }
}

impl fmt::Debug for Pipeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pipeline({})", self.source.key)
    }
}

/// What the first launch rejects that has raised its word, if any has.
pub fn first_rejection(words: impl IntoIterator<Item = u32>, kernels: &[Pipeline]) -> Option<Error> {
    let (word, kernel) = words.into_iter().zip(kernels).find(|(word, _)| *word > 0)?;
    kernel.source().rejected(word)
}
