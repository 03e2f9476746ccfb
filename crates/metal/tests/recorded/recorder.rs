//! Metal's objects without a device: they record the calls, count themselves, and fail on demand.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
};

use elinvar_core::{Error, Grid, HostMemory, MemoryInfo, MetalCode, PipelineInfo, Relief, Result};
use elinvar_metal::api::{Api, DeviceInfo, Done, Kernel, Launch, LibrarySource, StorageMode};

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Event {
    /// The byte at which each buffer is bound.
    Launch(Vec<usize>),
    Barrier,
    Copy,
    Fill,
}

/// What a recorder was asked, and how it answers.
pub(crate) struct State {
    pub(crate) created: AtomicUsize,
    pub(crate) released: AtomicUsize,
    /// Bytes that the host wrote.
    pub(crate) written: AtomicUsize,
    pub(crate) libraries: AtomicUsize,
    /// The text of the last library, the version it asks for, and the grid of the last launch.
    pub(crate) text: Mutex<String>,
    pub(crate) version: AtomicUsize,
    pub(crate) grid: Mutex<Option<Grid>>,
    pub(crate) archived: AtomicUsize,
    /// Pipelines made with an archive that had their kernel.
    pub(crate) found: AtomicUsize,
    /// Allocations that still succeed.
    pub(crate) buffers: AtomicUsize,
    /// Command buffers that are still given.
    pub(crate) command_buffers: AtomicUsize,
    pub(crate) available: AtomicUsize,
    /// Bytes of the shared buffers that were allocated, and of the private ones.
    pub(crate) shared_bytes: AtomicUsize,
    pub(crate) private_bytes: AtomicUsize,
    /// Buffers added to the residency set, taken out of it, and the set's commits and requests; whether there is a set.
    pub(crate) resident: AtomicUsize,
    pub(crate) evicted: AtomicUsize,
    pub(crate) commits: AtomicUsize,
    pub(crate) requests: AtomicUsize,
    pub(crate) has_residency: AtomicBool,
    /// Whether the device says that memory is unified.
    pub(crate) unified: AtomicBool,
    pub(crate) max_threads: AtomicUsize,
    /// Threads that a pipeline can have if they are asked for.
    pub(crate) wide_threads: AtomicUsize,
    /// Bytes of threadgroup memory that kernels declare.
    pub(crate) declared_memory: AtomicUsize,
    /// Whether host memory is shared.
    pub(crate) shares: AtomicBool,
    /// Whether events are kept.
    pub(crate) writes: AtomicBool,
    pub(crate) committed: Mutex<Vec<Vec<Event>>>,
    /// What pipelines, buffers and command buffers are labelled.
    pub(crate) labels: Mutex<Vec<String>>,
    /// When the next command buffer begins, in nanoseconds; each runs for seven.
    pub(crate) clock: AtomicU64,
    /// The file that a capture is written to.
    pub(crate) captured: Mutex<Option<PathBuf>>,
    /// Whether command buffers wait to be completed by hand.
    pub(crate) holds: AtomicBool,
    pub(crate) held: Mutex<Vec<Done>>,
    /// What waits for notices of memory pressure.
    pub(crate) watch: Mutex<Weak<Relief>>,
}

impl Default for State {
    fn default() -> Self {
        let (most, zero) = (|| AtomicUsize::new(usize::MAX), || AtomicUsize::new(0));
        let (shares, writes, holds) = (AtomicBool::new(true), AtomicBool::new(true), AtomicBool::new(false));
        let (committed, held, watch) = (Mutex::default(), Mutex::default(), Mutex::default());
        let (text, grid, labels, clock, captured) = (Mutex::default(), Mutex::default(), Mutex::default(), AtomicU64::new(0), Mutex::default());
        let (created, released, written, libraries, version, archived, found) = (zero(), zero(), zero(), zero(), zero(), zero(), zero());
        let (buffers, command_buffers, available) = (most(), most(), most());
        let (shared_bytes, private_bytes, resident, evicted, commits, requests) = (zero(), zero(), zero(), zero(), zero(), zero());
        let (has_residency, unified) = (AtomicBool::new(false), AtomicBool::new(true));
        let (max_threads, wide_threads, declared_memory) = (AtomicUsize::new(1024), AtomicUsize::new(1024), zero());
        Self {
            created,
            released,
            written,
            libraries,
            text,
            grid,
            version,
            archived,
            found,
            buffers,
            command_buffers,
            available,
            shared_bytes,
            private_bytes,
            resident,
            evicted,
            commits,
            requests,
            has_residency,
            unified,
            max_threads,
            wide_threads,
            declared_memory,
            shares,
            writes,
            committed,
            labels,
            clock,
            captured,
            holds,
            held,
            watch,
        }
    }
}

