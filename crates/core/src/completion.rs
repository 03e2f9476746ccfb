use std::{
    collections::VecDeque,
    pin::Pin,
    sync::{Arc, Condvar, Mutex, PoisonError},
    task::{Context, Poll, Waker},
};

use crate::error::{Error, Result};

/// How a device reports that a list is done.
pub trait Wait: Send + Sync {
    /// Blocks until the list has completed: whether its result was reported before, and the result, an error if its execution failed.
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

    /// Calls `then` when it has completed, on a thread of the device's, or at once. Later work may wait for what `then` does.
    fn notify(self: Arc<Self>, then: Box<dyn FnOnce() + Send>);
}

/// A submitted list's future end. Dropping it neither waits nor cancels.
///
/// A thread waits for it with [`Completion::wait`], an asynchronous task with `.await`, and [`Completion::on_complete`] calls back.
#[derive(Clone)]
pub struct Completion(Option<Arc<dyn Wait>>);

impl Completion {
    /// Wraps a device's own.
    pub fn new(wait: Arc<dyn Wait>) -> Self {
        Self(Some(wait))
    }

    /// Of work already done.
    pub fn ready(result: Result<()>) -> Self {
        // What went well needs no memory: small work on the CPU is as short as that.
        Self(result.is_err().then(|| {
            let signal = Signal::new();
            signal.complete(result);
            signal as Arc<dyn Wait>
        }))
    }

    /// Blocks until done.
    ///
    /// # Errors
    /// What went wrong on the device.
    pub fn wait(&self) -> Result<()> {
        self.0.as_ref().map_or(Ok(()), |wait| wait.wait())
    }

    /// Whether it is done.
    pub fn is_complete(&self) -> bool {
        self.0.as_ref().is_none_or(|wait| wait.is_complete())
    }

    /// Calls `then` with the result when it is done: on a thread of the device's, which should not be kept long, or at once.
    pub fn on_complete(&self, then: impl FnOnce(Result<()>) + Send + 'static) {
        match &self.0 {
            Some(wait) => {
                let done = self.clone();
                wait.clone().notify(Box::new(move || then(done.wait())));
            }
            None => then(Ok(())),
        }
    }
}

impl IntoFuture for Completion {
    type Output = Result<()>;
    type IntoFuture = Completing;

    fn into_future(self) -> Completing {
        Completing { completion: self, waker: None }
    }
}

/// What `.await` of a [`Completion`] polls.
pub struct Completing {
    completion: Completion,
    /// The task to wake, once it has asked to be.
    waker: Option<Arc<Mutex<Option<Waker>>>>,
}

impl Future for Completing {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let task = Some(context.waker().clone());
        match &self.waker {
            Some(waker) => *waker.lock().unwrap_or_else(PoisonError::into_inner) = task,
            None => {
                let waker = Arc::new(Mutex::new(task));
                self.waker = Some(waker.clone());
                self.completion.on_complete(move |_| {
                    let task = waker.lock().unwrap_or_else(PoisonError::into_inner).take();
                    task.into_iter().for_each(Waker::wake);
                });
            }
        }
        if self.completion.is_complete() { Poll::Ready(self.completion.wait()) } else { Poll::Pending }
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
    reported: bool,
    /// Threads that wait for it: to wake none costs a system call.
    waiting: usize,
    /// What to call when there is one.
    then: Vec<Box<dyn FnOnce() + Send>>,
}

impl Signal {
    /// A pending one.
    pub fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    /// Fulfils it; the first result stands.
    pub fn complete(&self, result: Result<()>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.result.get_or_insert(result);
        let (then, is_awaited) = (std::mem::take(&mut state.then), state.waiting > 0);
        drop(state);
        if is_awaited {
            self.done.notify_all();
        }
        then.into_iter().for_each(|then| then());
    }
}

