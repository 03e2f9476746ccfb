use std::{
    any::Any,
    collections::VecDeque,
    ffi::c_void,
    panic::{self, AssertUnwindSafe},
    path::Path,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
};

use cudarc::driver::sys::CUdevice_attribute as Attribute;
use elinvar_core::{
    Backend, CommandList, Completion, DType, DeviceKind, DeviceProperties, ERROR_FLAG_BYTES, InFlight, Joined, KernelSource, MemoryInfo, Peers,
    Pipeline, ProfileEvent, RawBuffer, Reading, Result, Storage,
};
use elinvar_kernels::cuda::{CudaFeatures, CudaForm};
use elinvar_msl::cuda::Threadgroups;

use crate::{
    commands::{Target, kernels, rejecting},
    compile::{Code, Compiler},
    cupti::Cupti,
    driver::{self, Context, Driver, Lent},
    graph::{Graph, Seen, Turn},
    host_copy::HostCopy,
    kernel::{Begin, Forms, Function, Kernel, Pending},
    memory::{Memory, Pieces},
    nvtx,
    order::StreamOrder,
    products::{self, Products},
    profile::Profile,
    staging::Staging,
    submission::{Arriving, ErrorFlags, Submission},
};

/// An NVIDIA GPU.
pub struct CudaBackend {
    context: Arc<Context>,
    compiler: Arc<Compiler>,
    products: Arc<Products>,
    host_copy: HostCopy,
    properties: DeviceProperties,
    capability: u32,
    driver: i32,
    pieces: Arc<Pieces>,
    jobs: Arc<Jobs>,
    queue: Mutex<Queue>,
}

/// What the order of the stream belongs to.
#[derive(Default)]
struct Queue {
    // Graphs go before what they use.
    seen: Seen<Graph>,
    in_flight: InFlight<Submission>,
    staging: Staging,
    /// The profile that is being taken.
    profile: Option<Profile>,
}

impl CudaBackend {
    /// Whether device 0 can be opened here.
    ///
    /// # Errors
    /// Why not: no driver, one that is too old, no device, no compiler; and what to do.
    pub fn is_available() -> Result<()> {
        Self::new(0).map(drop)
    }

    /// Whether there is a GPU of NVIDIA's or a driver for one: if so, a device that cannot be opened is news.
    pub fn is_expected() -> bool {
        driver::is_expected()
    }

    /// Device `ordinal`, counted from 0 as `CUDA_VISIBLE_DEVICES` leaves them.
    ///
    /// # Errors
    /// As [`CudaBackend::is_available`]; no such device.
    pub fn new(ordinal: usize) -> Result<Self> {
        Self::with_compiler(ordinal, Compiler::new)
    }

    /// Device `ordinal` in the order of a stream that another library made on its primary context: so neither waits for the other.
    ///
    /// # Safety
    /// The stream lives as long as `owner`. If it stands for another one in each thread (`CU_STREAM_PER_THREAD`), one thread alone uses the device and drops it.
    ///
    /// # Errors
    /// As [`CudaBackend::new`].
    pub unsafe fn on_stream(ordinal: usize, stream: *mut c_void, owner: Arc<dyn Any + Send + Sync>) -> Result<Self> {
        Self::open(ordinal, Compiler::new, Some(Lent { stream, owner }))
    }

    /// The order of its stream with those of other libraries.
    pub fn order(&self) -> StreamOrder {
        StreamOrder::of(&self.context)
    }

    /// Memory of another library's at the device's address `pointer`, for [`Device::adopt_raw`](elinvar_core::Device::adopt_raw).
    ///
    /// # Safety
    /// Until `mark` is dropped, the bytes belong to the device that uses them, in the order of its stream: they are not freed, nor written elsewhere, nor read
    /// elsewhere unless `is_read_only`. The device drops the mark when the work is submitted, not when it is done.
    pub unsafe fn lend(pointer: u64, bytes: usize, is_read_only: bool, mark: Arc<dyn Any + Send + Sync>) -> RawBuffer {
        RawBuffer::new(Memory::lent(pointer, bytes, is_read_only, mark))
    }

    /// The same with a compiler of the caller's, made for the cache folder given (none means the user's).
    ///
    /// # Errors
    /// As [`CudaBackend::new`].
    pub fn with_compiler(ordinal: usize, compiler: impl FnOnce(Option<&Path>) -> Result<Compiler>) -> Result<Self> {
        Self::open(ordinal, compiler, None)
    }

