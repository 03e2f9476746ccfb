//! The connection with another process.
//!
//! What goes over it has a head of four numbers: what it is, the two of an exchange, and how many bytes follow.

use std::{
    collections::VecDeque,
    io::{self, ErrorKind, Read, Write},
    net::{Shutdown, TcpStream},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak},
    thread,
    time::{Duration, Instant},
};

use elinvar_core::{Error, Result};

use super::Joined;

/// Part of an exchange.
const DATA: u64 = 1;
/// The process lives.
const BEAT: u64 = 2;
/// The process ends, with its error if there is one.
const END: u64 = 3;
/// What all processes note alike.
const NOTE: u64 = 4;

/// Beats in the time after which a silent process counts as lost.
const BEATS: u32 = 8;
/// How long a living process may keep others waiting, as it does while it loads.
const STALLED: Duration = Duration::from_secs(1800);

/// A part of an exchange.
pub(super) struct Message {
    pub(super) head: [u64; 2],
    pub(super) bytes: Vec<u8>,
}

/// What came from the other processes, and what became of them.
pub(super) struct Mail {
    state: Mutex<State>,
    came: Condvar,
    /// The number of this process.
    here: usize,
    /// After so long without a word a process counts as lost.
    silence: Duration,
}

struct State {
    /// Of each process.
    messages: Vec<VecDeque<Message>>,
    /// Processes that ended as they should.
    ended: Vec<bool>,
    /// Notes of this process that each has not made yet, or those of it that this one has not.
    notes: Vec<Notes>,
    failure: Option<Error>,
    /// Whether the failure is that processes do not do the same: what they sent is worth nothing then.
    is_contradiction: bool,
    on_failure: Vec<Box<dyn FnOnce() + Send>>,
    /// Threads that do what is to be done on a failure.
    ending: usize,
}

/// Notes that only one of two processes has made so far.
#[derive(Default)]
struct Notes {
    waiting: VecDeque<u64>,
    are_own: bool,
}

impl Notes {
    /// Whether a note is that of the other process, if it has one.
    fn add(&mut self, note: u64, is_own: bool) -> bool {
        if self.waiting.is_empty() || self.are_own == is_own {
            self.are_own = is_own;
            self.waiting.push_back(note);
            return true;
        }
        self.waiting.pop_front() == Some(note)
    }
}

impl Mail {
    pub(super) fn new(here: usize, processes: usize, silence: Duration) -> Self {
        let state = State {
            messages: (0..processes).map(|_| VecDeque::new()).collect(),
            ended: vec![false; processes],
            notes: (0..processes).map(|_| Notes::default()).collect(),
            failure: None,
            is_contradiction: false,
            on_failure: Vec::new(),
            ending: 0,
        };
        Self { state: Mutex::new(state), came: Condvar::new(), here, silence }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.came.notify_all();
    }

    fn fail(&self, error: Error) {
        let mut then = Vec::new();
        self.change(|state| {
            state.failure.get_or_insert(error);
            then = std::mem::take(&mut state.on_failure);
            state.ending += 1;
        });
        then.into_iter().for_each(|then| then());
        self.change(|state| state.ending -= 1);
    }

    pub(super) fn on_failure(&self, then: Box<dyn FnOnce() + Send>) {
        let mut state = self.state();
        if state.failure.is_none() {
            return state.on_failure.push(then);
        }
        drop(state);
        then();
    }

    /// Notes something of this process.
    pub(super) fn note(&self, what: u64) {
        let here = self.here;
        let differing = self.state().notes.iter_mut().enumerate().position(|(process, notes)| process != here && !notes.add(what, true));
        differing.into_iter().for_each(|process| self.contradict(process));
    }

    fn contradict(&self, process: usize) {
        self.state().is_contradiction = true;
        self.fail(differs(process));
    }

