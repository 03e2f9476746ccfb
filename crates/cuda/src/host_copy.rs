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

/// A thread for each byte, which it may leave zero.
const TEXT: &str = r#"
extern "C" __global__ void copy_to_host(unsigned char *to, unsigned char *from) {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
    to[threadIdx.x] = from[threadIdx.x];
    if (TAKES) {
        from[threadIdx.x] = 0;
    }
}
"#;

/// Bytes that the kernel copies at most: the threads of one threadgroup.
const MOST: u32 = 1024;

/// Copies to the host in stream order.
pub(crate) struct HostCopy {
    context: Arc<Context>,
    /// By whether what is copied is zero afterwards.
    kernels: [Arc<Pending<Function>>; 2],
}

impl HostCopy {
    /// The kernels' name.
    pub(crate) const SYMBOL: &str = "copy_to_host";

    /// Whether so many bytes are carried by a kernel.
    pub(crate) fn takes(bytes: usize) -> bool {
        (1..=MOST as usize).contains(&bytes)
    }

    /// With kernels that are still being compiled.
    pub(crate) fn new(context: &Arc<Context>, kernels: [Arc<Pending<Function>>; 2]) -> Self {
        Self { context: context.clone(), kernels }
    }

    pub(crate) fn code(compiler: &Compiler, takes: bool, capability: u32) -> Result<Code> {
        compiler.own(Self::SYMBOL, &format!("#define TAKES {takes}\n{TEXT}"), capability)
    }

    /// Starts a copy, for which `to` has room. Both ends stay until it is done in stream order.
    pub(crate) fn copy(&self, from: sys::CUdeviceptr, to: &Pinned, bytes: usize) -> Result<()> {
        self.carry(false, from, to, bytes)
    }

    /// The same, after which the bytes on the device are zero.
    pub(crate) fn take(&self, from: sys::CUdeviceptr, to: &Pinned, bytes: usize) -> Result<()> {
        self.carry(true, from, to, bytes)
    }

    fn carry(&self, takes: bool, from: sys::CUdeviceptr, to: &Pinned, bytes: usize) -> Result<()> {
        let stream = self.context.stream();
        let result = match u32::try_from(bytes) {
            Ok(0) => return Ok(()),
            Ok(threads @ ..=MOST) => {
                let kernel = self.kernels[usize::from(takes)].wait(|code| Function::load(&self.context, code))?;
                // Pinned memory has one address, here and there.
                kernel.launch_between(stream, [to.pointer as sys::CUdeviceptr, from], threads)
            }
            // SAFETY: the caller keeps both ranges until the copy is done in stream order.
            Ok(_) | Err(_) => match unsafe { sys::cuMemcpyDtoHAsync_v2(to.pointer.cast(), from, bytes, stream) } {
                // SAFETY: as above.
                sys::CUresult::CUDA_SUCCESS if takes => unsafe { sys::cuMemsetD8Async(from, 0, bytes, stream) },
                result => result,
            },
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
        for (capability, takes) in [80, 90, 120].into_iter().flat_map(|capability| [(capability, false), (capability, true)]) {
            assert_eq!(HostCopy::code(&compiler, takes, capability).unwrap().entries[0].symbol, "copy_to_host");
        }
    }
}
