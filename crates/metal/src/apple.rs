//! Metal's objects as Apple offers them. A Mac alone can run this file and those in its folder; what is unsafe is in this one.

mod commands;
mod constants;
mod cores;
mod devices;

use std::{
    ops::Range,
    path::Path,
    ptr::NonNull,
    sync::{Arc, Mutex, PoisonError},
};

use block2::RcBlock;
use dispatch2::{
    _dispatch_source_type_memorypressure, DispatchData, DispatchObject, DispatchRetained, DispatchSource,
    dispatch_source_memorypressure_flags_t as PressureFlags,
};
use elinvar_core::{ConstantValue, Error, Grid, HostMemory, MemoryInfo, MemoryPressure, MetalCode, PipelineInfo, Relief, Result};
use objc2::{
    available, msg_send,
    rc::{Retained, autoreleasepool},
    runtime::{AnyObject, ProtocolObject},
};
use objc2_foundation::{NSArray, NSError, NSRange, NSString, NSURL, ns_string};
use objc2_metal::{
    MTLBinaryArchive, MTLBinaryArchiveDescriptor, MTLBlitCommandEncoder, MTLBuffer, MTLCaptureDescriptor, MTLCaptureDestination, MTLCaptureManager,
    MTLCommandBuffer, MTLCommandQueue, MTLCompileOptions, MTLComputeCommandEncoder, MTLComputePipelineDescriptor, MTLComputePipelineState, MTLDevice,
    MTLFunction, MTLFunctionConstantValues, MTLGPUFamily, MTLLanguageVersion, MTLLibrary, MTLMathFloatingPointFunctions, MTLMathMode,
    MTLPipelineOption, MTLResidencySet, MTLResidencySetDescriptor, MTLResource, MTLResourceOptions, MTLSize,
};

use crate::{
    api::{Api, DeviceInfo, Done, Kernel, Launch, LibrarySource, StorageMode},
    encode::threadgroup_bytes,
    memory::pages,
    requirements,
};
use commands::{Commands, message_of, outcome};
use constants::constant_bytes;
use devices::{Device, devices, info};

// What MTLCreateSystemDefaultDevice needs and does not link itself.
// SAFETY: nothing is declared.
#[link(name = "CoreGraphics", kind = "framework")]
unsafe extern "C" {}

/// Pages of a process, which buffers without copies are made of; one for Intel's processors has small ones on Apple's too.
const PAGE: usize = if cfg!(target_arch = "x86_64") { 4 << 10 } else { 16 << 10 };

/// A Mac's GPU with a queue.
pub struct Apple {
    device: Device,
    queue: Retained<ProtocolObject<dyn MTLCommandQueue>>,
}

/// A buffer.
pub struct Buffer(Retained<ProtocolObject<dyn MTLBuffer>>);

// SAFETY: Metal's buffers may be used and released on any thread; the backend orders accesses to their memory.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

/// A residency set of the queue.
pub struct Resident(Retained<ProtocolObject<dyn MTLResidencySet>>);

// SAFETY: an object without ties to a thread, which the trait lets one thread use at a time.
unsafe impl Send for Resident {}

impl Drop for Resident {
    /// What was requested stands until it is ended, independent of the set's holders.
    fn drop(&mut self) {
        autoreleasepool(|_| self.0.endResidency());
    }
}

/// Sources of the system's notices, one for each pressure: a handler knows by its source what happened.
pub struct PressureWatch([DispatchRetained<DispatchSource>; 2]);

impl Drop for PressureWatch {
    /// The system holds a source, and what its handler holds, until it is cancelled.
    fn drop(&mut self) {
        self.0.iter().for_each(|source| source.cancel());
    }
}

/// A capture that is being taken.
pub struct Capture(Retained<MTLCaptureManager>);

// SAFETY: the system's one manager, an object without ties to a thread.
unsafe impl Send for Capture {}
// SAFETY: as above.
unsafe impl Sync for Capture {}

impl Drop for Capture {
    /// The file is written now.
    fn drop(&mut self) {
        autoreleasepool(|_| self.0.stopCapture());
    }
}

