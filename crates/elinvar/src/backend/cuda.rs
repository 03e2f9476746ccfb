//! NVIDIA's GPUs, for which Apple's systems have no driver.

use elinvar_core::Result;

use super::opened::Opened;

#[cfg(all(feature = "cuda", not(target_vendor = "apple")))]
pub(super) fn open(ordinal: usize) -> Result<Opened> {
    let backend = elinvar_cuda::CudaBackend::new(ordinal)?;
    let software = backend.software();
    let peers = elinvar_cuda::CudaBackend::peers(ordinal)?.into_iter().map(super::BackendType::Cuda).collect();
    Ok(Opened { software, peers, ..Opened::new(backend) })
}

#[cfg(not(all(feature = "cuda", not(target_vendor = "apple"))))]
pub(super) fn open(_ordinal: usize) -> Result<Opened> {
    Err(super::opened::absent("cuda", cfg!(feature = "cuda"), "NVIDIA offers no driver for this system: use cpu here"))
}

/// Whether there is one, or its driver.
pub(super) fn is_expected() -> bool {
    #[cfg(all(feature = "cuda", not(target_vendor = "apple")))]
    let is_expected = elinvar_cuda::CudaBackend::is_expected();
    #[cfg(not(all(feature = "cuda", not(target_vendor = "apple"))))]
    let is_expected = false;
    is_expected
}

/// GPUs the driver sees, at least one, so that there is something to say why it cannot be used.
pub(super) fn count() -> usize {
    #[cfg(all(feature = "cuda", not(target_vendor = "apple")))]
    let count = elinvar_cuda::CudaBackend::count().unwrap_or(1);
    #[cfg(not(all(feature = "cuda", not(target_vendor = "apple"))))]
    let count = 1;
    count
}

/// The compiler for NVIDIA's GPUs, which need not be there.
///
/// # Errors
/// It is not found, this system has none, or this build leaves CUDA out; the message says what to do.
pub fn cuda_compiler() -> Result<String> {
    let [major, minor] = compiler_version()?;
    Ok(format!("NVRTC {major}.{minor}"))
}

#[cfg(all(feature = "cuda", not(target_vendor = "apple")))]
fn compiler_version() -> Result<[i32; 2]> {
    Ok(elinvar_cuda::Compiler::new(None)?.version())
}

#[cfg(not(all(feature = "cuda", not(target_vendor = "apple"))))]
fn compiler_version() -> Result<[i32; 2]> {
    Err(super::opened::absent("cuda", cfg!(feature = "cuda"), "NVIDIA offers none for this system"))
}
