use std::{
    any::{Any, TypeId},
    sync::{Arc, PoisonError, RwLock},
};

use crate::{
    backend::{Backend, Joined, MemoryPressure, Peers},
    buffer::{Binding, Buffer},
    commands::CommandList,
    completion::Completion,
    device_id::DeviceId,
    error::{Error, Result},
    hash::FastMap,
    host_memory::MemoryInfo,
    kernel::{KernelSource, Pipeline},
    key::KernelKey,
    memory::{HostMemory, HostMemoryMut, RawBuffer, StandIn, Storage},
    pool::{Pool, PoolStatistics, Slot},
    profile::ProfileEvent,
    properties::DeviceProperties,
    reading::Reading,
};

/// A device as the crates above use it: a backend with its buffer pool and its compiled kernels. Clones are the same device.
#[derive(Clone)]
pub struct Device(Arc<Inner>);

struct Inner {
    id: DeviceId,
    backend: Box<dyn Backend>,
    pool: Arc<Pool>,
    pipelines: RwLock<FastMap<KernelKey, Pipeline>>,
    cached: RwLock<FastMap<TypeId, Arc<dyn Any + Send + Sync>>>,
}

impl Inner {
    fn relieve(&self, pressure: MemoryPressure) {
        self.pool.clear();
        if pressure == MemoryPressure::Critical {
            let kernels = std::mem::take(&mut *self.pipelines.write().unwrap_or_else(PoisonError::into_inner));
            let cached = std::mem::take(&mut *self.cached.write().unwrap_or_else(PoisonError::into_inner));
            drop((kernels, cached));
        }
    }
}

impl Device {
    /// Unused memory a pool keeps by default.
    pub const DEFAULT_POOL_CAP: usize = 1 << 30;

    /// Wraps a backend. When the system lacks memory, the pool releases unused memory, and at the critical level unused prepared kernels go too,
    /// and what is [cached](Device::cached).
    pub fn new(backend: impl Backend + 'static) -> Self {
        let (pool, pipelines, cached) = (Pool::new(Self::DEFAULT_POOL_CAP), RwLock::default(), RwLock::default());
        let inner = Arc::new(Inner { id: DeviceId::new(), backend: Box::new(backend), pool, pipelines, cached });
        let device = Arc::downgrade(&inner);
        inner.backend.on_memory_pressure(Box::new(move |pressure| {
            if let Some(device) = device.upgrade() {
                device.relieve(pressure);
            }
        }));
        Self(inner)
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
        self.allocate_in(bytes, Storage::Automatic)
    }

    /// The same in memory of this kind, where the device has a choice.
    ///
    /// # Errors
    /// As [`Device::allocate`].
    pub fn allocate_in(&self, bytes: usize, storage: Storage) -> Result<Buffer> {
        self.check_size(bytes)?;
        let slot = self.0.pool.take(self.0.id, bytes, storage, |class| self.0.backend.allocate(class, storage))?;
        Ok(Buffer::new(slot, bytes))
    }

