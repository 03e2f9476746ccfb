//! Commands as Metal's encoder takes them.

use std::sync::{Arc, OnceLock};

use elinvar_core::{Access, Binding, Command, Dispatch, Error, Extent, Grid, METAL_VERSION, MetalCode, Pipeline, Result};

use crate::{
    api::{Api, Bound, DeviceInfo, Launch, LibrarySource, StorageMode},
    compile::{Compiled, Pipelines},
    error_flag::ErrorFlags,
    memory::Memory,
};

/// What Metal's own copies and fills take: multiples of so many bytes.
const WORD: usize = 4;

/// The most bytes that `setBytes` takes.
const MAX_BYTES: usize = 4096;

/// Encodes the commands of a device's lists.
pub(crate) struct Encoder<A: Api> {
    /// Bytes that a threadgroup may have.
    threadgroup_memory: usize,
    copy_bytes: OnceLock<Arc<Compiled<A>>>,
    fill_bytes: OnceLock<Arc<Compiled<A>>>,
    /// Bound where an optional buffer is absent: Metal asks for a buffer at every index that a kernel names, read or not.
    absent: OnceLock<A::Buffer>,
}

impl<A: Api> Encoder<A> {
    /// For a device.
    pub(crate) fn new(info: &DeviceInfo) -> Self {
        Self { threadgroup_memory: info.threadgroup_memory, copy_bytes: OnceLock::new(), fill_bytes: OnceLock::new(), absent: OnceLock::new() }
    }

    /// What can be wrong with a command before anything of its list has begun.
    pub(crate) fn check(&self, api: &A, command: &Command) -> Result<()> {
        let Command::Dispatch(dispatch) = command else { return Ok(()) };
        self.check_dispatch(api, dispatch).map_err(|e| e.context(&dispatch.pipeline.source().key))
    }

    fn check_dispatch(&self, api: &A, dispatch: &Dispatch) -> Result<()> {
        pipeline(api, dispatch)?;
        dispatch.grid.threads(dispatch.threadgroup)?;
        if dispatch.params.len() > MAX_BYTES {
            return Err(Error::unsupported(format!("a parameter block of {} bytes: Metal takes at most {MAX_BYTES}", dispatch.params.len())));
        }
        let declared = compiled::<A>(&dispatch.pipeline)?.info.threadgroup_memory;
        let (given, most) = (dispatch.threadgroup_memory.iter().copied().map(threadgroup_bytes).sum::<usize>(), self.threadgroup_memory);
        if declared + given > most {
            let message =
                format!("{given} bytes of threadgroup memory beside the {declared} that the kernel declares: this device has {most}; give it less");
            return Err(Error::invalid_launch(message));
        }
        Ok(())
    }

    /// Encodes a command.
    pub(crate) fn encode(
        &self,
        api: &A,
        pipelines: &Pipelines<A>,
        commands: &mut A::CommandBuffer,
        command: &Command,
        rejections: Option<&mut ErrorFlags<A>>,
    ) -> Result<()> {
        match command {
            Command::Dispatch(dispatch) => self.dispatch(api, commands, dispatch, rejections).map_err(|e| e.context(&dispatch.pipeline.source().key)),
            Command::Copy(copy) => self.copy(api, pipelines, commands, part::<A>(&copy.source)?, part::<A>(&copy.destination)?, copy.source.bytes()),
            Command::Fill(fill) => self.fill(api, pipelines, commands, part::<A>(&fill.destination)?, fill.destination.bytes(), fill.value),
        }
    }

