//! Weights that stay at hand: buffers in the queue's residency set, where the system has such sets. Elsewhere each command buffer makes resident what
//! is bound in it, which Metal does by itself.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::api::Api;

/// The device's residency set and what has changed in it.
pub(crate) struct Residency<A: Api> {
    api: Arc<A>,
    state: Mutex<State<A>>,
}

struct State<A: Api> {
    set: Option<A::ResidencySet>,
    /// Whether something was added that is not requested yet.
    added: bool,
}

impl<A: Api> Residency<A> {
    /// None of a device's buffers.
    pub(crate) fn new(api: Arc<A>) -> Arc<Self> {
        let set = api.scope(|| api.residency_set());
        Arc::new(Self { api, state: Mutex::new(State { set, added: false }) })
    }

    fn state(&self) -> MutexGuard<'_, State<A>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a buffer resident from the next submission on, until [`Residency::remove`].
    pub(crate) fn add(&self, buffer: &A::Buffer) {
        let mut state = self.state();
        if let Some(set) = &state.set {
            self.api.scope(|| self.api.add_resident(set, buffer));
            state.added = true;
        }
    }

    /// Lets a buffer go, at once: a set that is not committed keeps its memory.
    pub(crate) fn remove(&self, buffer: &A::Buffer) {
        let state = self.state();
        if let Some(set) = &state.set {
            self.api.scope(|| {
                self.api.remove_resident(set, buffer);
                self.api.commit_residency(set);
            });
        }
    }

    /// Makes what was added resident: one request for all the weights of a model, before their first use.
    pub(crate) fn settle(&self) {
        let mut state = self.state();
        if state.added
            && let Some(set) = &state.set
        {
            self.api.commit_residency(set);
            self.api.request_residency(set);
            state.added = false;
        }
    }
}