    /// Memory of exactly this size that is freed when dropped: for weights and caches.
    ///
    /// # Errors
    /// Out of memory, even after the pool's cache was freed.
    pub fn allocate_dedicated(&self, bytes: usize) -> Result<Buffer> {
        self.check_size(bytes)?;
        let raw = self.or_without_cache(|| self.0.backend.allocate(bytes, Storage::Automatic))?;
        Ok(Buffer::new(Slot::dedicated(self.0.id, raw), bytes))
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
    /// More than one buffer may have, or out of memory, even after the pool's cache was freed.
    pub fn adopt(&self, memory: HostMemory) -> Result<Buffer> {
        let bytes = memory.bytes().len();
        self.check_size(bytes)?;
        let raw = self.or_without_cache(|| self.0.backend.adopt(memory.clone()))?;
        Ok(Buffer::new(Slot::dedicated(self.0.id, raw), bytes))
    }

    /// Host memory as a buffer that kernels write, where it lies.
    ///
    /// # Errors
    /// More than one buffer may have, or a device whose kernels reach no host memory.
    pub fn adopt_mut(&self, memory: HostMemoryMut) -> Result<Buffer> {
        let bytes = memory.bytes();
        self.check_size(bytes)?;
        Ok(Buffer::new(Slot::dedicated(self.0.id, self.0.backend.adopt_mut(memory)?), bytes))
    }

    /// Memory that the backend's crate made a buffer of, such as another library's.
    ///
    /// # Errors
    /// More than one buffer may have.
    pub fn adopt_raw(&self, raw: RawBuffer) -> Result<Buffer> {
        let bytes = raw.bytes();
        self.check_size(bytes)?;
        Ok(Buffer::new(Slot::dedicated(self.0.id, raw), bytes))
    }

    /// No memory: what stands for some in a list, until that is moved [over](CommandList::over) other memory, or this is [placed](Buffer::place) there.
    pub fn stand_in(&self, bytes: usize, is_read_only: bool) -> Buffer {
        Buffer::new(Slot::dedicated(self.0.id, RawBuffer::new(StandIn::new(bytes, is_read_only))), bytes)
    }

    /// Memory of another device of this kind as a buffer of this one, where it lies.
    ///
    /// # Errors
    /// The two devices do not reach each other's memory.
    pub fn adopt_peer(&self, memory: &Buffer) -> Result<Buffer> {
        Ok(Buffer::new(Slot::dedicated(self.0.id, self.0.backend.adopt_peer(memory.raw())?), memory.bytes()))
    }

    /// Joins the devices of other processes: see [`Backend::join`].
    ///
    /// # Errors
    /// A process ended, or lacks what the devices exchange by.
    pub fn join(&self, peers: &dyn Peers) -> Result<Option<Arc<dyn Joined>>> {
        self.0.backend.join(peers)
    }

    /// Whether it is known that all that was submitted has completed.
    pub fn is_idle(&self) -> bool {
        self.0.backend.is_idle()
    }

    /// Copies into a buffer, after everything submitted before.
    ///
    /// # Errors
    /// A range outside the buffer, read-only memory, or a failed device.
    pub fn write(&self, buffer: &Buffer, offset: usize, bytes: &[u8]) -> Result<()> {
        check_writable(buffer)?;
        buffer.bind(offset, bytes.len())?;
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

    /// Lets the host change bytes of a buffer, after everything submitted before: where they lie if the host reaches them there, else a copy that is written
    /// back. `change` may ask nothing of the device.
    ///
    /// # Errors
    /// As [`Device::read`] and [`Device::write`].
    pub fn view_mut(&self, buffer: &Buffer, offset: usize, bytes: usize, change: &mut dyn FnMut(&mut [u8])) -> Result<()> {
        check_writable(buffer)?;
        buffer.bind(offset, bytes)?;
        self.0.backend.view_mut(buffer.raw(), offset, bytes, change)
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
        let made = self.prepare(source)?;
        let mut cache = self.0.pipelines.write().unwrap_or_else(PoisonError::into_inner);
        Ok(cache.entry(source.key.clone()).or_insert(made).clone())
    }

    /// What the crates above keep for this device to save time, one of each type, made when it is first asked for. When the system is about to end
    /// programs it goes, as soon as nothing holds it. It may not hold the device.
    pub fn cached<T: Any + Default + Send + Sync>(&self) -> Arc<T> {
        let of_type = |cached: &FastMap<_, Arc<dyn Any + Send + Sync>>| cached.get(&TypeId::of::<T>()).cloned().and_then(|it| it.downcast().ok());
        if let Some(found) = of_type(&self.0.cached.read().unwrap_or_else(PoisonError::into_inner)) {
            return found;
        }
        let mut cached = self.0.cached.write().unwrap_or_else(PoisonError::into_inner);
        of_type(&cached).unwrap_or_else(|| {
            let made = Arc::<T>::default();
            cached.insert(TypeId::of::<T>(), made.clone());
            made
        })
    }

    /// Waits until a kernel is prepared, where that was only begun; else its first launch waits.
    ///
    /// # Errors
    /// The kernel does not compile.
    pub fn ready(&self, kernel: &Pipeline) -> Result<()> {
        self.0.backend.ready(kernel)
    }

    /// A kernel prepared for an owner that keeps it: a user's, which no key distinguishes from others.
    ///
    /// # Errors
    /// The kernel does not compile.
    pub fn prepare(&self, source: &Arc<KernelSource>) -> Result<Pipeline> {
        Ok(self.0.backend.compile(source)?.of(self.0.id))
    }

    /// Does what the first start of a list would wait for.
    ///
    /// # Errors
    /// A kernel does not compile, or out of memory.
    pub fn prepare_list(&self, commands: &Arc<CommandList>) -> Result<()> {
        self.0.backend.prepare(commands)
    }

    /// Starts a recorded list.
    ///
    /// # Errors
    /// The list's memory is another device's, or the device is lost.
    pub fn submit(&self, commands: &Arc<CommandList>) -> Result<Completion> {
        self.check_own(commands)?;
        self.0.backend.submit(commands)
    }

    /// Starts a recorded list [over](CommandList::over) other memory: what is given in the place of each stand-in, all of which are listed.
    ///
    /// # Errors
    /// As [`CommandList::over`] and [`Device::submit`].
    pub fn submit_over(&self, commands: &CommandList, places: &[Buffer], given: &[Binding]) -> Result<Completion> {
        self.check_own(commands)?;
        let is_sure = commands.surely_takes(places, given)?;
        let done = if is_sure { self.0.backend.run_over(commands, places, given)? } else { None };
        done.map_or_else(|| self.0.backend.submit(&commands.moved(places, given, is_sure)?), Ok)
    }

    fn check_own(&self, commands: &CommandList) -> Result<()> {
        if commands.device().is_some_and(|device| device != self.0.id) {
            return Err(Error::invalid_argument("the commands were recorded for another device: record them again on this one"));
        }
        Ok(())
    }

    /// Times every command from now on, and drops what was timed before. This changes no result, but commands may take longer.
    ///
    /// # Errors
    /// The device cannot time its commands here; the message says what it needs.
    pub fn start_profile(&self) -> Result<()> {
        self.0.backend.start_profile()
    }

    /// Waits for everything submitted and times no more: what ran since [`Device::start_profile`], by start.
    ///
    /// # Errors
    /// What was timed cannot be matched with what was submitted, or was lost.
    pub fn end_profile(&self) -> Result<Vec<ProfileEvent>> {
        self.0.backend.end_profile()
    }

    fn check_size(&self, bytes: usize) -> Result<()> {
        let most = self.properties().max_buffer_bytes;
        if bytes > most {
            return Err(Error::out_of_memory(format!("a buffer of {bytes} bytes: {} allows at most {most}", self.properties().name)));
        }
        Ok(())
    }
}

fn check_writable(buffer: &Buffer) -> Result<()> {
    if buffer.raw().is_read_only() {
        return Err(Error::invalid_argument("cannot write to read-only host memory (adopted weights)"));
    }
    Ok(())
}
