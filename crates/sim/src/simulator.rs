//! The device: what Metal's device, queue, command buffer and completion are, on a CPU.

use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use elinvar_core::{Cache, Error, Result};
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::{
    abi::Record,
    arena::{Arena, MAX_BYTES},
    buffer::Buffer,
    compile::Compiler,
    library::{CompileOptions, Library, Source},
    loaded::Runtime,
    toolchain::Toolchain,
};

/// How a simulator is made.
#[derive(Clone, Debug)]
pub struct Config {
    /// The compiler; none: [`Toolchain::find`].
    pub toolchain: Option<Toolchain>,
    /// Where compiled kernels are kept; none: `$ELINVAR_CACHE`, else `elinvar` in the user's cache folder.
    pub cache_dir: Option<PathBuf>,
    /// Host threads that run dispatches of unchecked kernels (checked ones take one); none: as many as the machine has cores.
    pub threads: Option<usize>,
    /// Processor time one threadgroup may take.
    pub time_limit: Duration,
    /// Bytes of threadgroup memory that a threadgroup may have: as many as on every Apple GPU, or more for kernels that are planned for other GPUs.
    pub threadgroup_memory: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self { toolchain: None, cache_dir: None, threads: None, time_limit: Duration::from_secs(20), threadgroup_memory: 32 << 10 }
    }
}

/// A simulated Metal device. Clones are the same device.
#[derive(Clone)]
pub struct Simulator(pub(crate) Arc<Device>);

pub(crate) struct Device {
    pub(crate) compiler: Arc<Compiler>,
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) arena: Arc<Arena>,
    threads: usize,
    pool: OnceLock<ThreadPool>,
    pub(crate) time_limit: Duration,
    pub(crate) threadgroup_memory: usize,
    next_group: AtomicU64,
}

impl Simulator {
    /// Finds the compiler, and compiles the runtime unless that was done before.
    ///
    /// # Errors
    /// No compiler, or too old a one; a cache folder that cannot be written; address space rejected.
    pub fn new(config: Config) -> Result<Self> {
        let toolchain = config.toolchain.map_or_else(Toolchain::find, Ok)?;
        let cache = Cache::open(config.cache_dir.as_deref(), "sim")?;
        let compiler = Arc::new(Compiler::new(toolchain, cache)?);
        let runtime = Arc::new(Runtime::open(compiler.runtime())?);
        let threads = config.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from)).max(1);
        let next_group = AtomicU64::new(1);
        Ok(Self(Arc::new(Device {
            compiler,
            runtime,
            arena: Arena::shared()?,
            threads,
            pool: OnceLock::new(),
            time_limit: config.time_limit,
            threadgroup_memory: config.threadgroup_memory,
            next_group,
        })))
    }

    /// The largest buffer, in bytes.
    pub const MAX_BUFFER_BYTES: usize = MAX_BYTES;

    /// Host threads that run dispatches of unchecked kernels.
    pub fn threads(&self) -> usize {
        self.0.threads
    }

    /// The compiler it uses.
    pub fn toolchain(&self) -> &Toolchain {
        self.0.compiler.toolchain()
    }

    /// Reads a source: its kernels and their signatures.
    ///
    /// # Errors
    /// The text cannot be read: the message names the source's own line.
    pub fn library(&self, source: &Source, options: &CompileOptions) -> Result<Library> {
        Library::new(self.0.compiler.clone(), source, options)
    }

    /// Reads Metal libraries that Apple's compiler has made: a `.metallib`, or a file that holds some. Of the options, those about arithmetic and checks
    /// count; `name` is what messages and findings call the file, whose lines are those of a function's disassembly.
    ///
    /// # Errors
    /// The file holds no library, or one that contradicts itself.
    pub fn compiled_library(&self, name: &str, file: impl Into<Arc<[u8]>>, options: &CompileOptions) -> Result<Library> {
        Library::of_compiled(self.0.compiler.clone(), name, file.into(), options)
    }

    /// Memory that is uninitialised to checked kernels (and holds zeros).
    ///
    /// # Errors
    /// More than the simulator can give.
    pub fn buffer(&self, name: &str, bytes: usize) -> Result<Buffer> {
        Buffer::new(&self.0.arena, name, bytes)
    }

    /// Memory with contents.
    ///
    /// # Errors
    /// As [`Simulator::buffer`].
    pub fn buffer_with(&self, name: &str, contents: &[u8]) -> Result<Buffer> {
        let buffer = self.buffer(name, contents.len())?;
        buffer.write(0, contents)?;
        Ok(buffer)
    }
}

impl Device {
    /// Threads that share unchecked dispatches; none where there would be one.
    pub(crate) fn pool(&self) -> Result<Option<&ThreadPool>> {
        static MAKING: Mutex<()> = Mutex::new(());
        if self.threads == 1 {
            return Ok(None);
        }
        let _making = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
        if self.pool.get().is_none() {
            let named = ThreadPoolBuilder::new().num_threads(self.threads).thread_name(|number| format!("metal-sim {number}"));
            let pool = named.build().map_err(|cause| Error::out_of_memory(format!("{} simulator threads were rejected: {cause}", self.threads)))?;
            return Ok(Some(self.pool.get_or_init(|| pool)));
        }
        Ok(self.pool.get())
    }

    /// Sequence numbers for so many threadgroups: the first. They are unique, and none is a multiple of the era's length.
    pub(crate) fn sequence(&self, groups: u64) -> Result<u64> {
        if groups >= Record::GROUPS {
            return Err(Error::unsupported(format!(
                "{groups} threadgroups in one checked dispatch; at most {} can be distinguished: check a smaller grid",
                Record::GROUPS - 1
            )));
        }
        let place = |next: u64| if next % Record::GROUPS + groups < Record::GROUPS { next } else { (next / Record::GROUPS + 1) * Record::GROUPS + 1 };
        let before = self.next_group.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| Some(place(next) + groups));
        Ok(place(before.unwrap_or_else(|now| now)))
    }
}