impl Apple {
    /// A device of the system, counted from 0, the system's default.
    ///
    /// # Errors
    /// No such device, one before the M1, or a system before macOS 14; the message says which.
    pub fn new(ordinal: usize) -> Result<Self> {
        let apple = Self::on_trial(ordinal)?;
        requirements::check(&apple.info())?;
        Ok(apple)
    }

    /// The same, even if the device says that it lacks what the kernels need: virtual machines' GPUs say less of themselves than what they run on can do,
    /// but there is no guarantee for a kernel there.
    ///
    /// # Errors
    /// No such device, or a system before macOS 14.
    pub fn on_trial(ordinal: usize) -> Result<Self> {
        let missing = |what: &str| Error::device_unavailable(format!("{what}: use `--device cpu`"));
        if !available!(macos = 14.0, ios = 17.0, ..) {
            return Err(missing("Metal kernels here need macOS 14 or later, for the type bfloat"));
        }
        autoreleasepool(|_| {
            let devices = devices();
            if devices.is_empty() {
                return Err(missing("this system has no Metal device (a session without access to the GPU?)"));
            }
            let names = || devices.iter().map(|device| device.name().to_string()).collect::<Vec<_>>().join("', '");
            let device =
                devices.get(ordinal).ok_or_else(|| missing(&format!("Metal's devices, counted from 0, are '{}': no number {ordinal}", names())))?;
            let queue = device.newCommandQueue().ok_or_else(|| missing("the Metal device gives no command queue"))?;
            Ok(Self { device: device.clone(), queue })
        })
    }

    /// The system's Metal devices, those included that the kernels cannot use.
    pub fn count() -> usize {
        autoreleasepool(|_| devices().len())
    }

    fn descriptor(&self, kernel: Kernel<'_, Library>) -> Result<Retained<MTLComputePipelineDescriptor>> {
        let descriptor = MTLComputePipelineDescriptor::new();
        let (library, name) = (kernel.library, NSString::from_str(kernel.name));
        let function = if kernel.constants.is_empty() {
            library.newFunctionWithName(&name)
        } else {
            let declared = library.newFunctionWithName(&name).ok_or_else(|| no_kernel(kernel.name))?;
            let values = values(&declared, kernel.constants).map_err(|e| e.context(kernel.name))?;
            let made = library.newFunctionWithName_constantValues_error(&name, &values);
            Some(made.map_err(|e| Error::compile_failed(format!("{}: {}", kernel.name, message_of(&e))))?)
        };
        descriptor.setLabel(Some(&name));
        descriptor.setComputeFunction(Some(&*function.ok_or_else(|| no_kernel(kernel.name))?));
        if let Some(threads) = kernel.threads {
            descriptor.setMaxTotalThreadsPerThreadgroup(threads);
        }
        Ok(descriptor)
    }
}

type Library = Retained<ProtocolObject<dyn MTLLibrary>>;

fn no_kernel(name: &str) -> Error {
    Error::invalid_argument(format!("the library has no kernel '{name}'"))
}

fn url(path: &Path) -> Result<Retained<NSURL>> {
    let path = path.to_str().ok_or_else(|| Error::io(format!("{} is not UTF-8: name another folder in ELINVAR_CACHE", path.display())))?;
    Ok(NSURL::fileURLWithPath(&NSString::from_str(path)))
}

fn size(extent: [u32; 3]) -> MTLSize {
    let [width, height, depth] = extent.map(|n| n as usize);
    MTLSize { width, height, depth }
}

/// Function constants, each as the type it is declared with.
fn values(function: &ProtocolObject<dyn MTLFunction>, constants: &[(u32, ConstantValue)]) -> Result<Retained<MTLFunctionConstantValues>> {
    let (values, declared) = (MTLFunctionConstantValues::new(), function.functionConstantsDictionary().allValues());
    for &(index, value) in constants {
        let Some(constant) = declared.iter().find(|constant| constant.index() == index as usize) else {
            continue; // The kernel does not use it.
        };
        let kind = constant.r#type();
        let bytes = constant_bytes(kind, value)
            .ok_or_else(|| Error::invalid_argument(format!("{value:?} does not fit function constant {index}, '{}'", constant.name())))?;
        // SAFETY: eight bytes are more than any scalar type takes; Metal copies them.
        unsafe { values.setConstantValue_type_atIndex(NonNull::from(&bytes).cast(), kind, index as usize) };
    }
    Ok(values)
}

