//! Forked processes: threads do not follow into the child, so devices cannot be used there.

#[cfg(unix)]
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

use pyo3::{PyResult, exceptions::PyRuntimeError};

/// How often this process was forked off, counted in the children.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// The generation of this process, for [`check`].
pub(crate) fn generation() -> u32 {
    #[cfg(unix)]
    {
        static WATCHED: Once = Once::new();
        extern "C" fn in_child() {
            FORKS.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: the handler does nothing but count, which is safe in a forked child. If the system has no memory for it, forks go unnoticed.
        WATCHED.call_once(|| unsafe {
            libc::pthread_atfork(None, None, Some(in_child));
        });
    }
    FORKS.load(Ordering::Relaxed)
}

/// Whether the process is still the one that `made` is the generation of.
///
/// # Errors
/// It was forked since.
pub(crate) fn check(made: u32) -> PyResult<()> {
    if FORKS.load(Ordering::Relaxed) == made {
        return Ok(());
    }
    Err(PyRuntimeError::new_err(
        "the executor was made before this process was forked, and its threads are gone: make an Executor in the child, or start processes by 'spawn'",
    ))
}