impl State {
    pub(crate) fn live(&self) -> usize {
        self.created.load(Relaxed) - self.released.load(Relaxed)
    }

    /// Events of the command buffers committed since the last call.
    pub(crate) fn take(&self) -> Vec<Vec<Event>> {
        std::mem::take(&mut self.committed.lock().unwrap())
    }

    /// Completes the held command buffer of this number.
    pub(crate) fn complete(&self, number: usize, result: Result<()>) {
        let done = self.held.lock().unwrap().remove(number);
        done(result.map(|()| 0..0));
    }

    fn label(&self, what: &str, label: &str) {
        if self.writes.load(Relaxed) {
            self.labels.lock().unwrap().push(format!("{what} {label}"));
        }
    }

    fn spend(counter: &AtomicUsize) -> bool {
        counter.fetch_update(Relaxed, Relaxed, |left| if left == usize::MAX { Some(left) } else { left.checked_sub(1) }).is_ok()
    }
}

/// Something of Metal's that counts itself.
pub(crate) struct Object(Arc<State>);

impl Drop for Object {
    fn drop(&mut self) {
        self.0.released.fetch_add(1, Relaxed);
    }
}

#[derive(Clone, Default)]
pub(crate) struct Recorder(pub(crate) Arc<State>);

impl Recorder {
    fn object(&self) -> Object {
        self.0.created.fetch_add(1, Relaxed);
        Object(self.0.clone())
    }

    fn event(&self, commands: &mut (Object, Vec<Event>), event: impl FnOnce() -> Event) {
        if self.0.writes.load(Relaxed) {
            commands.1.push(event());
        }
    }
}

impl Api for Recorder {
    type Buffer = (Object, Option<HostMemory>);
    type Library = Object;
    /// With the most threads of a threadgroup.
    type Pipeline = (Object, usize);
    /// The names of its kernels.
    type Archive = Mutex<String>;
    type ResidencySet = Object;
    type PressureWatch = Arc<Relief>;
    type Capture = Object;
    type CommandBuffer = (Object, Vec<Event>);

    fn info(&self) -> DeviceInfo {
        DeviceInfo {
            name: "recorder".to_owned(),
            system: "none".to_owned(),
            family: Some(9),
            compute_units: 8,
            assumed: None,
            threadgroup_memory: 32 << 10,
            max_threads: 1024,
            max_buffer_bytes: 1 << 40,
            unified_memory: self.0.unified.load(Relaxed),
        }
    }

    fn memory(&self) -> MemoryInfo {
        MemoryInfo { total: 1 << 40, available: self.0.available.load(Relaxed) }
    }

    fn watch_pressure(&self, relieve: Relief) -> Arc<Relief> {
        let watch = Arc::new(relieve);
        *self.0.watch.lock().unwrap() = Arc::downgrade(&watch);
        watch
    }

    fn capture(&self, file: &Path) -> Result<Object> {
        *self.0.captured.lock().unwrap() = Some(file.to_owned());
        Ok(self.object())
    }

    fn buffer(&self, bytes: usize, mode: StorageMode, label: &str) -> Result<Self::Buffer> {
        self.0.label("buffer", label);
        if !State::spend(&self.0.buffers) {
            return Err(Error::out_of_memory(format!("a buffer of {bytes} bytes")));
        }
        let counter = if mode == StorageMode::Shared { &self.0.shared_bytes } else { &self.0.private_bytes };
        counter.fetch_add(bytes, Relaxed);
        Ok((self.object(), None))
    }

    fn adopt(&self, memory: HostMemory) -> Result<Option<(Self::Buffer, usize)>> {
        if !self.0.shares.load(Relaxed) {
            return Ok(None);
        }
        let start = memory.bytes().as_ptr().addr() % 4096;
        Ok(Some(((self.object(), Some(memory)), start)))
    }

    fn residency_set(&self) -> Option<Object> {
        self.0.has_residency.load(Relaxed).then(|| self.object())
    }

    fn add_resident(&self, _: &Object, _: &Self::Buffer) {
        self.0.resident.fetch_add(1, Relaxed);
    }

    fn remove_resident(&self, _: &Object, _: &Self::Buffer) {
        self.0.evicted.fetch_add(1, Relaxed);
    }

    fn commit_residency(&self, _: &Object) {
        self.0.commits.fetch_add(1, Relaxed);
    }

    fn request_residency(&self, _: &Object) {
        self.0.requests.fetch_add(1, Relaxed);
    }