/// From when to when a completed command buffer ran.
fn ran(buffer: &ProtocolObject<dyn MTLCommandBuffer>) -> Range<u64> {
    // SAFETY: properties without arguments, of the type `CFTimeInterval`, which is a double: seconds since the system was started.
    let [start, end]: [f64; 2] = unsafe { [msg_send![buffer, GPUStartTime], msg_send![buffer, GPUEndTime]] };
    (start * 1e9) as u64..(end * 1e9) as u64
}

/// The range's first byte.
fn at(buffer: &ProtocolObject<dyn MTLBuffer>, offset: usize, bytes: usize) -> Result<NonNull<u8>> {
    let length = buffer.length();
    if offset.checked_add(bytes).is_none_or(|end| end > length) {
        return Err(Error::invalid_argument(format!("bytes {offset}..{offset}+{bytes} are outside a buffer of {length} bytes")));
    }
    // SAFETY: inside the buffer's memory.
    Ok(unsafe { buffer.contents().cast::<u8>().add(offset) })
}

impl Api for Apple {
    type Buffer = Buffer;
    type Library = Library;
    type Pipeline = Retained<ProtocolObject<dyn MTLComputePipelineState>>;
    type Archive = Retained<ProtocolObject<dyn MTLBinaryArchive>>;
    type ResidencySet = Resident;
    type PressureWatch = PressureWatch;
    type Capture = Capture;
    type CommandBuffer = Commands;

    fn scope<R>(&self, work: impl FnOnce() -> R) -> R {
        autoreleasepool(|_| work())
    }

    fn info(&self) -> DeviceInfo {
        autoreleasepool(|_| info(&self.device))
    }

    fn memory(&self) -> MemoryInfo {
        let total = usize::try_from(self.device.recommendedMaxWorkingSetSize()).unwrap_or(usize::MAX);
        MemoryInfo { total, available: total.saturating_sub(self.device.currentAllocatedSize()) }
    }

    fn watch_pressure(&self, relieve: Relief) -> PressureWatch {
        let relieve = Arc::new(relieve);
        let pressures = [
            (PressureFlags::DISPATCH_MEMORYPRESSURE_WARN, MemoryPressure::Warning),
            (PressureFlags::DISPATCH_MEMORYPRESSURE_CRITICAL, MemoryPressure::Critical),
        ];
        PressureWatch(pressures.map(|(flag, pressure)| {
            let relieve = relieve.clone();
            let handler = RcBlock::new(move || autoreleasepool(|_| relieve(pressure)));
            let kind = &raw const _dispatch_source_type_memorypressure;
            // SAFETY: the system's own source type, which takes no handle, with one of its flags; no queue means the system's default one.
            let source = unsafe { DispatchSource::new(kind.cast_mut(), 0, flag.0 as usize, None) };
            // SAFETY: a block that the source copies, of a closure that may run on any thread: `Relief` is Send and Sync.
            unsafe { source.set_event_handler_with_block(RcBlock::as_ptr(&handler)) };
            source.activate();
            source
        }))
    }