    /// Encodes a copy of any bytes.
    pub(crate) fn copy(
        &self,
        api: &A,
        pipelines: &Pipelines<A>,
        commands: &mut A::CommandBuffer,
        from: (&A::Buffer, usize),
        to: (&A::Buffer, usize),
        bytes: usize,
    ) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        if [from.1, to.1, bytes].iter().all(|n| n.is_multiple_of(WORD)) {
            return api.copy(commands, from, to, bytes);
        }
        let bound = |index, (buffer, offset), written| Bound { index, buffer, offset, bytes, written, output: written };
        let buffers = vec![bound(0, from, false), bound(1, to, true)];
        bytewise(api, commands, kept(&self.copy_bytes, api, pipelines, "copy_bytes")?, buffers, &(bytes as u64).to_ne_bytes(), bytes)
    }

    fn fill(
        &self,
        api: &A,
        pipelines: &Pipelines<A>,
        commands: &mut A::CommandBuffer,
        to: (&A::Buffer, usize),
        bytes: usize,
        value: u8,
    ) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        if [to.1, bytes].iter().all(|n| n.is_multiple_of(WORD)) {
            return api.fill(commands, to, bytes, value);
        }
        let buffers = vec![Bound { index: 0, buffer: to.0, offset: to.1, bytes, written: true, output: true }];
        let params = [(bytes as u64).to_ne_bytes(), u64::from(value).to_ne_bytes()].concat();
        bytewise(api, commands, kept(&self.fill_bytes, api, pipelines, "fill_bytes")?, buffers, &params, bytes)
    }

    fn dispatch(&self, api: &A, commands: &mut A::CommandBuffer, dispatch: &Dispatch, rejections: Option<&mut ErrorFlags<A>>) -> Result<()> {
        let source = dispatch.pipeline.source();
        let metal = source.metal.as_ref().ok_or_else(|| Error::unsupported("it has no Metal text"))?;
        let pipeline = pipeline(api, dispatch)?;
        let mut buffers = Vec::with_capacity(dispatch.bindings.len() + 1);
        for (index, (binding, parameter)) in dispatch.bindings.iter().zip(&source.parameters).enumerate() {
            let index = metal.buffer_index(index);
            let Some(binding) = binding else {
                buffers.push(Bound { index, buffer: self.absent(api)?, offset: 0, bytes: 0, written: false, output: false });
                continue;
            };
            let (buffer, offset) = part::<A>(binding)?;
            let (written, output) = (parameter.access.writes(), parameter.access == Access::Write);
            buffers.push(Bound { index, buffer, offset, bytes: binding.bytes(), written, output });
        }
        if let Some(rejections) = rejections.filter(|_| dispatch.pipeline.source().rejects()) {
            buffers.push(rejections.bind(dispatch.bindings.len() + usize::from(!dispatch.params.is_empty())));
        }
        let bytes = (!dispatch.params.is_empty()).then_some((dispatch.bindings.len(), &*dispatch.params));
        let threadgroup_memory = dispatch.threadgroup_memory.iter().enumerate().map(|(i, &bytes)| (metal.threadgroup_index(i), bytes)).collect();
        api.launch(
            commands,
            &Launch { pipeline: &pipeline, buffers, bytes, threadgroup_memory, grid: dispatch.grid, threadgroup: dispatch.threadgroup },
        )
    }

    fn absent(&self, api: &A) -> Result<&A::Buffer> {
        if let Some(absent) = self.absent.get() {
            return Ok(absent);
        }
        let made = api.buffer(WORD, StorageMode::Shared, "absent")?;
        Ok(self.absent.get_or_init(|| made))
    }
}

fn kept<'a, A: Api>(place: &'a OnceLock<Arc<Compiled<A>>>, api: &A, pipelines: &Pipelines<A>, name: &str) -> Result<&'a Compiled<A>> {
    if place.get().is_none() {
        let code = MetalCode::Text(include_str!("bytes.metal").to_owned());
        let source = LibrarySource { name: "bytes.metal", code: &code, fast_math: false, version: METAL_VERSION };
        let made = pipelines.get(api, source, name, &[])?;
        return Ok(place.get_or_init(|| made));
    }
    place.get().map(|compiled| &**compiled).ok_or_else(|| Error::device_lost(format!("the kernel {name} is gone")))
}

/// A thread for each byte.
fn bytewise<A: Api>(
    api: &A,
    commands: &mut A::CommandBuffer,
    kernel: &Compiled<A>,
    buffers: Vec<Bound<'_, A::Buffer>>,
    params: &[u8],
    bytes: usize,
) -> Result<()> {
    const THREADS: u32 = 256;
    let groups = u32::try_from(bytes.div_ceil(THREADS as usize)).ok().filter(|_| u32::try_from(bytes).is_ok());
    let groups =
        groups.ok_or_else(|| Error::unsupported(format!("a copy or fill of {bytes} bytes at an odd place: give it a multiple of {WORD}")))?;
    let bytes = Some((buffers.len(), params));
    let (grid, threadgroup) = (Grid::Threadgroups([groups, 1, 1]), Extent::linear(THREADS));
    let pipeline = kernel.for_threads(api, THREADS as usize)?;
    api.launch(commands, &Launch { pipeline: &pipeline, buffers, bytes, threadgroup_memory: Vec::new(), grid, threadgroup })
}

fn compiled<A: Api>(pipeline: &Pipeline) -> Result<&Compiled<A>> {
    pipeline.state().ok_or_else(|| Error::invalid_launch("the kernel was prepared by another device"))
}

/// The pipeline for a dispatch, whose threads are within the device's limit: that was checked when the list was recorded.
fn pipeline<A: Api>(api: &A, dispatch: &Dispatch) -> Result<Arc<A::Pipeline>> {
    compiled::<A>(&dispatch.pipeline)?.for_threads(api, usize::try_from(dispatch.threadgroup.count()).unwrap_or(usize::MAX))
}

/// Bytes of an argument in threadgroup memory as Metal takes them: multiples of 16.
pub(crate) const fn threadgroup_bytes(bytes: usize) -> usize {
    bytes.next_multiple_of(16)
}

/// The buffer behind a binding, and where in it the binding begins.
fn part<A: Api>(binding: &Binding) -> Result<(&A::Buffer, usize)> {
    let memory = binding.buffer().raw().downcast::<Memory<A>>()?;
    Ok((&memory.buffer, memory.start + binding.offset()))
}
