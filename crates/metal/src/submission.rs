//! A list's command buffers on their way.

use std::sync::{Mutex, PoisonError};

use elinvar_core::{Command, Result};

use crate::api::Done;

/// How much a command buffer holds: the device starts on one while the next is encoded.
#[derive(Clone, Copy, Debug)]
pub struct BatchLimits {
    /// Commands.
    pub commands: usize,
    /// Bytes that its commands read and write.
    pub bytes: usize,
}

impl Default for BatchLimits {
    /// Long enough that the host's cost for a command buffer does not count, short enough that the device soon has work.
    fn default() -> Self {
        Self { commands: 128, bytes: 1 << 30 }
    }
}

/// What a command buffer holds so far.
#[derive(Default)]
pub(crate) struct Batch {
    commands: usize,
    bytes: usize,
}

impl Batch {
    /// Whether the command is too much for this one; it is counted otherwise.
    pub(crate) fn is_full(&mut self, command: &Command, limits: BatchLimits) -> bool {
        let bytes = match command {
            Command::Dispatch(dispatch) => dispatch.bindings.iter().flatten().map(|binding| binding.bytes()).sum(),
            Command::Copy(copy) => 2 * copy.source.bytes(),
            Command::Fill(fill) => fill.destination.bytes(),
        };
        let full = self.commands > 0 && (self.commands >= limits.commands || self.bytes.saturating_add(bytes) > limits.bytes);
        if !full {
            self.commands += 1;
            self.bytes = self.bytes.saturating_add(bytes);
        }
        full
    }
}

/// What a list waits for: each of its command buffers, and the end of its encoding.
pub(crate) struct Pending(Mutex<State>);

struct State {
    left: usize,
    result: Result<()>,
    done: Option<Done>,
}

impl Default for Pending {
    fn default() -> Self {
        Self(Mutex::new(State { left: 1, result: Ok(()), done: None }))
    }
}

impl Pending {
    /// A command buffer more to wait for.
    pub(crate) fn begin(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).left += 1;
    }

    /// A command buffer has completed.
    pub(crate) fn end(&self, result: Result<()>) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.left -= 1;
        if state.result.is_ok() {
            state.result = result;
        }
        if state.left == 0 {
            let (result, done) = (std::mem::replace(&mut state.result, Ok(())), state.done.take());
            drop(state);
            if let Some(done) = done {
                done(result);
            }
        }
    }

    /// No more will begin: `done` is called once all have completed, with the first failure.
    pub(crate) fn close(&self, done: Done) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).done = Some(done);
        self.end(Ok(()));
    }
}
