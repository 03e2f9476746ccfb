//! Copies to the host. A few bytes are carried by a kernel: a copy engine keeps the stream for 8 µs, a kernel for 2 (benchmarks/cuda-2026-11-22.md), which
//! is what lies between two tokens.

use std::sync::Arc;

use cudarc::driver::sys;
use elinvar_core::Result;

use crate::{
    compile::{Code, Compiler},
    driver::Context,
    kernel::{Function, Pending},
    memory::Pinned,
};

/// A thread for each byte.
const TEXT: &str = r#"
extern "C" __global__ void copy_to_host(unsigned char *to, const unsigned char *from) {
    to[threadIdx.x] = from[threadIdx.x];
}
"#;

/// Bytes that the kernel copies at most: the threads of one threadgroup.
const MOST: u32 = 1024;

/// Copies to the host in stream order.
pub(crate) struct HostCopy {
    context: Arc<Context>,
    kernel: Arc<Pending<Function>>,
}

impl HostCopy {
    /// The kernel's name.
    pub(crate) const SYMBOL: &str = "copy_to_host";

    /// Whether so many bytes are carried by the kernel.
    pub(crate) fn takes(bytes: usize) -> bool {
        (1..=MOST as usize).contains(&bytes)
    }

    /// With a kernel that is still being compiled.
    pub(crate) fn new(context: &Arc<Context>, kernel: Arc<Pending<Function>>) -> Self {
        Self { context: context.clone(), kernel }
    }

    pub(crate) fn code(compiler: &Compiler, capability: u32) -> Result<Code> {
        compiler.own(Self::SYMBOL, TEXT, capability)
    }

    /// Starts a copy, for which `to` has room. Both ends stay until it is done in stream order.
    pub(crate) fn copy(&self, from: sys::CUdeviceptr, to: &Pinned, bytes: usize) -> Result<()> {
        let stream = self.context.stream();
        let result = match u32::try_from(bytes) {
            Ok(0) => return Ok(()),
            Ok(threads @ ..=MOST) => {
                let kernel = self.kernel.wait(|code| Function::load(&self.context, code))?;
                // Pinned memory has one address, here and there.
                kernel.launch_between(stream, [to.pointer as sys::CUdeviceptr, from], threads)
            }
            _ => {
                // SAFETY: the caller keeps both ranges until the copy is done in stream order.
                unsafe { sys::cuMemcpyDtoHAsync_v2(to.pointer.cast(), from, bytes, stream) }
            }
        };
        self.context.check(&format!("copying {bytes} bytes from the GPU"), result)
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_compiles_for_every_kind_of_gpu() {
        let compiler = Compiler::new(None).unwrap();
        for capability in [80, 90, 120] {
            assert_eq!(HostCopy::code(&compiler, capability).unwrap().entries[0].symbol, "copy_to_host");
        }
    }
}
