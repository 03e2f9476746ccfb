//! Lists on their way: when they are done, and what they refused.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use elinvar_core::{Error, Pipeline, Result, Wait};

use crate::{
    commands::WORD,
    driver::Event,
    memory::{Pieces, Pinned},
};

/// A submitted list.
pub(crate) struct Submission {
    done: Event,
    state: Mutex<State>,
}

struct State {
    refusals: Option<Refusals>,
    result: Option<Result<()>>,
    told: bool,
}

/// Where the words of the launches that may refuse arrive, in order.
pub(crate) struct Refusals {
    pub(crate) words: Pinned,
    pub(crate) kernels: Arc<[Pipeline]>,
    pub(crate) pieces: Arc<Pieces>,
}

impl Refusals {
    /// The first launch's refusal. The words have arrived.
    fn check(self) -> Result<()> {
        // SAFETY: the piece holds as many words as there are kernels, and the copy into it is done.
        let words = unsafe { std::slice::from_raw_parts(self.words.pointer.cast::<u32>(), self.kernels.len()) };
        let refused = first_refusal(words, &self.kernels);
        self.pieces.put_back(self.words);
        refused.map_or(Ok(()), Err)
    }

    /// Bytes of the words.
    pub(crate) fn bytes(&self) -> usize {
        WORD * self.kernels.len()
    }
}

/// Bytes on their way to the host.
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
        let Some(piece) = &self.piece else { return Ok(Vec::new()) };
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

fn first_refusal(words: &[u32], kernels: &[Pipeline]) -> Option<Error> {
    let (word, kernel) = words.iter().zip(kernels).find(|(word, _)| **word > 0)?;
    let source = kernel.source();
    source.metal.as_ref().map(|metal| metal.refused(*word).context(&source.key))
}

impl Submission {
    /// One that is done once the event has passed.
    pub(crate) fn new(done: Event, refusals: Option<Refusals>) -> Self {
        Self { done, state: Mutex::new(State { refusals, result: None, told: false }) }
    }

    /// Blocks until done: whether its result was told before, and the result.
    fn settle(&self) -> (bool, Result<()>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.result.is_none() {
            let waited = self.done.wait();
            let refused = state.refusals.take().filter(|_| waited.is_ok()).map_or(Ok(()), Refusals::check);
            state.result = Some(waited.and(refused));
        }
        let result = state.result.clone().unwrap_or(Ok(()));
        (std::mem::replace(&mut state.told, true), result)
    }

    fn is_past(&self) -> bool {
        self.done.is_past()
    }
}

impl Wait for Submission {
    fn wait(&self) -> Result<()> {
        self.settle().1
    }

    fn is_complete(&self) -> bool {
        self.is_past()
    }
}

/// Submissions not known to be done, and the first error nobody was told.
#[derive(Default)]
pub(crate) struct InFlight {
    submissions: VecDeque<Arc<Submission>>,
    failure: Option<Error>,
}

impl InFlight {
    /// Adds one, and forgets those that are done but for their error.
    pub(crate) fn push(&mut self, submission: Arc<Submission>) {
        while self.submissions.front().is_some_and(|oldest| oldest.is_past()) {
            self.settle_oldest();
        }
        self.submissions.push_back(submission);
    }

    /// Waits for all of them; the first error since the last call that nobody was told.
    pub(crate) fn settle(&mut self) -> Result<()> {
        while !self.submissions.is_empty() {
            self.settle_oldest();
        }
        self.failure.take().map_or(Ok(()), Err)
    }

    fn settle_oldest(&mut self) {
        let Some(submission) = self.submissions.pop_front() else { return };
        if let (false, Err(error)) = submission.settle() {
            self.failure.get_or_insert(error);
        }
    }
}
