use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::Result;

/// How a device tells that a list is done.
pub trait Wait: Send + Sync {
    /// Blocks until the list has completed; the error of its execution, if any.
    ///
    /// # Errors
    /// What went wrong on the device.
    fn wait(&self) -> Result<()>;

    /// Whether it has completed (or failed).
    fn is_complete(&self) -> bool;
}

/// A submitted list's future end. Dropping it neither waits nor cancels.
#[derive(Clone)]
pub struct Completion(Arc<dyn Wait>);

impl Completion {
    /// Wraps a device's own.
    pub fn new(wait: Arc<dyn Wait>) -> Self {
        Self(wait)
    }

    /// Of work already done.
    pub fn ready(result: Result<()>) -> Self {
        let signal = Signal::new();
        signal.complete(result);
        Self(signal)
    }

    /// Blocks until done.
    ///
    /// # Errors
    /// What went wrong on the device.
    pub fn wait(&self) -> Result<()> {
        self.0.wait()
    }

    /// Whether it is done.
    pub fn is_complete(&self) -> bool {
        self.0.is_complete()
    }
}

/// A completion that a host thread fulfils.
#[derive(Default)]
pub struct Signal {
    result: Mutex<Option<Result<()>>>,
    done: Condvar,
}

impl Signal {
    /// A pending one.
    pub fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    /// Fulfils it; the first result stands.
    pub fn complete(&self, result: Result<()>) {
        self.result.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(result);
        self.done.notify_all();
    }
}

impl Wait for Signal {
    fn wait(&self) -> Result<()> {
        let mut result = self.result.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match &*result {
                Some(done) => return done.clone(),
                None => result = self.done.wait(result).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    fn is_complete(&self) -> bool {
        self.result.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }
}