    fn write(&self, _: &Self::Buffer, _: usize, bytes: &[u8]) -> Result<()> {
        self.0.written.fetch_add(bytes.len(), Relaxed);
        Ok(())
    }

    fn read(&self, _: &Self::Buffer, _: usize, bytes: &mut [u8]) -> Result<()> {
        bytes.fill(0);
        Ok(())
    }

    fn view(&self, buffer: &Self::Buffer, _: usize, bytes: usize, see: &mut dyn FnMut(&[u8])) -> Result<()> {
        match &buffer.1 {
            Some(memory) => see(&memory.bytes()[..bytes]),
            None => see(&vec![0; bytes]),
        }
        Ok(())
    }

    fn library(&self, source: LibrarySource<'_>) -> Result<Object> {
        let MetalCode::Text(text) = source.code else { return Err(Error::unsupported("only texts are recorded")) };
        text.clone_into(&mut self.0.text.lock().unwrap());
        self.0.version.store(source.version as usize, Relaxed);
        self.0.libraries.fetch_add(1, Relaxed);
        Ok(self.object())
    }

    fn pipeline(&self, kernel: Kernel<'_, Object>, archive: Option<&Self::Archive>) -> Result<Self::Pipeline> {
        if archive.is_some_and(|archive| archive.lock().unwrap().contains("of another system")) {
            return Err(Error::compile_failed("an archive of another system"));
        }
        if archive.is_some_and(|archive| archive.lock().unwrap().lines().any(|name| name == kernel.name)) {
            self.0.found.fetch_add(1, Relaxed);
        }
        self.0.label("pipeline", kernel.name);
        let most = self.0.max_threads.load(Relaxed).max(kernel.threads.map_or(0, |threads| threads.min(self.0.wide_threads.load(Relaxed))));
        Ok((self.object(), most))
    }

    fn archive(&self, file: Option<&Path>) -> Result<Self::Archive> {
        let Some(file) = file else { return Ok(Mutex::default()) };
        let text = fs::read_to_string(file).map_err(|e| Error::io(e.to_string()))?;
        text.strip_prefix("archive\n").map(|names| Mutex::new(names.to_owned())).ok_or_else(|| Error::io("no archive"))
    }

    fn add(&self, archive: &Self::Archive, kernel: Kernel<'_, Object>) -> Result<()> {
        self.0.archived.fetch_add(1, Relaxed);
        *archive.lock().unwrap() += &format!("{}\n", kernel.name);
        Ok(())
    }

    fn save(&self, archive: &Self::Archive, file: &Path) -> Result<()> {
        fs::write(file, format!("archive\n{}", archive.lock().unwrap())).map_err(|e| Error::io(e.to_string()))
    }

    fn pipeline_info(&self, &(_, max_threads): &Self::Pipeline) -> PipelineInfo {
        PipelineInfo { execution_width: 32, max_threads, threadgroup_memory: self.0.declared_memory.load(Relaxed) }
    }

    fn command_buffer(&self, label: &str) -> Result<Self::CommandBuffer> {
        self.0.label("command buffer", label);
        if !State::spend(&self.0.command_buffers) {
            return Err(Error::out_of_memory("no command buffer"));
        }
        Ok((self.object(), Vec::new()))
    }

    fn launch(&self, commands: &mut Self::CommandBuffer, launch: &Launch<'_, Self>) -> Result<()> {
        *self.0.grid.lock().unwrap() = Some(launch.grid);
        self.event(commands, || Event::Launch(launch.buffers.iter().map(|bound| bound.offset).collect()));
        Ok(())
    }

    fn barrier(&self, commands: &mut Self::CommandBuffer) {
        self.event(commands, || Event::Barrier);
    }

    fn copy(&self, commands: &mut Self::CommandBuffer, _: (&Self::Buffer, usize), _: (&Self::Buffer, usize), _: usize) -> Result<()> {
        self.event(commands, || Event::Copy);
        Ok(())
    }

    fn fill(&self, commands: &mut Self::CommandBuffer, _: (&Self::Buffer, usize), _: usize, _: u8) -> Result<()> {
        self.event(commands, || Event::Fill);
        Ok(())
    }

    fn commit(&self, commands: Self::CommandBuffer, done: Done) {
        if self.0.writes.load(Relaxed) {
            self.0.committed.lock().unwrap().push(commands.1);
        }
        if self.0.holds.load(Relaxed) {
            return self.0.held.lock().unwrap().push(done);
        }
        let start = self.0.clock.fetch_add(10, Relaxed);
        done(Ok(start..start + 7));
    }
}
