use std::sync::Arc;

use crate::{
    backend::Backend,
    commands::CommandList,
    completion::Completion,
    dtype::DType,
    error::{Error, Result},
    host_memory::MemoryInfo,
    kernel::{KernelSource, Pipeline},
    memory::{DeviceMemory, RawBuffer, Storage},
    properties::{DeviceKind, DeviceProperties},
};

/// A device with the limits of a GPU that allocates no memory and executes nothing: recorders and planners are tested on it.
///
/// Lists pass the same validation as on any device. Reads give zeros.
pub struct NullBackend {
    properties: DeviceProperties,
    observer: Option<Observer>,
}

type Observer = Box<dyn Fn(&Arc<CommandList>) + Send + Sync>;

struct NullMemory(usize);

impl DeviceMemory for NullMemory {
    fn bytes(&self) -> usize {
        self.0
    }
}

impl NullBackend {
    /// The limits every Apple and NVIDIA GPU shares: 32 lanes, 1024 threads, 32 KiB of threadgroup memory.
    pub fn new() -> Self {
        let properties = DeviceProperties {
            kind: DeviceKind::Null,
            name: "null device".into(),
            compute_units: 1,
            simd_width: 32,
            max_threads_per_threadgroup: 1024,
            threadgroup_memory: 32 << 10,
            max_buffer_bytes: 1 << 40,
            unified_memory: true,
            dtypes: DType::ALL,
            features: None,
        };
        Self::with_properties(properties)
    }

    /// The same with other limits.
    pub fn with_properties(properties: DeviceProperties) -> Self {
        Self { properties, observer: None }
    }

    /// The same, and `observer` is shown every list that is submitted.
    pub fn observed(self, observer: impl Fn(&Arc<CommandList>) + Send + Sync + 'static) -> Self {
        Self { observer: Some(Box::new(observer)), ..self }
    }
}

impl Default for NullBackend {
    fn default() -> Self {
        Self::new()
    }
}

impl Backend for NullBackend {
    fn properties(&self) -> &DeviceProperties {
        &self.properties
    }

    fn memory(&self) -> MemoryInfo {
        MemoryInfo { total: self.properties.max_buffer_bytes, available: self.properties.max_buffer_bytes }
    }

    fn allocate(&self, bytes: usize, _storage: Storage) -> Result<RawBuffer> {
        if bytes > self.properties.max_buffer_bytes {
            return Err(Error::out_of_memory(format!("{bytes} bytes on the null device of {}", self.properties.max_buffer_bytes)));
        }
        Ok(RawBuffer::new(NullMemory(bytes)))
    }

    fn write(&self, buffer: &RawBuffer, _offset: usize, _bytes: &[u8]) -> Result<()> {
        buffer.downcast::<NullMemory>().map(|_| ())
    }

    fn read(&self, buffer: &RawBuffer, _offset: usize, bytes: &mut [u8]) -> Result<()> {
        buffer.downcast::<NullMemory>()?;
        bytes.fill(0);
        Ok(())
    }

    fn compile(&self, kernel: &Arc<KernelSource>) -> Result<Pipeline> {
        Ok(Pipeline::new(kernel.clone(), Arc::new(())))
    }

    fn submit(&self, commands: &Arc<CommandList>) -> Result<Completion> {
        if let Some(observer) = &self.observer {
            observer(commands);
        }
        Ok(Completion::ready(Ok(())))
    }
}
