//! Processes that run the same program, on one host or several, and what they exchange.
//!
//! Each has a connection with each other one, on which it also says every second that it lives ([`Place::silence`]). So a process that was killed, or whose host is gone, is an
//! error of all others within seconds, whatever they do.

mod link;
mod meeting;
mod place;
#[cfg(test)]
mod tests;

use std::{
    hash::Hasher,
    sync::{Arc, Mutex, PoisonError},
};

use elinvar_core::{Error, FastHasher, Peers, Result};

use link::{Link, Mail, Message};
pub use place::Place;

/// What an exchange is.
const PARTS: u64 = 0;
const BROADCAST: u64 = 1;

/// The processes of a job, as one of them sees them: all run the same program on the same input, and make the same calls in the same order. Clones are the same.
///
/// Connections are neither encrypted nor authenticated, and any program that reaches the port can take part: use a private network.
#[derive(Clone)]
pub struct World(Arc<Joined>);

struct Joined {
    place: Place,
    /// None at its own place.
    links: Vec<Option<Link>>,
    mail: Arc<Mail>,
    /// Exchanges so far.
    exchanges: Mutex<u64>,
}

impl World {
    /// Meets the other processes.
    ///
    /// # Errors
    /// The port is in use, a process does not come in time, two have one rank, or they run different versions.
    pub fn join(place: Place) -> Result<Self> {
        let streams = meeting::meet(&place)?;
        let (silence, mail) = (place.silence, Arc::new(Mail::new(place.rank, streams.len(), place.silence)));
        let links = streams.into_iter().enumerate().map(|(process, stream)| stream.map(|stream| Link::new(process, stream, &mail)).transpose());
        let links = links.collect::<Result<_>>()?;
        let joined = Arc::new(Joined { place, links, mail, exchanges: Mutex::default() });
        link::beat(Arc::downgrade(&joined), silence)?;
        Ok(Self(joined))
    }

    /// Where this process is among them.
    pub fn place(&self) -> &Place {
        &self.0.place
    }

    /// Whether it is the first, which prints and writes.
    pub fn is_first(&self) -> bool {
        self.0.place.rank == 0
    }

    /// Whether all others are there.
    ///
    /// # Errors
    /// A process was killed, its host is gone, or it reported an error.
    pub fn check(&self) -> Result<()> {
        self.0.mail.check()
    }

    /// Whether a process has said that it is done.
    pub fn has_ended(&self, process: usize) -> bool {
        self.0.mail.has_ended(process)
    }

    /// What each process gives, in their order.
    ///
    /// # Errors
    /// As [`World::check`]; another process ended, or does something else.
    pub fn all_gather(&self, own: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.gather(PARTS, own)
    }

    /// Has other processes notice if they do not `note` the same, in the same order; nothing waits for that.
    pub fn note(&self, what: u64) -> Result<()> {
        self.0.mail.note(what);
        self.0.links.iter().flatten().try_for_each(|link| link.note(what, &self.0.mail))
    }

    fn gather(&self, what: u64, own: &[u8]) -> Result<Vec<Vec<u8>>> {
        let head = self.next(what);
        for link in self.0.links.iter().flatten() {
            link.send(head, own, &self.0.mail)?;
        }
        let part = |(process, link): (usize, &Option<Link>)| match link {
            Some(_) => self.receive(process, head, false),
            None => Ok(own.to_vec()),
        };
        self.0.links.iter().enumerate().map(part).collect()
    }

    /// What the first process gives, whenever it does.
    ///
    /// # Errors
    /// As [`World::all_gather`].
    pub fn broadcast(&self, own: &[u8]) -> Result<Vec<u8>> {
        let head = self.next(BROADCAST);
        if !self.is_first() {
            return self.receive(0, head, true);
        }
        self.0.links.iter().flatten().try_for_each(|link| link.send(head, own, &self.0.mail))?;
        Ok(own.to_vec())
    }

    /// Whether all processes have the same `value` of `what`, such as `model`.
    ///
    /// # Errors
    /// As [`World::all_gather`]; a process has another one.
    pub fn agree(&self, what: &str, value: &[u8]) -> Result<()> {
        let values = self.gather(hash(what.as_bytes()), value)?;
        match values.iter().position(|other| *other != values[0]) {
            Some(process) => {
                Err(Error::invalid_argument(format!("process {process} has another {what} than process 0: give all processes the same")))
            }
            None => Ok(()),
        }
    }

    /// Calls `then` when another process is lost, or at once if one is.
    pub(crate) fn on_failure(&self, then: impl FnOnce() + Send + 'static) {
        self.0.mail.on_failure(Box::new(then));
    }

    /// Reports an error of this process to all others, which end with it, and waits for them as [`World::leave`] does.
    pub fn fail(&self, error: &Error) {
        self.0.end(Some(&error.to_string()));
    }

    /// Says that this process is done, and waits some seconds for the others, which may still take what it gave. Dropping the last clone does so, too.
    pub fn leave(&self) {
        self.0.end(None);
    }

    /// The head of the next exchange.
    fn next(&self, what: u64) -> [u64; 2] {
        let mut exchanges = self.0.exchanges.lock().unwrap_or_else(PoisonError::into_inner);
        *exchanges += 1;
        [*exchanges, what]
    }

    fn receive(&self, process: usize, head: [u64; 2], may_idle: bool) -> Result<Vec<u8>> {
        let Message { head: found, bytes } = self.0.mail.take(process, may_idle)?;
        if found == head {
            return Ok(bytes);
        }
        Err(link::differs(process))
    }
}

impl Joined {
    fn end(&self, reason: Option<&str>) {
        self.links.iter().flatten().for_each(|link| link.end(reason));
        self.mail.wait_for_ends();
    }
}

impl Peers for World {
    fn place(&self) -> [usize; 2] {
        [self.0.place.rank, self.0.place.world_size]
    }

    fn all_gather(&self, own: &[u8]) -> Result<Vec<Vec<u8>>> {
        World::all_gather(self, own)
    }

    fn check(&self) -> Result<()> {
        World::check(self)
    }
}

impl Drop for Joined {
    fn drop(&mut self) {
        self.end(None);
    }
}

/// A number for something that all processes have alike.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = FastHasher::default();
    hasher.write(bytes);
    hasher.finish()
}
