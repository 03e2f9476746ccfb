//! The simulator without one barrier of each command buffer.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use elinvar_core::{HostMemory, MemoryInfo, PipelineInfo, Relief, Result};
use elinvar_metal::{
    Simulated,
    api::{Api, Bound, DeviceInfo, Done, Kernel, Launch, LibrarySource, StorageMode},
};

/// Barriers that were asked for, and the number of the one that is left out. Clones are the same.
#[derive(Clone)]
pub(crate) struct Barriers(Arc<[AtomicUsize; 2]>);

impl Default for Barriers {
    fn default() -> Self {
        Self(Arc::new([AtomicUsize::new(0), AtomicUsize::new(usize::MAX)]))
    }
}

impl Barriers {
    /// From now on this one is left out, counted from 0 since the last [`Barriers::take`].
    pub(crate) fn forget(&self, number: usize) {
        self.0[1].store(number, Relaxed);
    }

    /// How many were asked for since the last call.
    pub(crate) fn take(&self) -> usize {
        self.0[0].swap(0, Relaxed)
    }

    fn is_next_kept(&self) -> bool {
        self.0[0].fetch_add(1, Relaxed) != self.0[1].load(Relaxed)
    }
}

pub(crate) struct Forgetful {
    pub(crate) inner: Simulated,
    pub(crate) barriers: Barriers,
}

type Buffer = <Simulated as Api>::Buffer;
type Library = <Simulated as Api>::Library;
type Commands = <Simulated as Api>::CommandBuffer;

impl Api for Forgetful {
    type Buffer = Buffer;
    type Library = Library;
    type Pipeline = <Simulated as Api>::Pipeline;
    type Archive = ();
    type ResidencySet = ();
    type PressureWatch = <Simulated as Api>::PressureWatch;
    type Capture = ();
    type CommandBuffer = Commands;

    fn barrier(&self, commands: &mut Commands) {
        if self.barriers.is_next_kept() {
            self.inner.barrier(commands);
        }
    }

    fn launch(&self, commands: &mut Commands, launch: &Launch<'_, Self>) -> Result<()> {
        let Launch { pipeline, ref buffers, bytes, ref threadgroup_memory, grid, threadgroup } = *launch;
        let (buffers, threadgroup_memory) = (buffers.iter().map(|bound| Bound { ..*bound }).collect(), threadgroup_memory.clone());
        self.inner.launch(commands, &Launch { pipeline, buffers, bytes, threadgroup_memory, grid, threadgroup })
    }

    fn info(&self) -> DeviceInfo {
        self.inner.info()
    }

    fn memory(&self) -> MemoryInfo {
        self.inner.memory()
    }

    fn watch_pressure(&self, relieve: Relief) -> Self::PressureWatch {
        self.inner.watch_pressure(relieve)
    }

    fn capture(&self, file: &Path) -> Result<()> {
        self.inner.capture(file)
    }

    fn buffer(&self, bytes: usize, mode: StorageMode, label: &str) -> Result<Buffer> {
        self.inner.buffer(bytes, mode, label)
    }

    fn adopt(&self, memory: HostMemory) -> Result<Option<(Buffer, usize)>> {
        self.inner.adopt(memory)
    }

    fn residency_set(&self) -> Option<()> {
        self.inner.residency_set()
    }

    fn add_resident(&self, set: &(), buffer: &Buffer) {
        self.inner.add_resident(set, buffer);
    }

    fn remove_resident(&self, set: &(), buffer: &Buffer) {
        self.inner.remove_resident(set, buffer);
    }

    fn commit_residency(&self, set: &()) {
        self.inner.commit_residency(set);
    }

    fn request_residency(&self, set: &()) {
        self.inner.request_residency(set);
    }

    fn write(&self, buffer: &Buffer, offset: usize, bytes: &[u8]) -> Result<()> {
        self.inner.write(buffer, offset, bytes)
    }

    fn read(&self, buffer: &Buffer, offset: usize, bytes: &mut [u8]) -> Result<()> {
        self.inner.read(buffer, offset, bytes)
    }

    fn view(&self, buffer: &Buffer, offset: usize, bytes: usize, see: &mut dyn FnMut(&[u8])) -> Result<()> {
        self.inner.view(buffer, offset, bytes, see)
    }

    fn library(&self, source: LibrarySource<'_>) -> Result<Library> {
        self.inner.library(source)
    }

    fn pipeline(&self, kernel: Kernel<'_, Library>, archive: Option<&()>) -> Result<Self::Pipeline> {
        self.inner.pipeline(kernel, archive)
    }

    fn archive(&self, file: Option<&Path>) -> Result<()> {
        self.inner.archive(file)
    }

    fn add(&self, archive: &(), kernel: Kernel<'_, Library>) -> Result<()> {
        self.inner.add(archive, kernel)
    }

    fn save(&self, archive: &(), file: &Path) -> Result<()> {
        self.inner.save(archive, file)
    }

    fn pipeline_info(&self, pipeline: &Self::Pipeline) -> PipelineInfo {
        self.inner.pipeline_info(pipeline)
    }

    fn command_buffer(&self, label: &str) -> Result<Commands> {
        self.inner.command_buffer(label)
    }

    fn copy(&self, commands: &mut Commands, from: (&Buffer, usize), to: (&Buffer, usize), bytes: usize) -> Result<()> {
        self.inner.copy(commands, from, to, bytes)
    }

    fn fill(&self, commands: &mut Commands, to: (&Buffer, usize), bytes: usize, value: u8) -> Result<()> {
        self.inner.fill(commands, to, bytes, value)
    }

    fn commit(&self, commands: Commands, done: Done) {
        self.inner.commit(commands, done);
    }
}