    fn open(ordinal: usize, compiler: impl FnOnce(Option<&Path>) -> Result<Compiler>, lent: Option<Lent>) -> Result<Self> {
        let driver = Driver::open()?;
        let compiler = compiler(None)?;
        let context = Context::open(&driver, ordinal, lent)?;
        let ask = |attribute| context.attribute(attribute).map(|value| usize::try_from(value).unwrap_or(0));
        let major = ask(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
        let capability = (10 * major + ask(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?) as u32;
        compiler.check_architecture(capability)?;
        let properties = DeviceProperties {
            kind: DeviceKind::Cuda,
            name: context.name()?,
            compute_units: ask(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            simd_width: 32,
            max_threads_per_threadgroup: 1024,
            threadgroup_memory: ask(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
            max_buffer_bytes: context.memory()?[1],
            unified_memory: false,
            dtypes: DType::ALL,
            features: CudaFeatures::of(capability, products::is_present()),
        };
        let (compiler, jobs) = (Arc::new(compiler), Arc::new(Jobs::default()));
        let copying = [false, true].map(|takes| {
            let compiler = compiler.clone();
            jobs.function(&context, HostCopy::SYMBOL.to_owned(), move || HostCopy::code(&compiler, takes, capability))
        });
        let host_copy = HostCopy::new(&context, copying);
        Ok(Self {
            products: Arc::new(Products::new(context.clone())),
            host_copy,
            context,
            compiler,
            properties,
            capability,
            driver: driver.version,
            pieces: Arc::default(),
            jobs,
            queue: Mutex::default(),
        })
    }

    /// Devices the driver sees.
    ///
    /// # Errors
    /// No driver; one that is too old; no device.
    pub fn count() -> Result<usize> {
        Driver::open().map(|driver| usize::try_from(driver.devices).unwrap_or(0))
    }

    /// The other devices whose memory the kernels of device `ordinal` reach.
    ///
    /// # Errors
    /// As [`CudaBackend::count`]; no such device.
    pub fn peers(ordinal: usize) -> Result<Vec<usize>> {
        let mut peers = Vec::new();
        for other in (0..Self::count()?).filter(|other| *other != ordinal) {
            if driver::reaches([ordinal as i32, other as i32])? {
                peers.push(other);
            }
        }
        Ok(peers)
    }

    /// The device's compute capability, and the versions of what drives it and compiles for it.
    pub fn software(&self) -> String {
        let ([major, minor], capability) = (self.compiler.version(), self.capability);
        let library = if self.properties.features().is_some_and(|cuda: &CudaFeatures| cuda.matrix_library) { "cuBLASLt" } else { "no cuBLASLt" };
        let driver = driver::shown(self.driver);
        format!("compute capability {}.{}, driver for CUDA {driver}, NVRTC {major}.{minor}, {library}", capability / 10, capability % 10)
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a list's commands one by one.
    fn start(&self, commands: &CommandList) -> Result<Option<ErrorFlags>> {
        let rejecting: Arc<[Pipeline]> = rejecting(commands).into();
        let words = if rejecting.is_empty() { None } else { Some(Memory::zeros(&self.context, ERROR_FLAG_BYTES * rejecting.len())?) };
        self.context.suspect(kernels(commands));
        let target = Target { context: &self.context, stream: self.context.stream(), products: &self.products, words: words.as_ref() };
        target.run(commands)?;
        self.fetch(words.as_ref(), &rejecting)
    }

    /// Starts a list's graph.
    fn replay(&self, graph: &Graph) -> Result<Option<ErrorFlags>> {
        self.context.suspect(graph.kernels.clone());
        graph.launch()?;
        self.fetch(graph.words.as_ref(), &graph.rejecting)
    }

    /// Has the words of the launches that may reject moved to the host.
    fn fetch(&self, words: Option<&Memory>, kernels: &Arc<[Pipeline]>) -> Result<Option<ErrorFlags>> {
        let Some(words) = words else { return Ok(None) };
        let piece = self.pieces.take(&self.context, ERROR_FLAG_BYTES * kernels.len())?;
        let rejections = ErrorFlags { words: piece, kernels: kernels.clone(), pieces: self.pieces.clone() };
        self.host_copy.take(words.pointer, &rejections.words, rejections.bytes())?;
        Ok(Some(rejections))
    }
}

impl Backend for CudaBackend {
    fn properties(&self) -> &DeviceProperties {
        &self.properties
    }

    fn memory(&self) -> MemoryInfo {
        let [available, total] = self.context.memory().unwrap_or([0, self.properties.max_buffer_bytes]);
        MemoryInfo { total, available }
    }

    fn allocate(&self, bytes: usize, _storage: Storage) -> Result<RawBuffer> {
        Ok(RawBuffer::new(Memory::new(&self.context, bytes)?))
    }

    fn write(&self, buffer: &RawBuffer, offset: usize, bytes: &[u8]) -> Result<()> {
        let to = buffer.downcast::<Memory>()?.pointer + offset as u64;
        let mut queue = self.queue();
        self.context.enter()?;
        queue.staging.write(&self.context, to, bytes)
    }

    fn read(&self, buffer: &RawBuffer, offset: usize, bytes: &mut [u8]) -> Result<()> {
        if bytes.len() <= Staging::PIECE {
            // Others may submit while the bytes are in flight.
            bytes.copy_from_slice(&self.read_later(buffer, offset, bytes.len())?.wait()?);
            return self.queue().in_flight.settle_completed();
        }
        let from = buffer.downcast::<Memory>()?.pointer + offset as u64;
        let mut queue = self.queue();
        self.context.enter()?;
        queue.staging.read(&self.context, from, bytes)?;
        queue.in_flight.settle()
    }

    fn read_later(&self, buffer: &RawBuffer, offset: usize, bytes: usize) -> Result<Reading> {
        let from = buffer.downcast::<Memory>()?.pointer + offset as u64;
        let mut queue = self.queue();
        self.context.enter()?;
        let piece = self.pieces.take(&self.context, bytes)?;
        self.host_copy.copy(from, &piece, bytes)?;
        if let Some(profile) = &mut queue.profile {
            profile.read(bytes);
        }
        let done = Arc::new(Submission::new(&self.context, None)?);
        let arriving = Arriving::new(piece, bytes, self.pieces.clone(), done.clone());
        Ok(Reading::new(Completion::new(done), move || arriving.take()))
    }

    fn adopt_peer(&self, memory: &RawBuffer) -> Result<RawBuffer> {
        Memory::of_peer(&self.context, memory).map(RawBuffer::new)
    }

    fn join(&self, peers: &dyn Peers) -> Result<Option<Arc<dyn Joined>>> {
        Ok(Some(self.context.join(peers)?))
    }

    /// Returns before the kernel is compiled: its first launch waits, and fails if it does not compile. So the kernels of a recording
    /// are compiled side by side.
    fn compile(&self, kernel: &Arc<KernelSource>) -> Result<Pipeline> {
        if let Some(CudaForm::MatrixProduct) = kernel.native() {
            let products = self.products.clone();
            // The first launch reports errors.
            self.jobs.start(move || drop(products.prepare()));
            return Ok(Pipeline::new(kernel.clone(), Arc::new(Kernel::Product)));
        }
        if let Some(CudaForm::AllGather) = kernel.native() {
            return Ok(Pipeline::new(kernel.clone(), Arc::new(Kernel::Gather)));
        }
        let begin = |threadgroups| -> Begin {
            let (source, compiler, capability) = (kernel.clone(), self.compiler.clone(), self.capability);
            let (jobs, context) = (self.jobs.clone(), self.context.clone());
            Box::new(move || jobs.function(&context, source.key.to_string(), move || compiler.compile(&source, threadgroups, capability)))
        };
        let forms = Forms::new(begin(Threadgroups::Uniform)(), begin(Threadgroups::Nonuniform));
        Ok(Pipeline::new(kernel.clone(), Arc::new(Kernel::Function(forms))))
    }

    fn ready(&self, kernel: &Pipeline) -> Result<()> {
        match kernel.state() {
            Some(Kernel::Function(forms)) => forms.of(Threadgroups::Uniform).wait(|code| Function::load(&self.context, code)).map(drop),
            _ => Ok(()),
        }
    }

    /// As a graph, which is recorded and kept: to launch its commands one by one could wait for the driver, which loads code at first use.
    fn prepare(&self, commands: &Arc<CommandList>) -> Result<()> {
        let mut queue = self.queue();
        self.context.enter()?;
        let graph = Graph::record(&self.context, &self.products, commands)?;
        queue.seen.add(commands, graph);
        Ok(())
    }

    fn submit(&self, commands: &Arc<CommandList>) -> Result<Completion> {
        let mut queue = self.queue();
        let _range = nvtx::range(commands);
        self.context.enter()?;
        let rejections = match queue.seen.turn(commands) {
            Turn::Commands => self.start(commands)?,
            Turn::Record => {
                let graph = Graph::record(&self.context, &self.products, commands)?;
                let rejections = self.replay(&graph)?;
                queue.seen.keep(graph);
                rejections
            }
            Turn::Replay => match queue.seen.graph() {
                Some(graph) => self.replay(graph)?,
                None => self.start(commands)?,
            },
        };
        let read = rejections.as_ref().map_or(0, ErrorFlags::bytes);
        let submission = if commands.has_stand_ins() && rejections.is_none() {
            Arc::new(Submission::unmarked(&self.context))
        } else {
            let submission = Arc::new(Submission::new(&self.context, rejections)?);
            queue.in_flight.push(submission.clone());
            submission
        };
        if let Some(profile) = &mut queue.profile {
            profile.list(&self.context, commands)?;
            profile.read(read);
        }
        Ok(Completion::new(submission))
    }

    fn start_profile(&self) -> Result<()> {
        let mut queue = self.queue();
        self.context.enter()?;
        let cupti = Cupti::find()?;
        self.context.synchronize()?;
        cupti.start(self.context.device.cast_unsigned())?;
        if queue.profile.replace(Profile::default()).is_none() {
            // CUPTI may know nothing of the kernels of a graph that was made without it.
            queue.seen = Seen::default();
        }
        Ok(())
    }

    fn end_profile(&self) -> Result<Vec<ProfileEvent>> {
        let mut queue = self.queue();
        let Some(profile) = queue.profile.take() else { return Ok(Vec::new()) };
        let done = self.context.enter().and_then(|()| self.context.synchronize());
        // Nor need those that were made with it be as fast without.
        queue.seen = Seen::default();
        let records = Cupti::find()?.end(self.context.device.cast_unsigned());
        done?;
        profile.events(records?)
    }
}

impl Drop for CudaBackend {
    fn drop(&mut self) {
        // Compilers must not run on while the process ends.
        self.jobs.finish();
    }
}

/// Threads beside the caller's, as many at a time as there are cores.
#[derive(Default)]
struct Jobs {
    running: Mutex<usize>,
    waiting: Mutex<VecDeque<Job>>,
    ended: Condvar,
}

type Job = Box<dyn FnOnce() + Send>;

impl Jobs {
    /// A function that is compiled and loaded beside the caller.
    fn function(
        self: &Arc<Self>,
        context: &Arc<Context>,
        name: String,
        compile: impl FnOnce() -> Result<Code> + Send + 'static,
    ) -> Arc<Pending<Function>> {
        let pending = Arc::new(Pending::default());
        let (kernel, context) = (pending.clone(), context.clone());
        self.start(move || kernel.make(&name, compile, |code| Function::load(&context, code)));
        pending
    }

    fn start(self: &Arc<Self>, job: impl FnOnce() + Send + 'static) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).push_back(Box::new(job));
        let most = thread::available_parallelism().map_or(1, usize::from);
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if *running < most {
            *running += 1;
            let jobs = self.clone();
            drop(running);
            let worker = jobs.clone();
            // A system that gives no thread has the caller do the work.
            if thread::Builder::new().name("elinvar-compile".into()).spawn(move || worker.work()).is_err() {
                jobs.work();
            }
        }
    }

    fn work(&self) {
        loop {
            // A thread that finds nothing to do leaves under the lock, so that no job is left behind.
            let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(job) = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front() else {
                *running -= 1;
                self.ended.notify_all();
                return;
            };
            drop(running);
            // A panic has been printed; threads that wait for the end must not wait for ever.
            let _ = panic::catch_unwind(AssertUnwindSafe(job));
        }
    }

    /// Drops what has not begun and waits for the rest.
    fn finish(&self) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).clear();
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        while *running > 0 {
            running = self.ended.wait(running).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            atomic::{AtomicUsize, Ordering},
            mpsc,
        },
        time::Duration,
    };

    use super::*;

    #[test]
    fn every_job_is_done_and_finishing_waits_for_those_that_run() {
        let (jobs, done) = (Arc::new(Jobs::default()), Arc::new(AtomicUsize::new(0)));
        let (sender, receiver) = mpsc::channel();
        for _ in 0..50 {
            let (done, sender) = (done.clone(), sender.clone());
            jobs.start(move || {
                done.fetch_add(1, Ordering::Relaxed);
                sender.send(()).unwrap();
            });
        }
        (0..50).for_each(|_| receiver.recv().unwrap());
        let late = done.clone();
        jobs.start(move || {
            thread::sleep(Duration::from_millis(20));
            late.fetch_add(1, Ordering::Relaxed);
        });
        while !jobs.waiting.lock().unwrap().is_empty() {
            thread::yield_now();
        }
        jobs.finish();
        assert_eq!(done.load(Ordering::Relaxed), 51);
        assert_eq!(*jobs.running.lock().unwrap(), 0);
    }

    #[test]
    fn a_job_that_panics_leaves_no_thread_waiting() {
        let jobs = Arc::new(Jobs::default());
        (0..50).for_each(|_| jobs.start(|| panic!("a job that fails")));
        let (sender, receiver) = mpsc::channel();
        let last = sender.clone();
        jobs.start(move || last.send("done").unwrap());
        let received = || receiver.recv_timeout(Duration::from_secs(60));
        assert_eq!(received(), Ok("done"));
        thread::spawn(move || {
            jobs.finish();
            sender.send("finished").unwrap();
        });
        assert_eq!(received(), Ok("finished"));
    }
}
