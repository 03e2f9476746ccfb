//! Metal's objects as the simulator offers them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    thread,
    time::Instant,
};

use elinvar_core::{Error, HostMemory, KernelSource, METAL_VERSION, MemoryInfo, MemoryPressure, Metal, MetalCode, PipelineInfo, Relief, Result};
use elinvar_msl::ParameterKind;
use elinvar_sim::{
    Binding, Buffer, CommandBuffer, CompileOptions, Config, Counters, Dispatch, Library, Math, Output, Pipeline, Queue, Report, Simulator, Source,
    Subnormals,
};

use crate::{
    MetalBackend,
    api::{Api, DeviceInfo, Done, Kernel, Launch, LibrarySource, StorageMode},
    backend::STRICT,
    chips::Gpu,
};

/// Decides the order of threads and threadgroups; 0 is the natural one. Clones are the same: a device can be given another schedule while it lives.
#[derive(Clone, Debug, Default)]
pub struct Seed(Arc<AtomicU64>);

impl Seed {
    /// For the command lists submitted from now on.
    pub fn set(&self, seed: u64) {
        self.0.store(seed, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counts what checked kernels ask of a GPU. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Meter(Arc<Mutex<Counters>>);

impl Meter {
    /// What was counted since the last call.
    pub fn take(&self) -> Counters {
        std::mem::take(&mut *self.counted())
    }

    fn counted(&self) -> MutexGuard<'_, Counters> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The simulated system's memory pressure, which tests raise. Clones are the same.
#[derive(Clone, Default)]
pub struct SystemMemory(Arc<Mutex<Vec<Weak<Relief>>>>);

impl SystemMemory {
    /// Notifies every device that lives.
    pub fn raise(&self, pressure: MemoryPressure) {
        let watching: Vec<_> = self.watching().iter().filter_map(Weak::upgrade).collect();
        watching.iter().for_each(|relieve| relieve(pressure));
    }

    fn watch(&self, relieve: Relief) -> Arc<Relief> {
        let relieve = Arc::new(relieve);
        let mut watching = self.watching();
        watching.retain(|known| known.strong_count() > 0);
        watching.push(Arc::downgrade(&relieve));
        relieve
    }

    fn watching(&self) -> MutexGuard<'_, Vec<Weak<Relief>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for SystemMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SystemMemory({} devices)", self.watching().len())
    }
}

/// How the simulated device runs kernels.
#[derive(Clone, Debug)]
pub struct SimulatorOptions {
    /// The GPU that launches are planned for: its cores. It changes neither the bits nor what is checked.
    pub gpu: Gpu,
    /// Check every access; otherwise kernels run faster, and only their results show a fault.
    pub checked: bool,
    /// What becomes of subnormal numbers: Apple's GPUs flush those of f32 and bf16.
    pub subnormals: Subnormals,
    /// The schedule.
    pub seed: Seed,
    /// The most threads that a pipeline says its threadgroups may have, unless more were asked for when it was made: what a kernel that needs many
    /// registers gets of a real device.
    pub max_threads: usize,
    /// Whether the device says that it shares the host's memory; otherwise the host reaches most buffers through copies alone.
    pub unified_memory: bool,
    /// What kernels do is counted here.
    pub meter: Meter,
    /// Where notices of memory pressure come from.
    pub system_memory: SystemMemory,
    /// The simulator's own configuration.
    pub config: Config,
}

impl Default for SimulatorOptions {
    fn default() -> Self {
        // The smallest GPU of a Mac.
        let (gpu, _) = Gpu::identify("Apple M1", None, None);
        Self {
            gpu,
            checked: true,
            subnormals: Subnormals::Keep,
            seed: Seed::default(),
            max_threads: 1024,
            unified_memory: true,
            meter: Meter::default(),
            system_memory: SystemMemory::default(),
            config: Config::default(),
        }
    }
}

/// A simulated device with its queue.
pub struct Simulated {
    simulator: Simulator,
    queue: Queue,
    options: SimulatorOptions,
    opened: Instant,
    /// When the last command buffer that has completed did so, in nanoseconds since the device was opened.
    idle_since: Arc<AtomicU64>,
}

impl Simulated {
    /// A device.
    ///
    /// # Errors
    /// No compiler, with advice how to install one; or the system rejects memory or threads.
    pub fn new(options: SimulatorOptions) -> Result<Self> {
        let simulator = Simulator::new(options.config.clone())?;
        let queue = simulator.queue()?;
        Ok(Self { simulator, queue, options, opened: Instant::now(), idle_since: Arc::default() })
    }
}

impl MetalBackend<Simulated> {
    /// Compiles kernels of the library into the cache, those of one text together: much less work than one after the other.
    ///
    /// # Errors
    /// A text that does not compile.
    pub fn compile_all(&self, kernels: &[Arc<KernelSource>]) -> Result<()> {
        let mut texts = BTreeMap::<_, BTreeSet<_>>::new();
        for kernel in kernels {
            if let Some(form) = kernel.metal.as_ref().and_then(Metal::form) {
                let strict = if form.fast_math { "" } else { STRICT };
                let text = strict.to_owned() + &form.text(|file| self.text_of(file));
                texts.entry((form.fast_math, text)).or_default().insert((kernel.key.to_string(), form.instance(&kernel.key)));
            }
        }
        let (texts, next) = (texts.into_iter().collect::<Vec<_>>(), AtomicUsize::new(0));
        let work = || {
            while let Some(((fast_math, text), instances)) = texts.get(next.fetch_add(1, Ordering::Relaxed)) {
                let names: Vec<&str> = instances.iter().map(|(name, _)| name.as_str()).collect();
                let code = MetalCode::Text(text.clone() + &instances.iter().map(|(_, instance)| instance.as_str()).collect::<String>());
                let name = names.first().copied().unwrap_or_default();
                self.api.library(LibrarySource { name, code: &code, fast_math: *fast_math, version: METAL_VERSION })?.compile_all(&names, &[])?;
            }
            Ok(())
        };
        let ended = |worker: thread::ScopedJoinHandle<'_, Result<()>>| {
            worker.join().unwrap_or_else(|_| Err(Error::compile_failed("a compiling thread panicked")))
        };
        thread::scope(|scope| {
            let workers: Vec<_> = (0..thread::available_parallelism().map_or(1, usize::from)).map(|_| scope.spawn(work)).collect();
            workers.into_iter().map(ended).collect::<Result<Vec<()>>>()
        })?;
        Ok(())
    }
}

/// Findings as an error: the first of them in full, and how many there are.
fn verdict(outcome: Result<Arc<Report>>) -> Result<()> {
    let report = outcome?;
    match report.findings.as_slice() {
        [] => Ok(()),
        [only] => Err(Error::invalid_launch(only.to_string())),
        [first, rest @ ..] => Err(Error::invalid_launch(format!("{first} (and {} other findings)", rest.len()))),
    }
}

/// The buffer, if the host may reach it.
fn shared(buffer: &(Buffer, StorageMode)) -> Result<&Buffer> {
    match buffer {
        (buffer, StorageMode::Shared) => Ok(buffer),
        (_, StorageMode::Private) => Err(Error::invalid_argument("the host reads or writes a private buffer")),
    }
}

fn no_archive() -> Error {
    Error::unsupported("the simulator has no binary archives")
}

impl Api for Simulated {
    type Buffer = (Buffer, StorageMode);
    type Library = Library;
    /// With the most threads of a threadgroup.
    type Pipeline = (Pipeline, usize);
    /// There is none: the simulator keeps what it compiles itself.
    type Archive = ();
    /// There is none: all memory is at hand.
    type ResidencySet = ();
    type PressureWatch = Arc<Relief>;
    /// There is none.
    type Capture = ();
    type CommandBuffer = CommandBuffer;

    fn info(&self) -> DeviceInfo {
        let checks = if self.options.checked { "checked" } else { "unchecked" };
        DeviceInfo {
            name: format!("Metal simulator ({checks}) of an {}, {}", self.options.gpu, self.simulator.toolchain().describe()),
            system: String::new(),
            family: None,
            compute_units: self.options.gpu.cores,
            assumed: None,
            threadgroup_memory: self.options.config.threadgroup_memory,
            max_threads: 1024,
            max_buffer_bytes: Simulator::MAX_BUFFER_BYTES,
            unified_memory: self.options.unified_memory,
        }
    }

    fn memory(&self) -> MemoryInfo {
        MemoryInfo::of_host()
    }

    fn watch_pressure(&self, relieve: Relief) -> Arc<Relief> {
        self.options.system_memory.watch(relieve)
    }

    fn capture(&self, _file: &Path) -> Result<()> {
        Err(Error::unsupported("the simulator captures nothing: `elinvar check` shows what a kernel does there"))
    }

    fn buffer(&self, bytes: usize, mode: StorageMode, _label: &str) -> Result<Self::Buffer> {
        Ok((self.simulator.buffer("buffer", bytes)?, mode))
    }

    /// A copy that lies in its buffer as the memory lies in its pages, so that a kernel which loses its place reads what nothing wrote.
    fn adopt(&self, memory: HostMemory) -> Result<Option<(Self::Buffer, usize)>> {
        const PAGE: usize = 16 << 10;
        let start = memory.bytes().as_ptr().addr() % PAGE;
        let buffer = self.simulator.buffer("adopted memory", start + memory.bytes().len())?;
        buffer.write(start, memory.bytes())?;
        Ok(Some(((buffer, StorageMode::Shared), start)))
    }

    fn residency_set(&self) -> Option<()> {
        None
    }

    fn add_resident(&self, (): &(), _buffer: &Self::Buffer) {}

    fn remove_resident(&self, (): &(), _buffer: &Self::Buffer) {}

    fn commit_residency(&self, (): &()) {}

    fn request_residency(&self, (): &()) {}

    fn write(&self, buffer: &Self::Buffer, offset: usize, bytes: &[u8]) -> Result<()> {
        shared(buffer)?.write(offset, bytes)
    }

    fn read(&self, buffer: &Self::Buffer, offset: usize, bytes: &mut [u8]) -> Result<()> {
        shared(buffer)?.read(offset, bytes)
    }

    fn library(&self, source: LibrarySource<'_>) -> Result<Library> {
        let math = if source.fast_math { Math::Fast } else { Math::Safe };
        let CompileOptions { include_dirs, defines, .. } = CompileOptions::default();
        let SimulatorOptions { checked, subnormals, .. } = self.options;
        let options = CompileOptions { include_dirs, defines, metal_version: source.version, math, subnormals, checked };
        match source.code {
            MetalCode::Text(text) => self.simulator.library(&Source::new(source.name, text), &options),
            MetalCode::Library(library) => self.simulator.compiled_library(source.name, library.bytes().clone(), &options),
        }
    }

    fn view(&self, buffer: &Self::Buffer, offset: usize, bytes: usize, see: &mut dyn FnMut(&[u8])) -> Result<()> {
        let mut copy = vec![0; bytes];
        shared(buffer)?.read(offset, &mut copy)?;
        see(&copy);
        Ok(())
    }

    fn pipeline(&self, kernel: Kernel<'_, Library>, _archive: Option<&()>) -> Result<Self::Pipeline> {
        let most = kernel.threads.unwrap_or(self.options.max_threads);
        Ok((kernel.library.pipeline(kernel.name, kernel.constants)?, most))
    }

    fn archive(&self, _file: Option<&Path>) -> Result<()> {
        Err(no_archive())
    }

    fn add(&self, (): &(), _kernel: Kernel<'_, Library>) -> Result<()> {
        Err(no_archive())
    }

    fn save(&self, (): &(), _file: &Path) -> Result<()> {
        Err(no_archive())
    }

    fn pipeline_info(&self, &(_, max_threads): &Self::Pipeline) -> PipelineInfo {
        PipelineInfo { execution_width: 32, max_threads, threadgroup_memory: 0 }
    }

    fn command_buffer(&self, _label: &str) -> Result<CommandBuffer> {
        Ok(CommandBuffer::with_seed(self.options.seed.get()))
    }

    fn launch(&self, commands: &mut CommandBuffer, launch: &Launch<'_, Self>) -> Result<()> {
        let (pipeline, most) = launch.pipeline;
        if launch.threadgroup.count() > *most as u128 {
            return Err(Error::invalid_launch(format!("{} threads in a threadgroup of a pipeline for at most {most}", launch.threadgroup.count())));
        }
        let mut dispatch = Dispatch::new(pipeline, launch.grid, launch.threadgroup.0);
        for bound in &launch.buffers {
            let output = if bound.output { Output::Whole } else { Output::Free };
            let binding = Binding::new(bound.index as u32, &bound.buffer.0).range(bound.offset, bound.bytes).output(output);
            dispatch = dispatch.with(binding);
        }
        let takes =
            |index| pipeline.kernel().parameters.iter().any(|p| matches!(p.kind, ParameterKind::Buffer { index: at, .. } if at as usize == index));
        if let Some((index, bytes)) = launch.bytes.filter(|(index, _)| takes(*index)) {
            dispatch = dispatch.with_bytes(index as u32, bytes);
        }
        for &(index, bytes) in &launch.threadgroup_memory {
            dispatch = dispatch.with_threadgroup_memory(index as u32, bytes);
        }
        commands.dispatch(dispatch)
    }

    fn barrier(&self, commands: &mut CommandBuffer) {
        commands.barrier();
    }

    fn copy(&self, commands: &mut CommandBuffer, from: (&Self::Buffer, usize), to: (&Self::Buffer, usize), bytes: usize) -> Result<()> {
        commands.copy(&from.0.0, from.1, &to.0.0, to.1, bytes)
    }

    fn fill(&self, commands: &mut CommandBuffer, to: (&Self::Buffer, usize), bytes: usize, value: u8) -> Result<()> {
        commands.fill(&to.0.0, to.1, bytes, value)
    }

    /// The times are the simulator's own: a command buffer begins when it is committed and the one before has completed.
    fn commit(&self, mut commands: CommandBuffer, done: Done) {
        commands.barrier();
        let (opened, idle_since) = (self.opened, self.idle_since.clone());
        let now = move || u64::try_from(opened.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let committed = now();
        let meter = self.options.meter.clone();
        self.queue.submit_then(commands, move |outcome| {
            if let Ok(report) = &outcome {
                *meter.counted() += report.counters;
            }
            let end = now();
            let start = committed.max(idle_since.swap(end, Ordering::Relaxed));
            done(verdict(outcome).map(|()| start..end));
        });
    }
}