    fn capture(&self, file: &Path) -> Result<Capture> {
        // SAFETY: the system's manager, which is asked by one thread at a time: devices are opened one after the other.
        let manager = unsafe { MTLCaptureManager::sharedCaptureManager() };
        if !manager.supportsDestination(MTLCaptureDestination::GPUTraceDocument) {
            return Err(Error::invalid_argument("the system allows no captures now: set MTL_CAPTURE_ENABLED=1"));
        }
        let (descriptor, place) = (MTLCaptureDescriptor::new(), url(file)?);
        let queue: &AnyObject = (*self.queue).as_ref();
        // SAFETY: a queue is one of the objects that can be captured.
        unsafe { descriptor.setCaptureObject(Some(queue)) };
        descriptor.setDestination(MTLCaptureDestination::GPUTraceDocument);
        descriptor.setOutputURL(Some(&place));
        let started = manager.startCaptureWithDescriptor_error(&descriptor);
        started.map_err(|e| Error::invalid_argument(format!("cannot capture to {}: {}", file.display(), message_of(&e))))?;
        Ok(Capture(manager))
    }

    fn buffer(&self, bytes: usize, mode: StorageMode, label: &str) -> Result<Buffer> {
        let options = match mode {
            StorageMode::Shared => MTLResourceOptions::StorageModeShared,
            StorageMode::Private => MTLResourceOptions::StorageModePrivate,
        };
        let buffer = self.device.newBufferWithLength_options(bytes.max(1), options);
        let rejected = || Error::out_of_memory(format!("Metal rejects a buffer of {bytes} bytes: close other programs, or choose a smaller model"));
        let buffer = buffer.ok_or_else(rejected)?;
        buffer.setLabel(Some(&NSString::from_str(label)));
        Ok(Buffer(buffer))
    }

    fn adopt(&self, memory: HostMemory) -> Result<Option<(Self::Buffer, usize)>> {
        let bytes = memory.bytes();
        let Some((first, start, length)) = pages(bytes.as_ptr().addr(), bytes.len(), PAGE) else { return Ok(None) };
        let Some(first) = NonNull::new(bytes.as_ptr().with_addr(first).cast_mut().cast()) else { return Ok(None) };
        let owner = memory.clone();
        let release = RcBlock::new(move |_, _| {
            // What the block holds goes with it.
            let _held = &owner;
        });
        // SAFETY: whole pages around live memory, mapped as long as its owner lives; the block, which Metal keeps as long as the buffer, holds the owner
        // and may go on any thread, since `HostMemory` is Send and Sync. Kernels only read the pages (the backend interface calls the buffer read-only).
        let buffer = unsafe {
            let options = MTLResourceOptions::StorageModeShared;
            self.device.newBufferWithBytesNoCopy_length_options_deallocator(first, length, options, Some(&release))
        };
        if let Some(buffer) = &buffer {
            buffer.setLabel(Some(ns_string!("adopted memory")));
        }
        Ok(buffer.map(|buffer| (Buffer(buffer), start)))
    }

    fn residency_set(&self) -> Option<Resident> {
        // Sets came with this family: where Metal validates, asking an older GPU for one ends the process.
        if !available!(macos = 15.0, ios = 18.0, ..) || !self.device.supportsFamily(MTLGPUFamily::Apple6) {
            return None;
        }
        let set = self.device.newResidencySetWithDescriptor_error(&MTLResidencySetDescriptor::new()).ok()?;
        self.queue.addResidencySet(&set);
        Some(Resident(set))
    }

    fn add_resident(&self, set: &Resident, buffer: &Buffer) {
        set.0.addAllocation(ProtocolObject::from_ref(&*buffer.0));
    }

    fn remove_resident(&self, set: &Resident, buffer: &Buffer) {
        set.0.removeAllocation(ProtocolObject::from_ref(&*buffer.0));
    }

    fn commit_residency(&self, set: &Resident) {
        set.0.commit();
    }

    fn request_residency(&self, set: &Resident) {
        set.0.requestResidency();
    }

