//! Metal's few objects, as far as the device uses them: device, buffer, library, binary archive, pipeline, command buffer, completion; and the
//! system's notices of memory pressure.
//!
//! There are no heaps and no events: the pool keeps buffers themselves, and a queue's order and its completion handlers are all that is waited for.
//!
//! Each method is one call, or a few, of Metal's; whatever needs thought is above this trait, in [`MetalBackend`](crate::MetalBackend).

use std::{ops::Range, path::Path};

use elinvar_core::{ConstantValue, Extent, Grid, HostMemory, MemoryInfo, MetalCode, PipelineInfo, Relief, Result};

/// What a device says of itself.
#[derive(Clone, Debug)]
pub struct DeviceInfo {
    /// `MTLDevice.name`.
    pub name: String,
    /// The system whose compiler and driver these are, with its version.
    pub system: String,
    /// The latest of Metal's Apple families that it belongs to, if it belongs to one.
    pub family: Option<u32>,
    /// Cores.
    pub compute_units: usize,
    /// What is assumed of it because the system does not report it.
    pub assumed: Option<String>,
    /// `maxThreadgroupMemoryLength`, in bytes.
    pub threadgroup_memory: usize,
    /// `maxThreadsPerThreadgroup`.
    pub max_threads: usize,
    /// `maxBufferLength`, in bytes.
    pub max_buffer_bytes: usize,
    /// `hasUnifiedMemory`.
    pub unified_memory: bool,
}

/// A library's code and how it is compiled.
#[derive(Clone, Copy, Debug)]
pub struct LibrarySource<'a> {
    /// What messages call it.
    pub name: &'a str,
    /// Metal Shading Language, complete; or what Apple's compiler has made of it, for which no option counts.
    pub code: &'a MetalCode,
    /// Math mode *fast* and fast functions instead of *safe* and precise ones.
    pub fast_math: bool,
    /// The version of the language, as `__METAL_VERSION__` has it: 310 is Metal 3.1.
    pub version: u32,
}

/// A library's kernel and its function constants.
pub struct Kernel<'a, L> {
    /// The library.
    pub library: &'a L,
    /// The kernel's name for the host.
    pub name: &'a str,
    /// Its function constants by index.
    pub constants: &'a [(u32, ConstantValue)],
    /// Threads that its threadgroups must be able to have, at the cost of registers; none leaves that to the compiler.
    pub threads: Option<usize>,
}

impl<L> Copy for Kernel<'_, L> {}

impl<L> Clone for Kernel<'_, L> {
    fn clone(&self) -> Self {
        *self
    }
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
    /// Its threads.
    pub grid: Grid,
    /// Threads of a threadgroup.
    pub threadgroup: Extent,
}

/// Where a buffer's memory lies (`MTLStorageMode`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StorageMode {
    /// Where host and device reach it.
    Shared,
    /// Where the device alone does.
    Private,
}

/// What a device hears when a command buffer has completed: from when to when it ran (`GPUStartTime`, `GPUEndTime`), in nanoseconds of one clock.
pub type Done = Box<dyn FnOnce(Result<Range<u64>>) + Send>;

