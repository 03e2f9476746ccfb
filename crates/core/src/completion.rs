use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::{Error, Result};

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
    state: Mutex<State>,
    done: Condvar,
}

#[derive(Default)]
struct State {
    result: Option<Result<()>>,
    told: bool,
}

impl Signal {
    /// A pending one.
    pub fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    /// Fulfils it; the first result stands.
    pub fn complete(&self, result: Result<()>) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).result.get_or_insert(result);
        self.done.notify_all();
    }

    /// Blocks until done; its error, unless somebody was told already.
    ///
    /// # Errors
    /// What went wrong on the device.
    pub fn wait_untold(&self) -> Result<()> {
        let (told, result) = self.settle();
        if told { Ok(()) } else { result }
    }

    /// Blocks until done: whether its result was told before, and the result.
    fn settle(&self) -> (bool, Result<()>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match &state.result {
                Some(done) => {
                    let done = done.clone();
                    return (std::mem::replace(&mut state.told, true), done);
                }
                None => state = self.done.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}

impl Wait for Signal {
    fn wait(&self) -> Result<()> {
        self.settle().1
    }

    fn is_complete(&self) -> bool {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).result.is_some()
    }
}

/// Submissions that may not have completed yet, and the first error nobody was told.
#[derive(Default)]
pub struct InFlight {
    signals: Vec<Arc<Signal>>,
    failure: Option<Error>,
}

impl InFlight {
    /// Adds a submission, and forgets those that have completed but for their error.
    pub fn push(&mut self, signal: Arc<Signal>) {
        let done: Vec<_> = self.signals.extract_if(.., |s| s.is_complete()).collect();
        done.iter().for_each(|s| self.keep(s));
        self.signals.push(signal);
    }

    /// Waits for all of them; the first error since the last call that nobody was told.
    ///
    /// # Errors
    /// What went wrong on the device.
    pub fn settle(&mut self) -> Result<()> {
        let signals = std::mem::take(&mut self.signals);
        signals.iter().for_each(|s| self.keep(s));
        self.failure.take().map_or(Ok(()), Err)
    }

    fn keep(&mut self, signal: &Signal) {
        if let Err(error) = signal.wait_untold() {
            self.failure.get_or_insert(error);
        }
    }
}
