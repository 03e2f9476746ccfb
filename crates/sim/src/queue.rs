//! Queues and completions: commands run in order on a host thread of the queue's own.

use std::{
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        mpsc::{Receiver, Sender, channel},
    },
    thread::JoinHandle,
};

use elinvar_core::{Error, Result};

use crate::{
    commands::CommandBuffer,
    finding::Report,
    simulator::{Device, Simulator},
    worker::Worker,
};

/// Runs command buffers one after another, in the order they were submitted. Dropping it waits for all of them.
pub struct Queue {
    submit: Option<Sender<(CommandBuffer, Completion)>>,
    thread: Option<JoinHandle<()>>,
}

impl Simulator {
    /// A queue, with a host thread of its own.
    ///
    /// # Errors
    /// The system rejects a thread, its stacks or its timer.
    pub fn queue(&self) -> Result<Queue> {
        let (submit, submitted) = channel();
        let (ready, started) = channel();
        let device = self.0.clone();
        let thread = std::thread::Builder::new().name("metal-sim".to_owned()).spawn(move || serve(&device, &submitted, &ready));
        let thread = thread.map_err(|cause| Error::out_of_memory(format!("a thread for a simulated queue was rejected: {cause}")))?;
        started.recv().unwrap_or_else(|_| Err(lost()))?;
        Ok(Queue { submit: Some(submit), thread: Some(thread) })
    }
}

impl Queue {
    /// Starts a command buffer after those submitted before; returns at once.
    pub fn submit(&self, commands: CommandBuffer) -> Completion {
        self.submit_then(commands, |_| {})
    }

    /// The same; `handler` is called on the queue's thread once they have completed, before waiting threads return.
    pub fn submit_then(&self, commands: CommandBuffer, handler: impl FnOnce(Result<Arc<Report>>) + Send + 'static) -> Completion {
        let completion = Completion(Arc::new((Mutex::new(State { handler: Some(Box::new(handler)), result: None }), Condvar::new())));
        let sent = self.submit.as_ref().map(|submit| submit.send((commands, completion.clone())));
        if !matches!(sent, Some(Ok(()))) {
            completion.complete(Err(lost()));
        }
        completion
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.submit = None;
        // A handler may have held the last reference: then this is the queue's own thread, which ends by itself.
        if let Some(thread) = self.thread.take().filter(|thread| thread.thread().id() != std::thread::current().id()) {
            // A panic there has been printed, and waiting completions got an error.
            let _ = thread.join();
        }
    }
}

fn lost() -> Error {
    Error::device_lost("the simulator's queue has ended: make a new one")
}

fn serve(device: &Arc<Device>, submitted: &Receiver<(CommandBuffer, Completion)>, ready: &Sender<Result<()>>) {
    let mut worker = match Worker::new(device) {
        Ok(worker) => worker,
        // Nobody listens only if the caller is gone.
        Err(error) => return drop(ready.send(Err(error))),
    };
    let _ = ready.send(Ok(()));
    while let Ok((commands, completion)) = submitted.recv() {
        let abandoned = Abandoned(&completion);
        let result = worker.run(&commands);
        drop(commands);
        completion.complete(result);
        drop(abandoned);
    }
}

/// Fails waiting completions if the queue's thread unwinds.
struct Abandoned<'a>(&'a Completion);

impl Drop for Abandoned<'_> {
    fn drop(&mut self) {
        self.0.complete(Err(lost()));
    }
}

/// A submitted command buffer's future end. Clones are the same.
#[derive(Clone)]
pub struct Completion(Arc<(Mutex<State>, Condvar)>);

type Handler = Box<dyn FnOnce(Result<Arc<Report>>) + Send>;

struct State {
    handler: Option<Handler>,
    result: Option<Result<Arc<Report>>>,
}

impl Completion {
    /// Blocks until done. Findings are not errors.
    ///
    /// # Errors
    /// The simulator could not go on: out of memory, queue ended.
    pub fn wait(&self) -> Result<Arc<Report>> {
        let (state, done) = &*self.0;
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match &state.result {
                Some(result) => return result.clone(),
                None => state = done.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// Whether it is done.
    pub fn is_complete(&self) -> bool {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner).result.is_some()
    }

    /// The first result stands.
    fn complete(&self, result: Result<Report>) {
        let (state, done) = &*self.0;
        let result = result.map(Arc::new);
        let handler = state.lock().unwrap_or_else(PoisonError::into_inner).handler.take();
        if let Some(handler) = handler {
            handler(result.clone());
        }
        state.lock().unwrap_or_else(PoisonError::into_inner).result.get_or_insert(result);
        done.notify_all();
    }
}
