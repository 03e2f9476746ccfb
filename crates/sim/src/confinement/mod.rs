//! A process that runs other people's kernels gives up the system calls that it does not need for that.
//!
//! Metal's kernels make no system calls, but what the simulator compiles is native code, and assembly or a call of the C library's gets as far as the
//! process may. Loading a kernel is the first thing that can run code of its author's, so the first filter is on before it: files can be read, and nothing
//! else is reached. The second, on before the kernel runs, takes the files away too.

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod calls;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod filter;
mod wanted;

use std::{
    ffi::{c_int, c_void},
    ops::Range,
    ptr,
    sync::{
        Mutex, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use elinvar_core::{Error, Result};

pub use wanted::Confinement;
use wanted::WANTED;

static RUNNING: OnceLock<&'static AtomicU64> = OnceLock::new();

/// The number of the threadgroup that runs, other than 0 and never that of another, or 0 where none does. It lies in memory that processes forked from this
/// one share: one can watch whether the other goes on.
///
/// # Errors
/// The system rejects a page.
pub fn running_threadgroup() -> Result<&'static AtomicU64> {
    static MAKING: Mutex<()> = Mutex::new(());
    let _making = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(running) = RUNNING.get() {
        return Ok(running);
    }
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
    // SAFETY: a fresh mapping.
    let page: *mut c_void = unsafe { libc::mmap(ptr::null_mut(), size_of::<AtomicU64>(), protection, flags, -1, 0) };
    if page == libc::MAP_FAILED {
        return Err(Error::out_of_memory(format!("a page to share with another process was rejected: {}", std::io::Error::last_os_error())));
    }
    // SAFETY: the page is zeroed, aligned and never unmapped.
    Ok(RUNNING.get_or_init(|| unsafe { &*page.cast::<AtomicU64>() }))
}

/// Notes which threadgroup runs, for the watching process.
pub(crate) fn set_running(group: u64) {
    if let Some(running) = RUNNING.get() {
        running.store(group, Ordering::Relaxed);
    }
}

/// Confines this process when it has compiled a kernel and before it loads it: no other kernel can be compiled or loaded then, and no file be opened.
/// Whether this system can do that; on others nothing changes.
pub fn confine(confinement: Confinement) -> bool {
    let supported = is_supported();
    if supported {
        // The first stands.
        let _ = WANTED.set(confinement);
    }
    supported
}

/// Loads a kernel, of which `code` gives the addresses, and confines the process around that where it is to be.
pub(crate) fn load<T: Clone>(load: impl FnOnce() -> Result<T>, code: impl FnOnce(&T) -> Range<u64>) -> Result<T> {
    static CONFINED: OnceLock<()> = OnceLock::new();
    let Some(wanted) = WANTED.get().filter(|_| CONFINED.set(()).is_ok()) else { return load() };
    // What runs while a library is loaded can hang too.
    set_running(u64::MAX);
    apply(wanted, None)?;
    let loaded = load()?;
    apply(wanted, Some(code(&loaded)))?;
    set_running(0);
    // Unloading a library runs its author's code as well.
    std::mem::forget(loaded.clone());
    Ok(loaded)
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use self::{calls::name, filter::apply};

/// A system call as people name it.
pub fn system_call_name(number: c_int) -> String {
    name(number).map_or_else(|| format!("number {number}"), str::to_owned)
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn is_supported() -> bool {
    filter::is_supported()
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn is_supported() -> bool {
    false
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn apply(_wanted: &Confinement, _code: Option<Range<u64>>) -> Result<()> {
    Ok(())
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn name(_number: c_int) -> Option<&'static str> {
    None
}
