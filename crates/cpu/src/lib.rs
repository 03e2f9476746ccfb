//! The CPU device: executes command lists by the kernels' CPU kernels.
//!
//! One thread owns the device and runs lists in the order they were submitted; it is also one of the threads of the rayon pool that
//! the CPU kernels share, so a small dispatch costs no hand-over. The number of threads never changes a result: every kernel computes each
//! output element by the same operations in the same order.

mod helpers;
mod memory;
mod placement;
mod system;
mod worker;

use std::{
    num::NonZeroUsize,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
};

use elinvar_core::{
    Backend, Binding, Buffer, CommandList, Completion, DType, DeviceKind, DeviceProperties, Error, HostMemory, HostMemoryMut, KernelSource,
    MemoryInfo, Pipeline, ProfileEvent, RawBuffer, Result, Storage,
};
use elinvar_math::simd::{self, Level};
use memory::{Allocation, Memory};
use worker::Worker;

/// The CPU backend.
pub struct CpuBackend {
    properties: DeviceProperties,
    worker: Mutex<Worker>,
}

impl CpuBackend {
    /// A device with `threads` threads, or one for each core.
    ///
    /// # Errors
    /// The operating system rejects the threads, or `ELINVAR_SIMD` names instructions that the processor lacks.
    pub fn new(threads: Option<NonZeroUsize>) -> Result<Self> {
        Level::from_environment()?;
        let threads = threads.or_else(|| thread::available_parallelism().ok()).map_or(1, NonZeroUsize::get);
        let properties = DeviceProperties {
            kind: DeviceKind::Cpu,
            name: format!("{} ({})", system::processor_name(), simd::level()),
            compute_units: threads,
            simd_width: 1,
            max_threads_per_threadgroup: 1024,
            threadgroup_memory: 32 << 10,
            max_buffer_bytes: isize::MAX as usize,
            unified_memory: true,
            dtypes: DType::PROGRAMS,
            features: None,
        };
        Ok(Self { properties, worker: Mutex::new(Worker::start(threads)?) })
    }

    /// The worker when everything submitted is done, and nothing begins while it is held; the first error that nothing waited for.
    fn settled(&self) -> Result<MutexGuard<'_, Worker>> {
        let mut worker = self.worker();
        worker.settle()?;
        Ok(worker)
    }

    fn worker(&self) -> MutexGuard<'_, Worker> {
        self.worker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Backend for CpuBackend {
    fn properties(&self) -> &DeviceProperties {
        &self.properties
    }

    fn memory(&self) -> MemoryInfo {
        MemoryInfo::of_host()
    }

    fn allocate(&self, bytes: usize, _storage: Storage) -> Result<RawBuffer> {
        // Linux grants more than there is and kills later: reject what cannot fit while an error can still be given.
        const WORTH_ASKING: usize = 64 << 20;
        if bytes >= WORTH_ASKING {
            let memory = MemoryInfo::of_host();
            if bytes > memory.available {
                return Err(Error::out_of_memory(format!(
                    "{} MiB asked, {} MiB of {} MiB are free: close other programs or use a smaller model, context or batch",
                    bytes >> 20,
                    memory.available >> 20,
                    memory.total >> 20
                )));
            }
        }
        Ok(RawBuffer::new(Memory::Owned(Allocation::new(bytes)?)))
    }

    fn adopt(&self, memory: HostMemory) -> Result<RawBuffer> {
        Ok(RawBuffer::new(Memory::Adopted(memory)))
    }

    fn adopt_mut(&self, memory: HostMemoryMut) -> Result<RawBuffer> {
        Ok(RawBuffer::new(Memory::AdoptedMut(memory)))
    }

    fn write(&self, buffer: &RawBuffer, offset: usize, bytes: &[u8]) -> Result<()> {
        let memory = buffer.downcast::<Memory>()?;
        let mut worker = self.worker();
        worker.wait();
        // SAFETY: nothing runs, and nothing begins while the worker is held.
        unsafe { memory.change(offset, bytes.len(), |to| to.copy_from_slice(bytes)) }
    }

    fn read(&self, buffer: &RawBuffer, offset: usize, bytes: &mut [u8]) -> Result<()> {
        let memory = buffer.downcast::<Memory>()?;
        let _worker = self.settled()?;
        // SAFETY: as in `write`.
        bytes.copy_from_slice(unsafe { memory.slice(offset, bytes.len())? });
        Ok(())
    }

    fn view(&self, buffer: &RawBuffer, offset: usize, bytes: usize, see: &mut dyn FnMut(&[u8])) -> Result<()> {
        let memory = buffer.downcast::<Memory>()?;
        let _worker = self.settled()?;
        // SAFETY: as in `write`.
        see(unsafe { memory.slice(offset, bytes)? });
        Ok(())
    }

    fn view_mut(&self, buffer: &RawBuffer, offset: usize, bytes: usize, change: &mut dyn FnMut(&mut [u8])) -> Result<()> {
        let memory = buffer.downcast::<Memory>()?;
        let _worker = self.settled()?;
        // SAFETY: as in `write`.
        unsafe { memory.change(offset, bytes, change) }
    }

    fn compile(&self, kernel: &Arc<KernelSource>) -> Result<Pipeline> {
        let host = kernel.host.clone().ok_or_else(|| Error::unsupported(format!("{} has no CPU form", kernel.key)))?;
        Ok(Pipeline::new(kernel.clone(), Arc::new(host)))
    }

    fn submit(&self, commands: &Arc<CommandList>) -> Result<Completion> {
        self.worker().submit(commands)
    }

    fn run_over(&self, commands: &CommandList, places: &[Buffer], given: &[Binding]) -> Result<Option<Completion>> {
        self.worker().run_over(commands, places, given)
    }

    fn is_idle(&self) -> bool {
        self.worker.try_lock().is_ok_and(|worker| worker.is_idle())
    }

    fn start_profile(&self) -> Result<()> {
        let mut worker = self.worker();
        worker.wait();
        worker.profile.start();
        Ok(())
    }

    fn end_profile(&self) -> Result<Vec<ProfileEvent>> {
        let mut worker = self.worker();
        worker.wait();
        Ok(worker.profile.end())
    }
}
