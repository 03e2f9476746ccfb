//! The thread of an engine, and what others ask of it.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::Instant,
};

use elinvar::{Error, Result, World};
use elinvar_llm::{Constraint, Engine, EngineStatistics, Finish, Logprobs, Output, Request, RequestId};
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc as channel, oneshot};

use crate::grammar::Grammar;

/// What comes of a request.
pub(crate) enum Event {
    /// It is in the queue.
    Accepted,
    /// As many requests wait as may.
    Busy,
    /// A token; if the request reports its logits, the hash of those and the tokens so far: a reader that is slow keeps no logits.
    Token { token: u32, logprobs: Option<Logprobs>, digest: Option<blake3::Hash>, cached_tokens: usize },
    /// The end of the answer.
    Finished { finish: Finish, cached_tokens: usize },
    /// It cannot be computed, or not on.
    Failed(Error),
}

/// A request that the engine has.
#[derive(Clone, Debug)]
pub(crate) struct Slot {
    /// Numbers what was asked for together.
    pub(crate) ticket: u64,
    pub(crate) index: usize,
    pub(crate) prompt_tokens: usize,
    pub(crate) generated_tokens: usize,
    pub(crate) max_tokens: usize,
    pub(crate) seconds: f64,
}

/// What an engine was asked, for those of other processes.
#[derive(Serialize, Deserialize)]
enum Call {
    Submit { request: Box<Request>, grammar: Option<Grammar> },
    Cancel(RequestId),
}

/// Has an engine do what that of the first process does, until it ends. `limit` makes the constraint of a request.
pub(crate) fn follow(mut engine: Engine, world: &World, limit: impl Fn(&Grammar, &Request) -> Result<Constraint>) -> Result<()> {
    let invalid = |e: serde_json::Error| Error::internal(format!("process 0 sent what are no calls: {e}"));
    loop {
        let calls = match world.broadcast(&[]) {
            Err(_) if world.has_ended(0) => return Ok(()),
            calls => serde_json::from_slice::<Vec<Call>>(&calls?).map_err(invalid)?,
        };
        for call in calls {
            match call {
                Call::Submit { mut request, grammar } => {
                    request.constraint = grammar.map(|grammar| limit(&grammar, &request)).transpose()?;
                    engine.submit(*request)?;
                }
                Call::Cancel(id) => drop(engine.cancel(id)),
            }
        }
        engine.step();
        world.check()?;
    }
}

enum Command {
    Submit { ticket: u64, requests: Vec<Request>, grammar: Option<Grammar>, events: channel::UnboundedSender<(usize, Event)> },
    Cancel { ticket: u64, index: Option<usize> },
    Slots(oneshot::Sender<Vec<Slot>>),
}

/// An engine on a thread of its own, which ends when all that ask it are gone.
pub(crate) struct Worker {
    commands: mpsc::Sender<Command>,
    statistics: Arc<Mutex<EngineStatistics>>,
    tickets: AtomicU64,
    /// The other processes whose engines do the same, if there are some.
    world: Option<World>,
    thread: thread::JoinHandle<()>,
}

impl Worker {
    pub(crate) fn start(engine: Engine) -> Result<Self> {
        let (commands, receiver) = mpsc::channel();
        let statistics = Arc::new(Mutex::new(engine.statistics()));
        let world = engine.model().executor().world().cloned();
        let state = State { engine, active: HashMap::new(), statistics: statistics.clone(), world: world.clone(), calls: Vec::new() };
        let thread = thread::Builder::new().name("engine".to_owned()).spawn(move || state.run(&receiver));
        let thread = thread.map_err(|e| Error::io(format!("cannot start the engine's thread: {e}")))?;
        Ok(Self { commands, statistics, tickets: AtomicU64::new(0), world, thread })
    }

    /// Asks for answers to requests, all or none of which are taken in.
    pub(crate) fn submit(&self, requests: Vec<Request>, grammar: Option<Grammar>) -> Ticket {
        let (sender, events) = channel::unbounded_channel();
        let id = self.tickets.fetch_add(1, Ordering::Relaxed);
        // If the engine is gone, the channel of events says so.
        let _ = self.commands.send(Command::Submit { ticket: id, requests, grammar, events: sender });
        Ticket { id, commands: self.commands.clone(), events }
    }

    /// After the last step.
    pub(crate) fn statistics(&self) -> EngineStatistics {
        *self.statistics.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The requests that it has; nothing if it is gone.
    pub(crate) async fn slots(&self) -> Vec<Slot> {
        let (sender, receiver) = oneshot::channel();
        let _ = self.commands.send(Command::Slots(sender));
        receiver.await.unwrap_or_default()
    }

    /// Whether the processes that compute with it are there.
    ///
    /// # Errors
    /// One is lost.
    pub(crate) fn check(&self) -> Result<()> {
        self.world.as_ref().map_or(Ok(()), World::check)
    }

    /// Whether it still computes.
    pub(crate) fn is_alive(&self) -> bool {
        !self.thread.is_finished()
    }
}

/// Requests in progress. Dropping it cancels them within a step.
pub(crate) struct Ticket {
    id: u64,
    commands: mpsc::Sender<Command>,
    events: channel::UnboundedReceiver<(usize, Event)>,
}

impl Ticket {
    /// What comes next, and of which request; nothing if the engine is gone.
    pub(crate) async fn next(&mut self) -> Option<(usize, Event)> {
        self.events.recv().await
    }

