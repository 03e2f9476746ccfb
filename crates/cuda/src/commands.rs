//! A command list's commands on a stream.

use std::sync::Arc;

use cudarc::driver::sys;
use elinvar_core::{Access, Binding, Command, CommandList, Dispatch, ERROR_FLAG_BYTES, Error, KernelSource, Parameter, Pipeline, Result};
use elinvar_kernels::cuda::CudaForm;
use elinvar_msl::cuda::Threadgroups;

use crate::{
    driver::Context,
    kernel::{Function, Kernel},
    memory::Memory,
    products::Products,
};

/// The kernels of a list whose launches may reject an input, in order.
pub(crate) fn rejecting(list: &CommandList) -> Vec<Pipeline> {
    list.kernels().filter(|kernel| rejects(kernel)).cloned().collect()
}

/// Whether a kernel may reject what it is given.
fn rejects(kernel: &Pipeline) -> bool {
    match kernel.source().native() {
        Some(CudaForm::Source(source)) => source.rejection.is_some(),
        Some(CudaForm::MatrixProduct | CudaForm::AllGather) => false,
        None => kernel.source().rejects(),
    }
}

/// The kernels of a list.
pub(crate) fn kernels(list: &CommandList) -> Arc<[Arc<KernelSource>]> {
    list.kernels().map(|kernel| kernel.source().clone()).collect()
}

/// Where commands go.
pub(crate) struct Target<'a> {
    pub(crate) context: &'a Arc<Context>,
    pub(crate) stream: sys::CUstream,
    pub(crate) products: &'a Products,
    /// A word for each launch that may reject, in order: zeros.
    pub(crate) words: Option<&'a Memory>,
}

impl Target<'_> {
    /// All of a list's commands.
    pub(crate) fn run(&self, list: &CommandList) -> Result<()> {
        let (mut word, mut ahead) = (self.words.map_or(0, |words| words.pointer), Ahead::default());
        for command in list.commands() {
            match command {
                Command::Dispatch(dispatch) => {
                    let overlaps = ahead.overlaps(dispatch);
                    self.dispatch(dispatch, word, overlaps).map_err(|e| e.context(&dispatch.pipeline.source().key))?;
                    if rejects(&dispatch.pipeline) {
                        word += ERROR_FLAG_BYTES as u64;
                    }
                    continue;
                }
                // Nothing to do, which the driver does not take for a command.
                Command::Copy(copy) if copy.source.bytes() == 0 => {}
                Command::Fill(fill) if fill.destination.bytes() == 0 => {}
                Command::Copy(copy) => {
                    let (from, to, bytes) = (address(&copy.source)?, address(&copy.destination)?, copy.source.bytes());
                    // SAFETY: both ranges are inside buffers that live until the copy has completed in stream order.
                    let result = unsafe { sys::cuMemcpyDtoDAsync_v2(to, from, bytes, self.stream) };
                    self.context.check(&format!("copying {bytes} bytes"), result)?;
                }
                Command::Fill(fill) => self.fill(address(&fill.destination)?, fill.value, fill.destination.bytes())?,
            }
            ahead = Ahead::default();
        }
        Ok(())
    }

    fn dispatch(&self, dispatch: &Dispatch, word: sys::CUdeviceptr, overlaps: bool) -> Result<()> {
        self.context.suspect_alone(dispatch.pipeline.source());
        let kernel: &Kernel = dispatch.pipeline.state().ok_or_else(|| Error::invalid_launch("the kernel was prepared by another device"))?;
        let mut addresses = Vec::with_capacity(dispatch.bindings.len());
        for binding in &dispatch.bindings {
            addresses.push(binding.as_ref().map_or(Ok(0), address)?);
        }
        match kernel {
            Kernel::Function(forms) => {
                let is_uniform = dispatch.grid.is_uniform(dispatch.threadgroup);
                let pending = forms.of(if is_uniform { Threadgroups::Uniform } else { Threadgroups::Nonuniform });
                pending.wait(|code| Function::load(self.context, code))?.launch(self.stream, dispatch, &addresses, word, overlaps)
            }
            Kernel::Gather => self.context.communicator()?.gather(self.stream, dispatch, &addresses),
            Kernel::Product => self.products.launch(self.context, self.stream, dispatch, &addresses),
        }
    }

    fn fill(&self, to: sys::CUdeviceptr, value: u8, bytes: usize) -> Result<()> {
        // SAFETY: the range is inside a buffer that lives until the fill has completed in stream order.
        self.context.check(&format!("filling {bytes} bytes"), unsafe { sys::cuMemsetD8Async(to, value, bytes, self.stream) })
    }
}

