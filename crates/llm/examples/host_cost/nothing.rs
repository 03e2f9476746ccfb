//! Metal's objects without a device: they do nothing but count launches.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use elinvar_core::{HostMemory, MemoryInfo, PipelineInfo, Relief, Result};
use elinvar_metal::api::{Api, DeviceInfo, Done, Kernel, Launch, LibrarySource, StorageMode};

#[derive(Clone, Default)]
pub(crate) struct Nothing {
    pub(crate) launches: Arc<AtomicUsize>,
    pub(crate) barriers: Arc<AtomicUsize>,
}

impl Api for Nothing {
    type Buffer = ();
    type Library = ();
    type Pipeline = ();
    type Archive = ();
    type ResidencySet = ();
    type PressureWatch = ();
    type Capture = ();
    type CommandBuffer = ();

    fn info(&self) -> DeviceInfo {
        DeviceInfo {
            name: "no device".to_owned(),
            system: "none".to_owned(),
            family: Some(9),
            compute_units: 7,
            assumed: None,
            threadgroup_memory: 32 << 10,
            max_threads: 1024,
            max_buffer_bytes: 1 << 40,
            unified_memory: true,
        }
    }

    fn memory(&self) -> MemoryInfo {
        MemoryInfo { total: 1 << 40, available: 1 << 40 }
    }

    fn watch_pressure(&self, _: Relief) {}

    fn capture(&self, _: &Path) -> Result<()> {
        Ok(())
    }

    fn buffer(&self, _: usize, _: StorageMode, _: &str) -> Result<()> {
        Ok(())
    }

    fn adopt(&self, _: HostMemory) -> Result<Option<((), usize)>> {
        Ok(Some(((), 0)))
    }

    fn residency_set(&self) -> Option<()> {
        None
    }

    fn add_resident(&self, (): &(), (): &()) {}

    fn remove_resident(&self, (): &(), (): &()) {}

    fn commit_residency(&self, (): &()) {}

    fn request_residency(&self, (): &()) {}

    fn write(&self, (): &(), _: usize, _: &[u8]) -> Result<()> {
        Ok(())
    }

    fn read(&self, (): &(), _: usize, bytes: &mut [u8]) -> Result<()> {
        bytes.fill(0);
        Ok(())
    }

    fn library(&self, _: LibrarySource<'_>) -> Result<()> {
        Ok(())
    }

    fn view(&self, (): &(), _: usize, bytes: usize, see: &mut dyn FnMut(&[u8])) -> Result<()> {
        see(&vec![0; bytes]);
        Ok(())
    }

    fn pipeline(&self, _: Kernel<'_, ()>, _: Option<&()>) -> Result<()> {
        Ok(())
    }

    fn archive(&self, _: Option<&Path>) -> Result<()> {
        Ok(())
    }

    fn add(&self, (): &(), _: Kernel<'_, ()>) -> Result<()> {
        Ok(())
    }

    fn save(&self, (): &(), _: &Path) -> Result<()> {
        Ok(())
    }

    fn pipeline_info(&self, (): &()) -> PipelineInfo {
        PipelineInfo { execution_width: 32, max_threads: 1024, threadgroup_memory: 0 }
    }

    fn command_buffer(&self, _: &str) -> Result<()> {
        Ok(())
    }

    fn launch(&self, (): &mut (), _: &Launch<'_, Self>) -> Result<()> {
        self.launches.fetch_add(1, Relaxed);
        Ok(())
    }

    fn barrier(&self, (): &mut ()) {
        self.barriers.fetch_add(1, Relaxed);
    }

    fn copy(&self, (): &mut (), _: (&(), usize), _: (&(), usize), _: usize) -> Result<()> {
        Ok(())
    }

    fn fill(&self, (): &mut (), _: (&(), usize), _: usize, _: u8) -> Result<()> {
        Ok(())
    }

    fn commit(&self, (): (), done: Done) {
        done(Ok(0..0));
    }
}
