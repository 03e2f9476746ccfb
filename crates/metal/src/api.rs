//! Metal's few objects, as far as the device uses them: device, buffer, library, pipeline, command buffer, completion.
//!
//! Each method is one call, or a few, of Metal's; whatever needs thought is above this trait, in [`MetalBackend`](crate::MetalBackend).

use elinvar_core::{ConstantValue, Extent, MemoryInfo, Result};

/// What a device says of itself.
#[derive(Clone, Debug)]
pub struct Facts {
    /// `MTLDevice.name`.
    pub name: String,
    /// Cores.
    pub compute_units: usize,
    /// `maxThreadgroupMemoryLength`, in bytes.
    pub threadgroup_memory: usize,
    /// `maxBufferLength`, in bytes.
    pub max_buffer_bytes: usize,
    /// `hasUnifiedMemory`.
    pub unified_memory: bool,
}

/// What a pipeline says of itself.
#[derive(Clone, Copy, Debug)]
pub struct PipelineFacts {
    /// `threadExecutionWidth`.
    pub execution_width: usize,
    /// `maxTotalThreadsPerThreadgroup`.
    pub max_threads: usize,
}

/// A library's text and how it is compiled.
#[derive(Clone, Copy, Debug)]
pub struct LibrarySource<'a> {
    /// What messages call it.
    pub name: &'a str,
    /// Metal Shading Language, complete.
    pub text: &'a str,
    /// Math mode *fast* instead of *safe*.
    pub fast_math: bool,
}

/// A buffer bound to an index of the kernel's argument table.
pub struct Bound<'a, B> {
    /// The index.
    pub index: usize,
    /// The buffer.
    pub buffer: &'a B,
    /// Where the range starts, in bytes.
    pub offset: usize,
    /// Its length in bytes.
    pub bytes: usize,
    /// The kernel may write it.
    pub written: bool,
    /// The kernel must write all of it.
    pub output: bool,
}

/// A launch.
pub struct Launch<'a, A: Api + ?Sized> {
    /// The pipeline.
    pub pipeline: &'a A::Pipeline,
    /// Its buffers.
    pub buffers: Vec<Bound<'a, A::Buffer>>,
    /// Bytes for an index of the argument table (`setBytes`).
    pub bytes: Option<(usize, &'a [u8])>,
    /// Threadgroup memory: the index of each argument and its bytes.
    pub threadgroup_memory: Vec<(usize, usize)>,
    /// Threadgroups.
    pub grid: Extent,
    /// Threads of a threadgroup.
    pub threadgroup: Extent,
}

/// A Metal device with one command queue.
pub trait Api: Send + Sync + 'static {
    /// `MTLBuffer`.
    type Buffer: Send + Sync + 'static;
    /// `MTLLibrary`.
    type Library: Send + Sync + 'static;
    /// `MTLComputePipelineState`.
    type Pipeline: Send + Sync + 'static;
    /// `MTLCommandBuffer` while it is encoded. It keeps what it uses alive until it has completed.
    type CommandBuffer;

    /// What the device is.
    fn facts(&self) -> Facts;

    /// Memory now (`recommendedMaxWorkingSetSize` and `currentAllocatedSize`).
    fn memory(&self) -> MemoryInfo;

    /// A buffer in shared storage.
    ///
    /// # Errors
    /// Out of memory.
    fn buffer(&self, bytes: usize) -> Result<Self::Buffer>;

    /// Host to device; nothing that uses the range is in flight.
    ///
    /// # Errors
    /// The device failed.
    fn write(&self, buffer: &Self::Buffer, offset: usize, bytes: &[u8]) -> Result<()>;

    /// Device to host; nothing that writes the range is in flight.
    ///
    /// # Errors
    /// The device failed.
    fn read(&self, buffer: &Self::Buffer, offset: usize, bytes: &mut [u8]) -> Result<()>;

    /// Compiles a text.
    ///
    /// # Errors
    /// It does not compile.
    fn library(&self, source: LibrarySource<'_>) -> Result<Self::Library>;

    /// A pipeline of a library's kernel, with these function constants by index.
    ///
    /// # Errors
    /// No such kernel, or one the device cannot run.
    fn pipeline(&self, library: &Self::Library, kernel: &str, constants: &[(u32, ConstantValue)]) -> Result<Self::Pipeline>;

    /// What a pipeline is.
    fn pipeline_facts(&self, pipeline: &Self::Pipeline) -> PipelineFacts;

    /// A command buffer of the queue.
    ///
    /// # Errors
    /// The device failed.
    fn command_buffer(&self) -> Result<Self::CommandBuffer>;

    /// Encodes a launch; launches of a command buffer take effect in order.
    ///
    /// # Errors
    /// A launch the kernel's signature does not allow.
    fn launch(&self, commands: &mut Self::CommandBuffer, launch: &Launch<'_, Self>) -> Result<()>;

    /// Encodes a copy of `bytes` bytes between buffers and offsets.
    ///
    /// # Errors
    /// A range outside its buffer.
    fn copy(&self, commands: &mut Self::CommandBuffer, from: (&Self::Buffer, usize), to: (&Self::Buffer, usize), bytes: usize) -> Result<()>;

    /// Encodes a fill of `bytes` bytes.
    ///
    /// # Errors
    /// A range outside the buffer.
    fn fill(&self, commands: &mut Self::CommandBuffer, to: (&Self::Buffer, usize), bytes: usize, value: u8) -> Result<()>;

    /// Starts a command buffer; `done` is called once it has completed, with its error.
    fn commit(&self, commands: Self::CommandBuffer, done: Box<dyn FnOnce(Result<()>) + Send>);
}