    fn write(&self, buffer: &Self::Buffer, offset: usize, bytes: &[u8]) -> Result<()> {
        let to = at(&buffer.0, offset, bytes.len())?;
        // SAFETY: inside shared memory that no command uses now, as the trait demands.
        unsafe { to.as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Ok(())
    }

    fn read(&self, buffer: &Self::Buffer, offset: usize, bytes: &mut [u8]) -> Result<()> {
        let from = at(&buffer.0, offset, bytes.len())?;
        // SAFETY: inside shared memory that no command writes now, as the trait demands.
        unsafe { bytes.as_mut_ptr().copy_from_nonoverlapping(from.as_ptr(), bytes.len()) };
        Ok(())
    }

    fn view(&self, buffer: &Self::Buffer, offset: usize, bytes: usize, see: &mut dyn FnMut(&[u8])) -> Result<()> {
        let from = at(&buffer.0, offset, bytes)?;
        // SAFETY: inside shared memory that no command writes while the view lasts, as the trait demands; Metal gives zeroed memory.
        see(unsafe { std::slice::from_raw_parts(from.as_ptr(), bytes) });
        Ok(())
    }

    fn view_mut(&self, buffer: &Self::Buffer, offset: usize, bytes: usize, change: &mut dyn FnMut(&mut [u8])) -> Result<()> {
        let range = at(&buffer.0, offset, bytes)?;
        // SAFETY: inside shared memory that no command uses while the view lasts, as the trait demands; Metal gives zeroed memory.
        change(unsafe { std::slice::from_raw_parts_mut(range.as_ptr(), bytes) });
        Ok(())
    }

    fn library(&self, source: LibrarySource<'_>) -> Result<Library> {
        let failed = |e: &NSError| Error::compile_failed(format!("{}: {}", source.name, message_of(e)));
        let text = match source.code {
            MetalCode::Text(text) => text,
            MetalCode::Library(library) => {
                let data = DispatchData::from_bytes(library.bytes());
                return self.device.newLibraryWithData_error(&data).map_err(|e| failed(&e));
            }
        };
        let options = MTLCompileOptions::new();
        let (major, minor) = (source.version as usize / 100, source.version as usize / 10 % 10);
        options.setLanguageVersion(MTLLanguageVersion(major << 16 | minor));
        if source.version >= 320 && !available!(macos = 15.0, ios = 18.0, ..) {
            return Err(Error::unsupported(format!(
                "{}: Metal {major}.{minor}, where this system has 3.1: macOS 15 or iOS 18 brings 3.2",
                source.name
            )));
        }
        if available!(macos = 15.0, ios = 18.0, ..) {
            let (mode, functions) = match source.fast_math {
                true => (MTLMathMode::Fast, MTLMathFloatingPointFunctions::Fast),
                false => (MTLMathMode::Safe, MTLMathFloatingPointFunctions::Precise),
            };
            options.setMathMode(mode);
            // Apart from the mode, and fast unless they are asked for: `sqrt` would not round correctly, `min` and `max` would not look for NaN.
            options.setMathFloatingPointFunctions(functions);
        } else {
            #[allow(deprecated, reason = "what systems before macOS 15 have in its place")]
            options.setFastMathEnabled(source.fast_math);
        }
        let made = self.device.newLibraryWithSource_options_error(&NSString::from_str(text), Some(&options));
        made.map_err(|e| failed(&e))
    }

    fn pipeline(&self, kernel: Kernel<'_, Library>, archive: Option<&Self::Archive>) -> Result<Self::Pipeline> {
        let descriptor = self.descriptor(kernel)?;
        if let Some(archive) = archive {
            descriptor.setBinaryArchives(Some(&NSArray::from_slice(&[&**archive])));
        }
        let made = self.device.newComputePipelineStateWithDescriptor_options_reflection_error(&descriptor, MTLPipelineOption::None, None);
        made.map_err(|e| Error::compile_failed(format!("{}: {}", kernel.name, message_of(&e))))
    }

    fn archive(&self, file: Option<&Path>) -> Result<Self::Archive> {
        let descriptor = MTLBinaryArchiveDescriptor::new();
        descriptor.setUrl(file.map(url).transpose()?.as_deref());
        self.device.newBinaryArchiveWithDescriptor_error(&descriptor).map_err(|e| Error::io(format!("a binary archive: {}", message_of(&e))))
    }

    fn add(&self, archive: &Self::Archive, kernel: Kernel<'_, Library>) -> Result<()> {
        let added = archive.addComputePipelineFunctionsWithDescriptor_error(&*self.descriptor(kernel)?);
        added.map_err(|e| Error::compile_failed(format!("{}: {}", kernel.name, message_of(&e))))
    }

    fn save(&self, archive: &Self::Archive, file: &Path) -> Result<()> {
        archive.serializeToURL_error(&*url(file)?).map_err(|e| Error::io(format!("cannot write {}: {}", file.display(), message_of(&e))))
    }

    fn pipeline_info(&self, pipeline: &Self::Pipeline) -> PipelineInfo {
        PipelineInfo {
            execution_width: pipeline.threadExecutionWidth(),
            max_threads: pipeline.maxTotalThreadsPerThreadgroup(),
            threadgroup_memory: pipeline.staticThreadgroupMemoryLength(),
        }
    }

    fn command_buffer(&self, label: &str) -> Result<Commands> {
        let buffer = self.queue.commandBuffer().ok_or_else(|| Error::out_of_memory("Metal gives no command buffer"))?;
        Ok(Commands::new(buffer, NSString::from_str(label)))
    }

    fn launch(&self, commands: &mut Commands, launch: &Launch<'_, Self>) -> Result<()> {
        let encoder = commands.compute()?;
        encoder.setComputePipelineState(launch.pipeline);
        for bound in &launch.buffers {
            // SAFETY: the range lies in its buffer, checked when the list was recorded; the command buffer keeps the buffer.
            unsafe { encoder.setBuffer_offset_atIndex(Some(&*bound.buffer.0), bound.offset, bound.index) };
        }
        if let Some((index, bytes)) = launch.bytes {
            // SAFETY: Metal copies the slice's bytes.
            unsafe { encoder.setBytes_length_atIndex(NonNull::from(bytes).cast(), bytes.len(), index) };
        }
        for &(index, bytes) in &launch.threadgroup_memory {
            // SAFETY: within the device's limit, checked when the list was recorded.
            unsafe { encoder.setThreadgroupMemoryLength_atIndex(threadgroup_bytes(bytes), index) };
        }
        let threadgroup = size(launch.threadgroup.0);
        match launch.grid {
            Grid::Threadgroups(groups) => encoder.dispatchThreadgroups_threadsPerThreadgroup(size(groups), threadgroup),
            Grid::Threads(threads) => encoder.dispatchThreads_threadsPerThreadgroup(size(threads), threadgroup),
        }
        Ok(())
    }

    fn barrier(&self, commands: &mut Commands) {
        commands.barrier();
    }

    fn copy(&self, commands: &mut Commands, from: (&Self::Buffer, usize), to: (&Self::Buffer, usize), bytes: usize) -> Result<()> {
        let encoder = commands.blit()?;
        // SAFETY: both ranges lie in their buffers, checked when the list was recorded.
        unsafe { encoder.copyFromBuffer_sourceOffset_toBuffer_destinationOffset_size(&from.0.0, from.1, &to.0.0, to.1, bytes) };
        Ok(())
    }

    fn fill(&self, commands: &mut Commands, to: (&Self::Buffer, usize), bytes: usize, value: u8) -> Result<()> {
        commands.blit()?.fillBuffer_range_value(&to.0.0, NSRange { location: to.1, length: bytes }, value);
        Ok(())
    }

    fn commit(&self, mut commands: Commands, done: Done) {
        commands.end();
        let done = Mutex::new(Some(done));
        let handler = RcBlock::new(move |buffer: NonNull<ProtocolObject<dyn MTLCommandBuffer>>| {
            autoreleasepool(|_| {
                // SAFETY: Metal passes the command buffer that has completed, alive during the call.
                let buffer = unsafe { buffer.as_ref() };
                let outcome = outcome(buffer).map(|()| ran(buffer));
                if let Some(done) = done.lock().unwrap_or_else(PoisonError::into_inner).take() {
                    done(outcome);
                }
            });
        });
        // SAFETY: a block that Metal copies, of a closure that may run on any thread.
        unsafe { commands.buffer.addCompletedHandler(RcBlock::as_ptr(&handler)) };
        commands.buffer.commit();
    }
}
