use std::sync::Arc;

use crate::{
    Backend, CommandList, Completion, DType, DeviceKind, DeviceMemory, DeviceProperties, Error, KernelSource, MemoryInfo, Pipeline, RawBuffer,
    Result, Storage,
};

/// A device with the limits of a GPU that allocates no memory and executes nothing: recorders and planners are tested on it.
///
/// Lists pass the same validation as on any device. Reads give zeros.
pub struct NullBackend {
    properties: DeviceProperties,
}

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
            compute_capability: None,
            matrix_library: false,
        };
        Self { properties }
    }

    /// The same with other limits.
    pub fn with_properties(properties: DeviceProperties) -> Self {
        Self { properties }
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

    fn submit(&self, _commands: &Arc<CommandList>) -> Result<Completion> {
        Ok(Completion::ready(Ok(())))
    }
}
