use std::{any::Any, borrow::Cow, fmt, sync::Arc};

use crate::{CudaForm, DType, Error, HostForm, Metal, device::DeviceId, metal::rejection};

/// What a kernel does with a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Reads it.
    Read,
    /// Writes all of it, reads nothing.
    Write,
    /// Reads it, or writes only a part.
    ReadWrite,
}

impl Access {
    /// Write or read-write.
    pub const fn writes(self) -> bool {
        !matches!(self, Access::Read)
    }
}

/// One buffer of a kernel's signature, in binding order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Its name, as the documentation and error messages use it.
    pub name: Cow<'static, str>,
    /// What the kernel does with it.
    pub access: Access,
    /// Type of its elements.
    pub dtype: DType,
    /// May be left unbound.
    pub optional: bool,
    /// Where launches overlap, the kernel reads it before those ahead have ended: it then begins early only if none of them writes it.
    pub prefetched: bool,
}

impl Parameter {
    /// A buffer that is read.
    pub const fn read(name: &'static str, dtype: DType) -> Self {
        Self { name: Cow::Borrowed(name), access: Access::Read, dtype, optional: false, prefetched: false }
    }

    /// A buffer that is written in full.
    pub const fn write(name: &'static str, dtype: DType) -> Self {
        Self { name: Cow::Borrowed(name), access: Access::Write, dtype, optional: false, prefetched: false }
    }

    /// A buffer that is updated in place.
    pub const fn update(name: &'static str, dtype: DType) -> Self {
        Self { name: Cow::Borrowed(name), access: Access::ReadWrite, dtype, optional: false, prefetched: false }
    }

    /// The same, but it may be left unbound.
    pub fn or_absent(self) -> Self {
        Self { optional: true, ..self }
    }

    /// The same, read early.
    pub fn prefetched(self) -> Self {
        Self { prefetched: true, ..self }
    }
}

/// A kernel's identity: operator, data types and compile-time constants. Two kernels with equal keys are the same kernel.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KernelKey {
    /// The operator, or the name of a user's kernel.
    pub operator: Cow<'static, str>,
    /// The data types it is instantiated for.
    pub dtypes: Vec<DType>,
    /// Compile-time constants.
    pub constants: Vec<(&'static str, u32)>,
}

impl KernelKey {
    /// An operator for these data types, without constants.
    pub fn new(operator: impl Into<Cow<'static, str>>, dtypes: &[DType]) -> Self {
        Self { operator: operator.into(), dtypes: dtypes.to_vec(), constants: Vec::new() }
    }

    /// Adds a constant.
    pub fn with(mut self, name: &'static str, value: impl Into<u32>) -> Self {
        self.constants.push((name, value.into()));
        self
    }
}

impl fmt::Display for KernelKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.operator)?;
        for dtype in &self.dtypes {
            write!(f, "_{dtype}")?;
        }
        for (name, value) in &self.constants {
            write!(f, "_{name}{value}")?;
        }
        Ok(())
    }
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
    /// What a CUDA device runs in place of the Metal form.
    pub cuda: Option<CudaForm>,
}

impl KernelSource {
    /// Whether its Metal form may reject what it is given: see [`MetalForm::with_error_flag`](crate::MetalForm::with_error_flag).
    pub fn rejects(&self) -> bool {
        self.metal.as_ref().is_some_and(Metal::rejects)
    }

    /// What a launch fails with that has raised its word to `word`; nothing if the kernel rejects nothing.
    pub fn rejected(&self, word: u32) -> Option<Error> {
        let error = match (&self.metal, &self.cuda) {
            (Some(metal), _) => metal.rejected(word),
            (None, Some(CudaForm::Source(source))) => rejection(source.rejection?, word),
            (None, _) => return None,
        };
        Some(error.context(&self.key))
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