    /// Waits a while until all others have ended, or one failed and what is to be done then is done.
    pub(super) fn wait_for_ends(&self) {
        let deadline = Instant::now() + self.silence;
        let mut state = self.state();
        let is_awaited = |state: &State| match state.failure {
            Some(_) => state.ending > 0,
            None => state.ended.iter().enumerate().any(|(process, ended)| process != self.here && !ended),
        };
        while is_awaited(&state) && Instant::now() < deadline {
            let left = deadline.saturating_duration_since(Instant::now());
            state = self.came.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    pub(super) fn check(&self) -> Result<()> {
        self.state().failure.clone().map_or(Ok(()), Err)
    }

    /// Notes that only one of two processes has made so far.
    #[cfg(test)]
    pub(super) fn pending_notes(&self) -> usize {
        self.state().notes.iter().map(|notes| notes.waiting.len()).sum()
    }

    pub(super) fn has_ended(&self, process: usize) -> bool {
        self.state().ended.get(process).is_some_and(|ended| *ended)
    }

    /// The next message of a process, which comes soon or `may_idle`.
    pub(super) fn take(&self, process: usize, may_idle: bool) -> Result<Message> {
        let deadline = Instant::now() + STALLED;
        let mut state = self.state();
        loop {
            if !state.is_contradiction
                && let Some(message) = state.messages[process].pop_front()
            {
                return Ok(message);
            }
            if let Some(failure) = &state.failure {
                return Err(failure.clone());
            }
            if state.ended[process] {
                return Err(ended(process));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() && !may_idle {
                let minutes = STALLED.as_secs() / 60;
                return Err(Error::device_lost(format!("process {process} lives and sent nothing for {minutes} minutes: start all of them again")));
            }
            state = self.came.wait_timeout(state, if may_idle { STALLED } else { left }).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Reads what a process sends, until it ends.
    fn listen(&self, process: usize, mut stream: TcpStream) {
        loop {
            match read(&mut stream) {
                Ok((DATA, message)) => self.change(|state| state.messages[process].push_back(message)),
                Ok((BEAT, _)) => {}
                Ok((NOTE, Message { head: [_, what], .. })) => {
                    if !self.state().notes[process].add(what, false) {
                        self.contradict(process);
                    }
                }
                Ok((END, Message { bytes, .. })) => {
                    return match String::from_utf8_lossy(&bytes) {
                        reason if reason.is_empty() => self.change(|state| state.ended[process] = true),
                        reason => self.fail(Error::device_lost(format!("process {process}: {reason}"))),
                    };
                }
                Ok((kind, _)) => {
                    return self
                        .fail(Error::invalid_data(format!("process {process} sent something of kind {kind}: install one version everywhere")));
                }
                Err(error) => return self.fail(self.gone(process, &error)),
            }
        }
    }

    fn gone(&self, process: usize, error: &io::Error) -> Error {
        let why = match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                let silence = self.silence.as_secs_f32();
                format!("nothing came from process {process} for {silence} s: it was stopped, or its host or the network is down")
            }
            ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
                format!("process {process} ended without a word: it was killed, or its host is down")
            }
            _ => format!("the connection with process {process} failed: {error}"),
        };
        Error::device_lost(format!("{why}; start all processes again"))
    }
}

fn ended(process: usize) -> Error {
    Error::device_lost(format!("process {process} ended before this one: its own message may say why"))
}

pub(super) fn differs(process: usize) -> Error {
    Error::invalid_argument(format!(
        "process {process} does something else than this one: start all with one command, on the same files and settings"
    ))
}

fn read(stream: &mut TcpStream) -> io::Result<(u64, Message)> {
    let mut head = [0; 32];
    stream.read_exact(&mut head)?;
    let (numbers, _) = head.as_chunks::<8>();
    let [kind, number, what, length] = [0, 1, 2, 3].map(|place: usize| u64::from_le_bytes(numbers[place]));
    let (length, mut bytes) = (usize::try_from(length).map_err(io::Error::other)?, Vec::new());
    bytes.try_reserve_exact(length).map_err(io::Error::other)?;
    bytes.resize(length, 0);
    stream.read_exact(&mut bytes)?;
    Ok((kind, Message { head: [number, what], bytes }))
}

/// The way to another process; what comes from it is in the [`Mail`].
pub(super) struct Link {
    process: usize,
    stream: Mutex<TcpStream>,
}

impl Link {
    pub(super) fn new(process: usize, stream: TcpStream, mail: &Arc<Mail>) -> Result<Self> {
        let ready = || {
            stream.set_nodelay(true)?;
            stream.set_write_timeout(Some(mail.silence))?;
            stream.set_read_timeout(Some(mail.silence))?;
            stream.try_clone()
        };
        let (incoming, mail) = (ready().map_err(|e| mail.gone(process, &e))?, mail.clone());
        let listen = move || mail.listen(process, incoming);
        thread::Builder::new().name(format!("elinvar-process-{process}")).spawn(listen).map_err(no_thread)?;
        Ok(Self { process, stream: Mutex::new(stream) })
    }

    /// Sends part of an exchange.
    pub(super) fn send(&self, head: [u64; 2], bytes: &[u8], mail: &Mail) -> Result<()> {
        self.write(DATA, head, bytes, mail)
    }

    /// Sends what this process noted.
    pub(super) fn note(&self, what: u64, mail: &Mail) -> Result<()> {
        self.write(NOTE, [0, what], &[], mail)
    }

    fn write(&self, kind: u64, head: [u64; 2], bytes: &[u8], mail: &Mail) -> Result<()> {
        let mut stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = write(&mut stream, kind, head, bytes) {
            drop(stream);
            // What the process said last, if it said something, comes first.
            thread::sleep(mail.silence / (10 * BEATS));
            let has_ended = mail.has_ended(self.process);
            mail.fail(if has_ended { ended(self.process) } else { mail.gone(self.process, &error) });
            mail.check()?;
        }
        Ok(())
    }

    /// Goes away as a process does that is killed.
    #[cfg(test)]
    pub(super) fn cut(&self) {
        self.stream.lock().unwrap().shutdown(Shutdown::Both).unwrap();
    }

    /// Keeps everything from being sent, as in a process that is stopped.
    #[cfg(test)]
    pub(super) fn hold(&self) -> MutexGuard<'_, TcpStream> {
        self.stream.lock().unwrap()
    }

    /// Says that this process ends. The other may be gone.
    pub(super) fn end(&self, reason: Option<&str>) {
        let mut stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        write(&mut stream, END, [0; 2], reason.unwrap_or_default().as_bytes()).ok();
        stream.shutdown(Shutdown::Write).ok();
    }

    /// Says that this process lives, unless something is being sent, which says it, too.
    fn beat(&self) {
        if let Ok(mut stream) = self.stream.try_lock() {
            // What fails here is noticed by the thread that listens.
            write(&mut stream, BEAT, [0; 2], &[]).ok();
        }
    }
}

fn write(stream: &mut TcpStream, kind: u64, [number, what]: [u64; 2], bytes: &[u8]) -> io::Result<()> {
    let head = [kind, number, what, bytes.len() as u64].map(u64::to_le_bytes).concat();
    // Small messages are one packet.
    const SMALL: usize = 1 << 14;
    if bytes.len() <= SMALL {
        return stream.write_all(&[&head, bytes].concat());
    }
    stream.write_all(&head)?;
    stream.write_all(bytes)
}

/// Says again and again that this process lives, until it has left.
pub(super) fn beat(joined: Weak<Joined>, silence: Duration) -> Result<()> {
    let beat = move || {
        while let Some(joined) = joined.upgrade() {
            joined.links.iter().flatten().for_each(Link::beat);
            drop(joined);
            thread::sleep(silence / BEATS);
        }
    };
    thread::Builder::new().name("elinvar-pulse".into()).spawn(beat).map(drop).map_err(no_thread)
}

fn no_thread(error: io::Error) -> Error {
    Error::with_source(elinvar_core::ErrorKind::Io, "the system gives no thread for the other processes", error)
}
