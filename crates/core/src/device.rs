use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, RwLock},
};

use crate::{
    Backend, Buffer, CommandList, Completion, DeviceProperties, Error, HostMemory, KernelKey, KernelSource, MemoryInfo, Pipeline, Pool,
    PoolStatistics, RawBuffer, Reading, Result, Storage, pool::Slot,
};

/// A device as the crates above use it: a backend with its buffer pool and its compiled kernels. Clones are the same device.
#[derive(Clone)]
pub struct Device(Arc<Inner>);

struct Inner {
    backend: Box<dyn Backend>,
    pool: Arc<Pool>,
    pipelines: RwLock<HashMap<KernelKey, Pipeline>>,
}

impl Device {
    /// Unused memory a pool keeps unless told otherwise.
    pub const DEFAULT_POOL_CAP: usize = 1 << 30;

    /// Wraps a backend.
    pub fn new(backend: impl Backend + 'static) -> Self {
        Self(Arc::new(Inner { backend: Box::new(backend), pool: Pool::new(Self::DEFAULT_POOL_CAP), pipelines: RwLock::default() }))
    }

    /// Whether both are the same device.
    pub fn same(&self, other: &Device) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// What launch plans may know.
    pub fn properties(&self) -> &DeviceProperties {
        self.0.backend.properties()
    }

    /// Memory now.
    pub fn memory(&self) -> MemoryInfo {
        self.0.backend.memory()
    }

    /// The buffer pool: its cap can be changed and its cache cleared.
    pub fn pool(&self) -> &Pool {
        &self.0.pool
    }

    /// The pool's statistics now.
    pub fn pool_statistics(&self) -> PoolStatistics {
        self.0.pool.statistics()
    }

    /// Pooled memory, contents unspecified: for intermediate results.
    ///
    /// # Errors
    /// Out of memory, even after the pool's cache was freed.
    pub fn allocate(&self, bytes: usize) -> Result<Buffer> {
        self.check_size(bytes)?;
        let slot = self.0.pool.take(bytes, Storage::Device, |class| self.0.backend.allocate(class, Storage::Device))?;
        Ok(Buffer::new(slot, bytes))
    }

    /// Memory of exactly this size that is freed when dropped: for weights and caches.
    ///
    /// # Errors
    /// Out of memory, even after the pool's cache was freed.
    pub fn allocate_dedicated(&self, bytes: usize) -> Result<Buffer> {
        self.check_size(bytes)?;
        let raw = self.or_without_cache(|| self.0.backend.allocate(bytes, Storage::Device))?;
        Ok(Buffer::new(Slot::dedicated(raw), bytes))
    }

    /// Tries again with the pool's cache freed where memory has run out.
    fn or_without_cache(&self, allocate: impl Fn() -> Result<RawBuffer>) -> Result<RawBuffer> {
        allocate().or_else(|error| {
            if !error.is_out_of_memory() {
                return Err(error);
            }
            self.0.pool.clear();
            allocate()
        })
    }

    /// Host memory as a read-only buffer, without a copy where memory is unified.
    ///
    /// # Errors
    /// Out of memory, even after the pool's cache was freed.
    pub fn adopt(&self, memory: HostMemory) -> Result<Buffer> {
        let bytes = memory.bytes().len();
        let raw = self.or_without_cache(|| self.0.backend.adopt(memory.clone()))?;
        Ok(Buffer::new(Slot::dedicated(raw), bytes))
    }

    /// Copies into a buffer, after everything submitted before.
    ///
    /// # Errors
    /// A range outside the buffer, read-only memory, or a failed device.
    pub fn write(&self, buffer: &Buffer, offset: usize, bytes: &[u8]) -> Result<()> {
        buffer.bind(offset, bytes.len())?;
        if buffer.raw().is_read_only() {
            return Err(Error::invalid_argument("cannot write to read-only host memory (adopted weights)"));
        }
        self.0.backend.write(buffer.raw(), offset, bytes)
    }

    /// Copies out of a buffer, after everything submitted before.
    ///
    /// # Errors
    /// A range outside the buffer, or a failed device or submission.
    pub fn read(&self, buffer: &Buffer, offset: usize, bytes: &mut [u8]) -> Result<()> {
        buffer.bind(offset, bytes.len())?;
        self.0.backend.read(buffer.raw(), offset, bytes)
    }

    /// Shows bytes of a buffer, after everything submitted before: where they lie if the host reaches them there, else a copy. `see` may ask nothing
    /// of the device.
    ///
    /// # Errors
    /// As [`Device::read`].
    pub fn view(&self, buffer: &Buffer, offset: usize, bytes: usize, see: &mut dyn FnMut(&[u8])) -> Result<()> {
        buffer.bind(offset, bytes)?;
        self.0.backend.view(buffer.raw(), offset, bytes, see)
    }

    /// Starts to copy out of a buffer, after everything submitted before and before everything submitted after.
    ///
    /// # Errors
    /// As [`Device::read`].
    pub fn read_later(&self, buffer: &Buffer, offset: usize, bytes: usize) -> Result<Reading> {
        buffer.bind(offset, bytes)?;
        self.0.backend.read_later(buffer.raw(), offset, bytes)
    }

    /// The prepared kernel, compiled at first use and found by its key from then on.
    ///
    /// # Errors
    /// The kernel does not compile.
    pub fn pipeline(&self, source: &Arc<KernelSource>) -> Result<Pipeline> {
        if let Some(found) = self.0.pipelines.read().unwrap_or_else(PoisonError::into_inner).get(&source.key) {
            return Ok(found.clone());
        }
        let made = self.0.backend.compile(source)?;
        let mut cache = self.0.pipelines.write().unwrap_or_else(PoisonError::into_inner);
        Ok(cache.entry(source.key.clone()).or_insert(made).clone())
    }

    /// Waits until a kernel is prepared, where that was only begun; else its first launch waits.
    ///
    /// # Errors
    /// The kernel does not compile.
    pub fn ready(&self, kernel: &Pipeline) -> Result<()> {
        self.0.backend.ready(kernel)
    }

    /// A kernel prepared for an owner who keeps it: a user's, which no key tells from others.
    ///
    /// # Errors
    /// The kernel does not compile.
    pub fn prepare(&self, source: &Arc<KernelSource>) -> Result<Pipeline> {
        self.0.backend.compile(source)
    }

    /// Starts a recorded list.
    ///
    /// # Errors
    /// Device lost.
    pub fn submit(&self, commands: &Arc<CommandList>) -> Result<Completion> {
        self.0.backend.submit(commands)
    }

    fn check_size(&self, bytes: usize) -> Result<()> {
        let most = self.properties().max_buffer_bytes;
        if bytes > most {
            return Err(Error::out_of_memory(format!("a buffer of {bytes} bytes: {} allows at most {most}", self.properties().name)));
        }
        Ok(())
    }
}
