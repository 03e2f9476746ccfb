use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex, PoisonError},
};

use crate::{Error, Result};

/// How a device reports that a list is done.
pub trait Wait: Send + Sync {
    /// Blocks until the list has completed: whether its result was told before, and the result, an error if its execution failed.
    fn settle(&self) -> (bool, Result<()>);

    /// Blocks until the list has completed; the error of its execution, if any.
    ///
    /// # Errors
    /// What went wrong on the device.
    fn wait(&self) -> Result<()> {
        self.settle().1
    }

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
}

impl Wait for Signal {
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

    fn is_complete(&self) -> bool {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).result.is_some()
    }
}

/// Submissions that may not have completed yet, in the order they will, and the first error nobody was told.
pub struct InFlight<W> {
    submissions: VecDeque<Arc<W>>,
    failure: Option<Error>,
}

impl<W> Default for InFlight<W> {
    fn default() -> Self {
        Self { submissions: VecDeque::new(), failure: None }
    }
}

impl<W: Wait> InFlight<W> {
    /// Adds a submission, and forgets those that have completed but for their error.
    pub fn push(&mut self, submission: Arc<W>) {
        while let Some(oldest) = self.submissions.pop_front_if(|oldest| oldest.is_complete()) {
            self.keep(&oldest);
        }
        self.submissions.push_back(submission);
    }

    /// Waits for all of them.
    pub fn wait(&mut self) {
        while let Some(oldest) = self.submissions.pop_front() {
            self.keep(&oldest);
        }
    }

    /// Waits for all of them; the first error since the last call that nobody was told.
    ///
    /// # Errors
    /// What went wrong on the device.
    pub fn settle(&mut self) -> Result<()> {
        self.wait();
        self.failure.take().map_or(Ok(()), Err)
    }

    fn keep(&mut self, submission: &W) {
        if let (false, Err(error)) = submission.settle() {
            self.failure.get_or_insert(error);
        }
    }
}