/// A Metal device with one command queue.
pub trait Api: Send + Sync + 'static {
    /// `MTLBuffer`.
    type Buffer: Send + Sync + 'static;
    /// `MTLLibrary`.
    type Library: Send + Sync + 'static;
    /// `MTLComputePipelineState`.
    type Pipeline: Send + Sync + 'static;
    /// `MTLBinaryArchive`.
    type Archive;
    /// `MTLResidencySet`, used by one thread at a time.
    type ResidencySet: Send;
    /// The system's notices of memory pressure (a dispatch source), until it is dropped.
    type PressureWatch: Send + Sync;
    /// A capture (`MTLCaptureManager`) until it is dropped.
    type Capture: Send + Sync;
    /// `MTLCommandBuffer` while it is encoded, with a concurrent encoder. It keeps what it uses alive until it has completed.
    type CommandBuffer;

    /// Does `work` and releases the temporary objects that it made (an autorelease pool).
    fn scope<R>(&self, work: impl FnOnce() -> R) -> R {
        work()
    }

    /// What the device is.
    fn info(&self) -> DeviceInfo;

    /// Memory now (`recommendedMaxWorkingSetSize` and `currentAllocatedSize`).
    fn memory(&self) -> MemoryInfo;

    /// Calls `relieve` at each notice of memory pressure from now on, on a thread of the system's.
    fn watch_pressure(&self, relieve: Relief) -> Self::PressureWatch;

    /// Captures what the queue does from now on in a file for Xcode.
    ///
    /// # Errors
    /// The system does not allow that now, or cannot make the file.
    fn capture(&self, file: &Path) -> Result<Self::Capture>;

    /// A buffer that tools show under a label.
    ///
    /// # Errors
    /// Out of memory.
    fn buffer(&self, bytes: usize, mode: StorageMode, label: &str) -> Result<Self::Buffer>;

    /// A buffer labelled `adopted memory` over the pages that hold host memory, and where in it the memory begins; it keeps the memory's owner.
    /// None if the system does not share these pages.
    ///
    /// # Errors
    /// Out of memory.
    fn adopt(&self, memory: HostMemory) -> Result<Option<(Self::Buffer, usize)>>;

    /// A residency set that every command buffer of the queue uses; none where the system gives none.
    fn residency_set(&self) -> Option<Self::ResidencySet>;

    /// Adds a buffer to a set, from the next commit on.
    fn add_resident(&self, set: &Self::ResidencySet, buffer: &Self::Buffer);

    /// Takes a buffer out of a set, from the next commit on.
    fn remove_resident(&self, set: &Self::ResidencySet, buffer: &Self::Buffer);

    /// Does what was asked of a set: what was taken out goes.
    fn commit_residency(&self, set: &Self::ResidencySet);

    /// Makes what was committed resident at once, not when the next command buffer begins.
    fn request_residency(&self, set: &Self::ResidencySet);

    /// Host to shared buffer; nothing that uses the range is in flight.
    ///
    /// # Errors
    /// The device failed.
    fn write(&self, buffer: &Self::Buffer, offset: usize, bytes: &[u8]) -> Result<()>;

    /// Shared buffer to host; nothing that writes the range is in flight.
    ///
    /// # Errors
    /// The device failed.
    fn read(&self, buffer: &Self::Buffer, offset: usize, bytes: &mut [u8]) -> Result<()>;

    /// Compiles a text.
    ///
    /// # Errors
    /// It does not compile.
    fn library(&self, source: LibrarySource<'_>) -> Result<Self::Library>;

    /// Shows the host a range of a shared buffer where it lies; nothing that writes it is in flight.
    ///
    /// # Errors
    /// A range outside the buffer.
    fn view(&self, buffer: &Self::Buffer, offset: usize, bytes: usize, see: &mut dyn FnMut(&[u8])) -> Result<()>;

    /// Lets the host change a range of a shared buffer where it lies; nothing that uses it is in flight. Without an implementation a copy is written back.
    ///
    /// # Errors
    /// A range outside the buffer.
    fn view_mut(&self, buffer: &Self::Buffer, offset: usize, bytes: usize, change: &mut dyn FnMut(&mut [u8])) -> Result<()> {
        let mut copy = vec![0; bytes];
        self.read(buffer, offset, &mut copy)?;
        change(&mut copy);
        self.write(buffer, offset, &copy)
    }

    /// A pipeline of a library's kernel, under whose name tools show it, taken from the archive if that has it.
    ///
    /// # Errors
    /// No such kernel, or one the device cannot run.
    fn pipeline(&self, kernel: Kernel<'_, Self::Library>, archive: Option<&Self::Archive>) -> Result<Self::Pipeline>;

    /// An archive of machine code: empty, or as a file keeps it.
    ///
    /// # Errors
    /// The device offers none, or the file is not one of its.
    fn archive(&self, file: Option<&Path>) -> Result<Self::Archive>;

    /// Compiles a kernel's machine code into an archive.
    ///
    /// # Errors
    /// As [`Api::pipeline`].
    fn add(&self, archive: &Self::Archive, kernel: Kernel<'_, Self::Library>) -> Result<()>;

    /// Writes an archive to a file.
    ///
    /// # Errors
    /// The system rejects.
    fn save(&self, archive: &Self::Archive, file: &Path) -> Result<()>;

    /// What a pipeline is.
    fn pipeline_info(&self, pipeline: &Self::Pipeline) -> PipelineInfo;

    /// A command buffer of the queue, which tools show, as its encoders, under a label.
    ///
    /// # Errors
    /// The device failed.
    fn command_buffer(&self, label: &str) -> Result<Self::CommandBuffer>;

    /// Encodes a launch. Commands of a command buffer take effect in any order between two barriers.
    ///
    /// # Errors
    /// A launch the kernel's signature does not allow.
    fn launch(&self, commands: &mut Self::CommandBuffer, launch: &Launch<'_, Self>) -> Result<()>;

    /// Encodes a barrier: what is encoded later sees what was encoded before.
    fn barrier(&self, commands: &mut Self::CommandBuffer);

    /// Encodes a copy of `bytes` bytes between buffers and offsets, all multiples of 4.
    ///
    /// # Errors
    /// A range outside its buffer.
    fn copy(&self, commands: &mut Self::CommandBuffer, from: (&Self::Buffer, usize), to: (&Self::Buffer, usize), bytes: usize) -> Result<()>;

    /// Encodes a fill of `bytes` bytes; offset and length are multiples of 4.
    ///
    /// # Errors
    /// A range outside the buffer.
    fn fill(&self, commands: &mut Self::CommandBuffer, to: (&Self::Buffer, usize), bytes: usize, value: u8) -> Result<()>;

    /// Starts a command buffer; `done` is called once it has completed, with its times or its error.
    fn commit(&self, commands: Self::CommandBuffer, done: Done);
}
