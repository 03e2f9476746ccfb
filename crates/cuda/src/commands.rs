//! A command list's commands on a stream.

use std::sync::Arc;

use cudarc::driver::sys;
use elinvar_core::{Binding, Command, CommandList, Dispatch, Error, Metal, Pipeline, Result};

use crate::{driver::Context, kernel::Kernel, memory::Memory, products::Products};

/// Bytes of a refusal word.
pub(crate) const WORD: usize = size_of::<u32>();

/// The kernels of a list whose launches may refuse an input, in order.
pub(crate) fn refusing(list: &CommandList) -> Vec<Pipeline> {
    let kernel = |command: &Command| match command {
        Command::Dispatch(dispatch) if why(&dispatch.pipeline).is_some() => Some(dispatch.pipeline.clone()),
        _ => None,
    };
    list.commands().iter().filter_map(kernel).collect()
}

/// Why a kernel refuses, if it can.
pub(crate) fn why(kernel: &Pipeline) -> Option<&'static str> {
    let source = kernel.source();
    source.metal.as_ref().filter(|_| source.cuda.is_none()).and_then(Metal::refusal)
}

/// The kernels of a list.
pub(crate) fn kernels(list: &CommandList) -> Arc<[Pipeline]> {
    let kernel = |command: &Command| match command {
        Command::Dispatch(dispatch) => Some(dispatch.pipeline.clone()),
        _ => None,
    };
    list.commands().iter().filter_map(kernel).collect()
}

/// Where commands go.
pub(crate) struct Target<'a> {
    pub(crate) context: &'a Context,
    pub(crate) stream: sys::CUstream,
    pub(crate) products: &'a Products,
    /// A word for each launch that may refuse, in order.
    pub(crate) words: Option<&'a Memory>,
}

impl Target<'_> {
    /// All of a list's commands, the words zeroed first.
    pub(crate) fn run(&self, list: &CommandList) -> Result<()> {
        let mut word = 0;
        if let Some(words) = self.words {
            word = words.pointer;
            self.fill(words.pointer, 0, elinvar_core::DeviceMemory::bytes(words))?;
        }
        for command in list.commands() {
            match command {
                Command::Dispatch(dispatch) => {
                    self.dispatch(dispatch, word).map_err(|e| e.context(&dispatch.pipeline.source().key))?;
                    if why(&dispatch.pipeline).is_some() {
                        word += WORD as u64;
                    }
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
        }
        Ok(())
    }

    fn dispatch(&self, dispatch: &Dispatch, word: sys::CUdeviceptr) -> Result<()> {
        self.context.suspect_alone(&dispatch.pipeline);
        let kernel: &Kernel = dispatch.pipeline.state().ok_or_else(|| Error::invalid_launch("the kernel was prepared by another device"))?;
        let mut addresses = Vec::with_capacity(dispatch.bindings.len());
        for binding in &dispatch.bindings {
            addresses.push(binding.as_ref().map_or(Ok(0), address)?);
        }
        match kernel {
            Kernel::Function(pending) => pending.wait()?.launch(self.stream, dispatch, &addresses, word),
            Kernel::Product => self.products.launch(self.context, self.stream, dispatch, &addresses),
        }
    }

    fn fill(&self, to: sys::CUdeviceptr, value: u8, bytes: usize) -> Result<()> {
        // SAFETY: the range is inside a buffer that lives until the fill has completed in stream order.
        self.context.check(&format!("filling {bytes} bytes"), unsafe { sys::cuMemsetD8Async(to, value, bytes, self.stream) })
    }
}

/// The address of a binding's first byte.
fn address(binding: &Binding) -> Result<sys::CUdeviceptr> {
    Ok(binding.buffer().raw().downcast::<Memory>()?.pointer + binding.offset() as u64)
}