    /// Ends one of the requests.
    pub(crate) fn cancel(&self, index: usize) {
        let _ = self.commands.send(Command::Cancel { ticket: self.id, index: Some(index) });
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let _ = self.commands.send(Command::Cancel { ticket: self.id, index: None });
    }
}

struct Active {
    ticket: u64,
    index: usize,
    events: channel::UnboundedSender<(usize, Event)>,
    prompt_tokens: usize,
    generated_tokens: usize,
    max_tokens: usize,
    digest: blake3::Hasher,
    since: Instant,
}

impl Active {
    fn add_to_digest(&mut self, token: u32, logits: &[f32]) -> blake3::Hash {
        for logit in logits {
            self.digest.update(&logit.to_le_bytes());
        }
        self.digest.update(&token.to_le_bytes());
        self.digest.finalize()
    }
}

struct State {
    engine: Engine,
    active: HashMap<RequestId, Active>,
    statistics: Arc<Mutex<EngineStatistics>>,
    /// The other processes, if there are some, and what their engines have not been asked yet.
    world: Option<World>,
    calls: Vec<Call>,
}

impl State {
    /// Has the engines of other processes do before the next step what this one did.
    fn share_calls(&mut self) -> Result<()> {
        let Some(world) = &self.world else { return Ok(()) };
        let calls = serde_json::to_vec(&std::mem::take(&mut self.calls)).map_err(|e| Error::internal(format!("calls cannot be written: {e}")))?;
        world.broadcast(&calls).map(drop)
    }

    fn run(mut self, commands: &mpsc::Receiver<Command>) {
        loop {
            if self.engine.is_idle() {
                let Ok(command) = commands.recv() else { return };
                self.apply(command);
            }
            while let Ok(command) = commands.try_recv() {
                self.apply(command);
            }
            if !self.engine.is_idle() {
                if let Err(error) = self.share_calls() {
                    tracing::error!("{error}");
                    let requests: Vec<_> = self.active.keys().copied().collect();
                    return requests.into_iter().for_each(|request| self.end(request, Event::Failed(error.clone())));
                }
                for output in self.engine.step() {
                    self.pass(output);
                }
            }
            *self.statistics.lock().unwrap_or_else(PoisonError::into_inner) = self.engine.statistics();
        }
    }

    fn apply(&mut self, command: Command) {
        match command {
            Command::Submit { ticket, requests, grammar, events } => self.submit(ticket, requests, grammar, &events),
            Command::Cancel { ticket, index } => {
                let is_meant = |active: &Active| active.ticket == ticket && index.is_none_or(|index| index == active.index);
                let ids: Vec<_> = self.active.iter().filter(|(_, active)| is_meant(active)).map(|(id, _)| *id).collect();
                ids.into_iter().for_each(|id| self.cancel(id));
            }
            Command::Slots(reply) => {
                let slot = |active: &Active| Slot {
                    ticket: active.ticket,
                    index: active.index,
                    prompt_tokens: active.prompt_tokens,
                    generated_tokens: active.generated_tokens,
                    max_tokens: active.max_tokens,
                    seconds: active.since.elapsed().as_secs_f64(),
                };
                let mut slots: Vec<_> = self.active.values().map(slot).collect();
                slots.sort_by_key(|slot| (slot.ticket, slot.index));
                // Whoever asked may be gone.
                let _ = reply.send(slots);
            }
        }
    }

    fn cancel(&mut self, id: RequestId) {
        self.engine.cancel(id);
        self.active.remove(&id);
        if self.world.is_some() {
            self.calls.push(Call::Cancel(id));
        }
    }

    fn submit(&mut self, ticket: u64, requests: Vec<Request>, grammar: Option<Grammar>, events: &channel::UnboundedSender<(usize, Event)>) {
        // A receiver that is gone has cancelled what it asked for.
        let send = |index: usize, event: Event| drop(events.send((index, event)));
        if self.engine.statistics().waiting + requests.len() > self.engine.options().waiting {
            return send(0, Event::Busy);
        }
        let mut ids = Vec::new();
        for (index, request) in requests.into_iter().enumerate() {
            let (prompt_tokens, max_tokens) = (request.prompt.len(), request.max_tokens);
            let call = self.world.is_some().then(|| Call::Submit { request: Box::new(request.clone()), grammar: grammar.clone() });
            match self.engine.submit(request) {
                Ok(id) => {
                    self.calls.extend(call);
                    ids.push(id);
                    let (digest, since) = (blake3::Hasher::new(), Instant::now());
                    let active = Active { ticket, index, events: events.clone(), prompt_tokens, generated_tokens: 0, max_tokens, digest, since };
                    self.active.insert(id, active);
                }
                Err(error) => {
                    ids.into_iter().for_each(|id| self.cancel(id));
                    return send(index, Event::Failed(error));
                }
            }
        }
        send(0, Event::Accepted);
    }

    fn pass(&mut self, output: Output) {
        match output {
            Output::Token { request, token, cached_tokens, logprobs, logits } => {
                if let Some(active) = self.active.get_mut(&request) {
                    active.generated_tokens += 1;
                    let digest = logits.map(|logits| active.add_to_digest(token, &logits));
                    let _ = active.events.send((active.index, Event::Token { token, logprobs, digest, cached_tokens }));
                }
            }
            Output::Finished { request, finish, cached_tokens } => self.end(request, Event::Finished { finish, cached_tokens }),
            Output::Failed { request, error } => self.end(request, Event::Failed(error)),
        }
    }

    fn end(&mut self, request: RequestId, event: Event) {
        if let Some(active) = self.active.remove(&request) {
            let _ = active.events.send((active.index, event));
        }
    }
}