impl Wait for Signal {
    fn settle(&self) -> (bool, Result<()>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match &state.result {
                Some(done) => {
                    let done = done.clone();
                    return (std::mem::replace(&mut state.reported, true), done);
                }
                None => {
                    state.waiting += 1;
                    state = self.done.wait(state).unwrap_or_else(PoisonError::into_inner);
                    state.waiting -= 1;
                }
            }
        }
    }

    fn is_complete(&self) -> bool {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).result.is_some()
    }

    fn notify(self: Arc<Self>, then: Box<dyn FnOnce() + Send>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.result.is_none() {
            return state.then.push(then);
        }
        drop(state);
        then();
    }
}

/// Submissions that may not have completed yet, in the order they will, and the first error that was not reported.
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
    /// Adds a submission, and at times forgets those that have completed but for their error: to ask a device costs as much as a submission.
    pub fn push(&mut self, submission: Arc<W>) {
        const MANY: usize = 64;
        if self.submissions.len() >= MANY {
            self.forget_completed();
        }
        self.submissions.push_back(submission);
    }

    /// Whether all of them have completed.
    pub fn is_idle(&self) -> bool {
        self.submissions.back().is_none_or(|last| last.is_complete())
    }

    /// Waits for all of them.
    pub fn wait(&mut self) {
        while let Some(oldest) = self.submissions.pop_front() {
            self.keep(&oldest);
        }
    }

    /// Forgets those that have completed; the first error since the last call that was not reported.
    ///
    /// # Errors
    /// What went wrong on the device.
    pub fn settle_completed(&mut self) -> Result<()> {
        self.forget_completed();
        self.failure.take().map_or(Ok(()), Err)
    }

    /// Waits for all of them; the first error since the last call that was not reported.
    ///
    /// # Errors
    /// What went wrong on the device.
    pub fn settle(&mut self) -> Result<()> {
        self.wait();
        self.failure.take().map_or(Ok(()), Err)
    }

    fn forget_completed(&mut self) {
        let completed = self.submissions.partition_point(|submission| submission.is_complete());
        for submission in self.submissions.drain(..completed).collect::<Vec<_>>() {
            self.keep(&submission);
        }
    }

    fn keep(&mut self, submission: &W) {
        if let (false, Err(error)) = submission.settle() {
            self.failure.get_or_insert(error);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::mpsc,
        task::Wake,
        thread::{self, Thread},
    };

    use super::*;
    use crate::reading::Reading;

    struct Unpark(Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    /// The least of executors.
    fn block_on<F: Future>(future: F) -> F::Output {
        let (waker, mut future) = (Arc::new(Unpark(thread::current())).into(), std::pin::pin!(future));
        loop {
            match future.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(value) => return value,
                Poll::Pending => thread::park(),
            }
        }
    }

    #[test]
    fn a_completion_calls_back_once_before_and_after_it_is_done() {
        let signal = Signal::new();
        let completion = Completion::new(signal.clone());
        let (sender, results) = mpsc::channel();
        let call = |sender: &mpsc::Sender<Result<()>>| {
            let sender = sender.clone();
            completion.on_complete(move |result| sender.send(result).unwrap());
        };
        call(&sender);
        assert!(results.try_recv().is_err());
        signal.complete(Err(Error::device_lost("gone")));
        assert!(results.recv().unwrap().unwrap_err().to_string().contains("gone"));
        call(&sender);
        assert!(results.recv().unwrap().is_err() && results.try_recv().is_err());
    }

    #[test]
    fn completions_and_readings_are_awaited() {
        let signal = Signal::new();
        let reading = Reading::new(Completion::new(signal.clone()), || Ok(vec![1, 2]));
        let waiting = thread::spawn(move || block_on(async move { reading.await }));
        signal.complete(Ok(()));
        assert_eq!(waiting.join().unwrap().unwrap(), [1, 2]);
        assert!(block_on(Completion::ready(Err(Error::device_lost("gone"))).into_future()).is_err());
    }
}
