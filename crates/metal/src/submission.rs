//! A list's command buffers in flight.

use std::sync::{Arc, Mutex, PoisonError};

use elinvar_core::{Activity, Command, ProfileEvent, ProfileLog, Result};

use crate::api::Done;

/// How much a command buffer holds: the device starts on one while the next is encoded.
#[derive(Clone, Copy, Debug)]
pub struct BatchLimits {
    /// Commands.
    pub commands: usize,
    /// Bytes that its commands read and write.
    pub bytes: usize,
}

impl BatchLimits {
    /// While a profile is taken: Metal says when a command buffer ran, not when each of its commands did.
    pub(crate) const PROFILED: Self = Self { commands: 1, bytes: usize::MAX };
}

/// What a command buffer's only command is, for a profile.
pub(crate) struct Timed {
    pub(crate) activity: Activity,
    pub(crate) bytes: u64,
    pub(crate) list: Option<u64>,
}

/// Passes a command buffer's outcome on, and keeps its time if it is timed while a profile is taken.
pub(crate) fn done(profile: &Arc<ProfileLog>, timed: Option<Timed>, report: impl FnOnce(Result<()>) + Send + 'static) -> Done {
    let profile = profile.clone();
    Box::new(move |ran| {
        if let (Some(Timed { activity, bytes, list }), Ok(ran)) = (timed, &ran) {
            profile.add(ProfileEvent { activity, start_ns: ran.start, duration_ns: ran.end.saturating_sub(ran.start), bytes, list });
        }
        report(ran.map(drop));
    })
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
        let bytes = usize::try_from(command.bytes()).unwrap_or(usize::MAX);
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
    done: Option<Ended>,
}

/// Called once a list has ended.
type Ended = Box<dyn FnOnce(Result<()>) + Send>;

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
    pub(crate) fn close(&self, done: Ended) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).done = Some(done);
        self.end(Ok(()));
    }
}
