//! Work on threads of its own, while Python waits for it: other threads of Python's run, and a signal ends the wait at once.

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        mpsc::{Receiver, RecvTimeoutError, sync_channel},
    },
    thread,
    time::Duration,
};

use elinvar::Result;
use pyo3::{PyResult, Python};

use crate::errors::{InternalError, raise};

/// Signals are looked for so often.
const PATIENCE: Duration = Duration::from_millis(20);

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts work on a thread of its own.
///
/// # Errors
/// The system has none.
pub(crate) fn start(work: impl FnOnce() + Send + 'static) -> PyResult<()> {
    thread::Builder::new().name("elinvar".to_owned()).spawn(work)?;
    Ok(())
}

/// Does work on a thread of its own and waits for it. After a signal the work goes on alone: what it gives is dropped.
///
/// # Errors
/// The work's, or the signal's exception.
pub(crate) fn wait_for<R: Send + 'static>(py: Python<'_>, work: impl FnOnce() -> Result<R> + Send + 'static) -> PyResult<R> {
    let (sender, receiver) = sync_channel(1);
    // If nothing waits any more, nothing wants the result.
    start(move || drop(sender.send(work())))?;
    match receive(py, &Mutex::new(Some(receiver)))? {
        Some(result) => result.map_err(raise),
        None => Err(InternalError::new_err("the work ended without a result")),
    }
}

/// What comes next from another thread; `None` if nothing will.
///
/// # Errors
/// A signal's exception.
pub(crate) fn receive<T: Send>(py: Python<'_>, receiver: &Mutex<Option<Receiver<T>>>) -> PyResult<Option<T>> {
    loop {
        let next = py.detach(|| match &*lock(receiver) {
            Some(receiver) => receiver.recv_timeout(PATIENCE),
            None => Err(RecvTimeoutError::Disconnected),
        });
        match next {
            Ok(value) => return Ok(Some(value)),
            Err(RecvTimeoutError::Disconnected) => return Ok(None),
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
        }
    }
}