/// What is written by the last launch that began alone and by those after it, which may still run. Unknown until a launch of the list begins alone.
#[derive(Default)]
struct Ahead {
    written: Option<Vec<Binding>>,
}

impl Ahead {
    /// Whether a launch may begin before those ahead have ended, which it joins: nothing that it reads early is written there. For the rest it waits for the
    /// one ahead, which has waited for the one before; but only a launch that waits is guaranteed to see what was written.
    fn overlaps(&mut self, dispatch: &Dispatch) -> bool {
        let prefetched = bound(dispatch, |parameter| parameter.prefetched);
        let reads = |written: &Binding| prefetched.iter().any(|read| read.overlaps(written));
        let overlaps = prefetched.is_empty() || self.written.as_ref().is_some_and(|ahead| !ahead.iter().any(reads));
        if !overlaps {
            self.written = Some(Vec::new());
        }
        if matches!(dispatch.pipeline.source().native(), Some(CudaForm::MatrixProduct | CudaForm::AllGather)) {
            // A library's kernel may let others come before it has waited.
            self.written = None;
        } else if let Some(written) = &mut self.written {
            written.extend(bound(dispatch, |parameter| parameter.access != Access::Read));
        }
        overlaps
    }
}

/// What is bound to the parameters wanted.
fn bound(dispatch: &Dispatch, wanted: impl Fn(&Parameter) -> bool) -> Vec<Binding> {
    let parameters = dispatch.pipeline.source().parameters.iter().zip(&dispatch.bindings);
    parameters.filter(|(parameter, _)| wanted(parameter)).filter_map(|(_, binding)| binding.clone()).collect()
}

/// The address of a binding's first byte.
fn address(binding: &Binding) -> Result<sys::CUdeviceptr> {
    let raw = binding.buffer().raw();
    let first = match raw.stand_in() {
        Some(stand_in) => stand_in.address()? as u64,
        None => raw.downcast::<Memory>()?.pointer,
    };
    Ok(first + binding.offset() as u64)
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use elinvar_core::{Buffer, DType, Device, Extent, Grid, KernelKey, KernelSource, ListBuilder, NullBackend};

    use super::*;

    fn dispatches(device: &Device, launches: &[[&Buffer; 3]]) -> Vec<Dispatch> {
        let parameters = vec![Parameter::read("x", DType::U8), Parameter::read("w", DType::U8).prefetched(), Parameter::write("y", DType::U8)];
        let key = KernelKey { operator: Cow::Borrowed("k"), dtypes: vec![], constants: vec![] };
        let source = Arc::new(KernelSource { key, parameters, params_bytes: 0, host: None, metal: None, native: None });
        let pipeline = device.pipeline(&source).unwrap();
        let mut list = ListBuilder::new();
        for buffers in launches {
            let bindings = buffers.map(|buffer| Some(buffer.bind(0, 64).unwrap())).to_vec();
            let (pipeline, one) = (pipeline.clone(), Extent::linear(1));
            let dispatch = Dispatch {
                pipeline,
                bindings,
                params: [].into(),
                grid: Grid::Threadgroups(one.0),
                threadgroup: one,
                threadgroup_memory: vec![],
                work: Default::default(),
            };
            list.dispatch(dispatch, device.properties()).unwrap();
        }
        let list = list.finish();
        let dispatch = |command: &Command| if let Command::Dispatch(dispatch) = command { dispatch.clone() } else { unreachable!() };
        list.commands().iter().map(dispatch).collect()
    }

    #[test]
    fn a_launch_overlaps_unless_one_ahead_writes_what_it_reads_early() {
        let device = Device::new(NullBackend::new());
        let [a, b, c, d] = [0; 4].map(|_| device.allocate(64).unwrap());
        let overlapping = |launches: &[[&Buffer; 3]]| -> Vec<bool> {
            let mut ahead = Ahead::default();
            dispatches(&device, launches).iter().map(|dispatch| ahead.overlaps(dispatch)).collect()
        };
        // What is ahead of the first is not known. The second reads what the first has written, but only after it has waited.
        assert_eq!(overlapping(&[[&a, &b, &c], [&c, &b, &d]]), [false, true]);
        assert_eq!(overlapping(&[[&a, &b, &c], [&a, &c, &d]]), [false, false]);
        // So far back that it has ended, but its writes are not yet visible to the third.
        assert_eq!(overlapping(&[[&a, &b, &c], [&a, &b, &d], [&a, &c, &d], [&a, &c, &d]]), [false, true, false, true]);
    }
}
