//! Texts that are being generated.

use std::{
    ops::ControlFlow,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
};

use elinvar::Result;
use elinvar_llm::{Event, Finish, Generated, GenerationOptions};
use pyo3::{PyResult, Python, pyclass, pymethods};

use super::model::Shared;
use crate::{
    errors::raise,
    work::{lock, receive, start},
};

/// What comes of a generation.
enum Message {
    Text(String),
    Done(Result<Generated>),
}

/// A generation in progress on a thread of its own, which is at most one piece of text ahead.
#[pyclass(frozen, module = "elinvar._elinvar")]
pub(crate) struct NativeStream {
    receiver: Mutex<Option<Receiver<Message>>>,
    is_cancelled: Arc<AtomicBool>,
    generated: Mutex<Option<Generated>>,
}

/// Text, tokens, why it ended, tokens of the prompt and those of them that were in the cache, seconds of prefill, until the first token and of decoding.
type Summary = (String, Vec<u32>, &'static str, [usize; 2], [f64; 3]);

impl NativeStream {
    pub(super) fn new(model: Arc<Shared>, prompt: Vec<u32>, options: GenerationOptions) -> PyResult<Self> {
        let (sender, receiver) = sync_channel(0);
        let is_cancelled = Arc::new(AtomicBool::new(false));
        let cancelled = is_cancelled.clone();
        start(move || {
            let result = generate(&model, &prompt, &options, &sender, &cancelled);
            drop(model);
            // Nothing is left to do if nothing waits any more.
            drop(sender.send(Message::Done(result)));
        })?;
        Ok(Self { receiver: Mutex::new(Some(receiver)), is_cancelled, generated: Mutex::default() })
    }
}

fn generate(
    model: &Shared,
    prompt: &[u32],
    options: &GenerationOptions,
    sender: &SyncSender<Message>,
    is_cancelled: &AtomicBool,
) -> Result<Generated> {
    model.generate(prompt, options, &mut |event| {
        let is_lost = match event {
            Event::Prefilled { .. } => false,
            Event::Text(text) => sender.send(Message::Text(text.to_owned())).is_err(),
        };
        if is_lost || is_cancelled.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })
}

#[pymethods]
impl NativeStream {
    /// The next piece of text; `None` at the end.
    fn next(&self, py: Python<'_>) -> PyResult<Option<String>> {
        match receive(py, &self.receiver) {
            Ok(Some(Message::Text(text))) => Ok(Some(text)),
            Ok(Some(Message::Done(result))) => {
                self.close(py);
                *lock(&self.generated) = Some(result.map_err(raise)?);
                Ok(None)
            }
            Ok(None) => Ok(None),
            Err(signal) => {
                self.close(py);
                Err(signal)
            }
        }
    }

    /// Ends the generation with the step under way.
    fn close(&self, py: Python<'_>) {
        self.is_cancelled.store(true, Ordering::Relaxed);
        // Another thread may be waiting with it.
        py.detach(|| drop(lock(&self.receiver).take()));
    }

    /// What was generated, if it went on to its end.
    fn result(&self) -> Option<Summary> {
        lock(&self.generated).as_ref().map(|generated| {
            let finish = match generated.finish {
                Finish::EndToken => "end",
                Finish::StopString => "stop",
                Finish::MaxTokens => "length",
                Finish::ContextFull => "context",
                Finish::Cancelled => "cancelled",
            };
            let statistics = &generated.statistics;
            let seconds = [statistics.prefill, statistics.first_token, statistics.decode].map(|time| time.as_secs_f64());
            let prompt = [statistics.prompt_tokens, statistics.reused_tokens];
            (generated.text.clone(), generated.tokens.clone(), finish, prompt, seconds)
        })
    }
}

impl Drop for NativeStream {
    fn drop(&mut self) {
        self.is_cancelled.store(true, Ordering::Relaxed);
    }
}
