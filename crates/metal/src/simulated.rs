//! Metal's objects as the simulator offers them.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use elinvar_core::{ConstantValue, Error, MemoryInfo, Result};
use elinvar_msl::ParameterKind;
use elinvar_sim::{
    Binding, Buffer, CommandBuffer, CompileOptions, Config, Dispatch, Grid, Library, Math, Output, Pipeline, Queue, Report, Simulator, Source,
};

use crate::api::{Api, Facts, Launch, LibrarySource, PipelineFacts};

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

/// How the simulated device runs kernels.
#[derive(Clone, Debug)]
pub struct SimulatorOptions {
    /// Check every access; otherwise kernels run faster and only their results can tell.
    pub checked: bool,
    /// The schedule.
    pub seed: Seed,
    /// The simulator's own configuration.
    pub config: Config,
}

impl Default for SimulatorOptions {
    fn default() -> Self {
        Self { checked: true, seed: Seed::default(), config: Config::default() }
    }
}

/// A simulated device with its queue.
pub struct Simulated {
    simulator: Simulator,
    queue: Queue,
    options: SimulatorOptions,
    /// Bound where an optional buffer is absent: not one byte of it may be touched.
    nothing: Buffer,
}

impl Simulated {
    /// A device.
    ///
    /// # Errors
    /// No compiler, with advice how to install one; or the system refuses memory or threads.
    pub fn new(options: SimulatorOptions) -> Result<Self> {
        let simulator = Simulator::new(options.config.clone())?;
        let (queue, nothing) = (simulator.queue()?, simulator.buffer("absent buffer", 1)?);
        Ok(Self { simulator, queue, options, nothing })
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

impl Api for Simulated {
    type Buffer = Buffer;
    type Library = Library;
    type Pipeline = Pipeline;
    type CommandBuffer = CommandBuffer;

    fn facts(&self) -> Facts {
        let checks = if self.options.checked { "checked" } else { "unchecked" };
        Facts {
            name: format!("Metal simulator ({checks}), {}", self.simulator.toolchain().describe()),
            compute_units: self.simulator.threads(),
            threadgroup_memory: 32 << 10,
            max_buffer_bytes: Simulator::MAX_BUFFER_BYTES,
            unified_memory: true,
        }
    }

    fn memory(&self) -> MemoryInfo {
        MemoryInfo::of_host()
    }

    fn buffer(&self, bytes: usize) -> Result<Buffer> {
        self.simulator.buffer("buffer", bytes)
    }

    fn write(&self, buffer: &Buffer, offset: usize, bytes: &[u8]) -> Result<()> {
        buffer.write(offset, bytes)
    }

    fn read(&self, buffer: &Buffer, offset: usize, bytes: &mut [u8]) -> Result<()> {
        buffer.read(offset, bytes)
    }

    fn library(&self, source: LibrarySource<'_>) -> Result<Library> {
        let math = if source.fast_math { Math::Fast } else { Math::Safe };
        let options = CompileOptions { math, checked: self.options.checked, ..CompileOptions::default() };
        self.simulator.library(&Source::new(source.name, source.text), &options)
    }

    fn pipeline(&self, library: &Library, kernel: &str, constants: &[(u32, ConstantValue)]) -> Result<Pipeline> {
        library.pipeline(kernel, constants)
    }

    fn pipeline_facts(&self, _pipeline: &Pipeline) -> PipelineFacts {
        PipelineFacts { execution_width: 32, max_threads: 1024 }
    }

    fn command_buffer(&self) -> Result<CommandBuffer> {
        Ok(CommandBuffer::with_seed(self.options.seed.get()))
    }

    fn launch(&self, commands: &mut CommandBuffer, launch: &Launch<'_, Self>) -> Result<()> {
        let mut dispatch = Dispatch::new(launch.pipeline, Grid::Threadgroups(launch.grid.0), launch.threadgroup.0);
        for bound in &launch.buffers {
            let output = if bound.output { Output::Whole } else { Output::Free };
            let binding = Binding::new(bound.index as u32, bound.buffer).range(bound.offset, bound.bytes).output(output);
            dispatch = dispatch.with(binding);
        }
        for parameter in &launch.pipeline.kernel().parameters {
            let ParameterKind::Buffer { index, .. } = parameter.kind else { continue };
            let bytes = launch.bytes.filter(|(at, _)| *at == index as usize);
            if let Some((_, bytes)) = bytes {
                dispatch = dispatch.with_bytes(index, bytes);
            } else if launch.buffers.iter().all(|bound| bound.index != index as usize) {
                dispatch = dispatch.with(Binding::new(index, &self.nothing).range(0, 0));
            }
        }
        for &(index, bytes) in &launch.threadgroup_memory {
            dispatch = dispatch.with_threadgroup_memory(index as u32, bytes);
        }
        commands.dispatch(dispatch)
    }

    fn copy(&self, commands: &mut CommandBuffer, from: (&Buffer, usize), to: (&Buffer, usize), bytes: usize) -> Result<()> {
        commands.copy(from.0, from.1, to.0, to.1, bytes)
    }

    fn fill(&self, commands: &mut CommandBuffer, to: (&Buffer, usize), bytes: usize, value: u8) -> Result<()> {
        commands.fill(to.0, to.1, bytes, value)
    }

    fn commit(&self, commands: CommandBuffer, done: Box<dyn FnOnce(Result<()>) + Send>) {
        self.queue.submit_then(commands, move |outcome| done(verdict(outcome)));
    }
}
