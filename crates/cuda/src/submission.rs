//! Lists in flight: when they are done, and what they rejected.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use elinvar_core::{ERROR_FLAG_BYTES, Pipeline, Result, Wait, first_rejection};

use crate::{
    driver::{Context, Event},
    memory::{Pieces, Pinned},
};

/// A submitted list.
pub(crate) struct Submission {
    context: Arc<Context>,
    /// Once something asks whether it is done.
    done: OnceLock<Event>,
    state: Mutex<State>,
}

struct State {
    rejections: Option<ErrorFlags>,
    result: Option<Result<()>>,
    reported: bool,
}

/// Where the words of the launches that may reject arrive, in order.
pub(crate) struct ErrorFlags {
    pub(crate) words: Pinned,
    pub(crate) kernels: Arc<[Pipeline]>,
    pub(crate) pieces: Arc<Pieces>,
}

impl ErrorFlags {
    /// The first launch's rejection. The words have arrived.
    fn check(self) -> Result<()> {
        // SAFETY: the piece holds as many words as there are kernels, and the copy into it is done.
        let words = unsafe { std::slice::from_raw_parts(self.words.pointer.cast::<u32>(), self.kernels.len()) };
        let rejected = first_rejection(words.iter().copied(), &self.kernels);
        self.pieces.put_back(self.words);
        rejected.map_or(Ok(()), Err)
    }

    /// Bytes of the words.
    pub(crate) fn bytes(&self) -> usize {
        ERROR_FLAG_BYTES * self.kernels.len()
    }
}

/// Bytes in flight to the host.
pub(crate) struct Arriving {
    piece: Option<Pinned>,
    bytes: usize,
    pieces: Arc<Pieces>,
    done: Arc<Submission>,
}

impl Arriving {
    /// The first `bytes` bytes of `piece`, which a copy fills until `done`.
    pub(crate) fn new(piece: Pinned, bytes: usize, pieces: Arc<Pieces>, done: Arc<Submission>) -> Self {
        Self { piece: Some(piece), bytes, pieces, done }
    }

    /// The bytes, when they are there.
    pub(crate) fn take(self) -> Result<Vec<u8>> {
        self.done.wait()?;
        // A piece of no bytes has no address.
        let Some(piece) = self.piece.as_ref().filter(|_| self.bytes > 0) else { return Ok(Vec::new()) };
        // SAFETY: the piece holds as many bytes, and the copy into it is done.
        Ok(unsafe { std::slice::from_raw_parts(piece.pointer, self.bytes) }.to_vec())
    }
}

impl Drop for Arriving {
    /// Nobody else may have the piece while it is written.
    fn drop(&mut self) {
        if let Some(piece) = self.piece.take().filter(|_| self.done.wait().is_ok()) {
            self.pieces.put_back(piece);
        }
    }
}

impl Submission {
    /// One that is done once all that the device was given so far is.
    pub(crate) fn new(context: &Arc<Context>, rejections: Option<ErrorFlags>) -> Result<Self> {
        let submission = Self { state: Mutex::new(State { rejections, result: None, reported: false }), ..Self::unmarked(context) };
        submission.done().map(drop)?;
        Ok(submission)
    }

    /// One that nothing is likely to ask for: it is done once all is that the device was given until then. To mark its own end would cost as much as a launch.
    pub(crate) fn unmarked(context: &Arc<Context>) -> Self {
        let state = Mutex::new(State { rejections: None, result: None, reported: false });
        Self { context: context.clone(), done: OnceLock::new(), state }
    }

    fn done(&self) -> Result<&Event> {
        if let Some(done) = self.done.get() {
            return Ok(done);
        }
        self.context.enter()?;
        let event = self.context.record()?;
        Ok(self.done.get_or_init(|| event))
    }
}

impl Wait for Submission {
    fn settle(&self) -> (bool, Result<()>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.result.is_none() {
            let waited = self.done().and_then(Event::wait);
            let rejected = state.rejections.take().filter(|_| waited.is_ok()).map_or(Ok(()), ErrorFlags::check);
            state.result = Some(waited.and(rejected));
        }
        let result = state.result.clone().unwrap_or(Ok(()));
        (std::mem::replace(&mut state.reported, true), result)
    }

    fn is_complete(&self) -> bool {
        self.done().map_or(true, Event::is_past)
    }

    fn notify(self: Arc<Self>, then: Box<dyn FnOnce() + Send>) {
        let submission = self.clone();
        self.context.watcher().start(Box::new(move || {
            // The result is reported to whatever asks for it.
            let _ = submission.done().and_then(Event::wait);
            then();
        }));
    }
}
