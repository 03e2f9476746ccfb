//! Calls that come back with the same memory: PyTorch gives what a loop allocates the same addresses again, so a call is recorded once and replayed.

use std::{
    collections::HashMap,
    hash::{Hash, Hasher},
    sync::{Mutex, PoisonError},
};

use elinvar::{Executor, Recording, Result, Tensor};

use super::{Described, Known, Place};

/// Bytes for what is between a call's operators, up to which its recording is kept. The recordings of a place share them.
const LARGEST: usize = 64 << 20;

/// Recordings that an operator keeps. Where there are more calls, all begin again.
const MOST: usize = 1024;

/// What identifies a call: where it is, in which process of those that were forked, what it reads and what it writes.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) place: Place,
    pub(super) process: u32,
    pub(super) reads: Vec<Option<Described>>,
    pub(super) writes: Vec<Described>,
    /// Which gradients are wanted.
    pub(super) wanted: Vec<bool>,
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.reads.iter().flatten().chain(&self.writes).for_each(|tensor| state.write_usize(tensor.address));
    }
}

struct Kept {
    recording: Recording,
    writes: Vec<Tensor>,
}

impl Kept {
    /// What values it may reject is reported at once, or by a call after it where work goes on in the order of a stream.
    fn run(&self, executor: &Executor, known: &Known, may_reject: bool) -> Result<()> {
        let completion = executor.replay(&self.recording)?;
        if may_reject && !known.is_blocking {
            known.rejecting().push_back(completion);
            return Ok(());
        }
        self.writes.iter().try_for_each(|output| output.settle(may_reject))
    }
}

/// The calls of an operator.
#[derive(Default)]
pub(super) struct Calls(Mutex<HashMap<Key, Kept>>);

impl Calls {
    /// Makes a call, which `body` records if it is a new one.
    pub(super) fn make(
        &self,
        executor: &Executor,
        known: &Known,
        key: &Key,
        may_reject: bool,
        body: impl FnOnce(&Executor, &[Option<Tensor>], &[Tensor]) -> Result<()>,
    ) -> Result<()> {
        let mut calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kept) = calls.get(key) {
            return kept.run(executor, known, may_reject);
        }
        // SAFETY: what is recorded touches the memory only when it is replayed, for tensors that are there then, at the same addresses.
        let adopt = |tensor: &Described, is_read_only| unsafe { tensor.adopt(executor, key.place, is_read_only) };
        let reads = key.reads.iter().map(|tensor| tensor.as_ref().map(|tensor| adopt(tensor, true)).transpose()).collect::<Result<Vec<_>>>()?;
        let writes = key.writes.iter().map(|tensor| adopt(tensor, false)).collect::<Result<Vec<_>>>()?;
        let mut workspace = known.workspace.lock().unwrap_or_else(PoisonError::into_inner);
        let mut used = workspace.clone();
        let (recording, ()) = executor.record_in(&mut used, |recorded| body(recorded, &reads, &writes))?;
        let made = Kept { recording, writes };
        if used.bytes() > LARGEST {
            return made.run(executor, known, may_reject);
        }
        *workspace = used;
        if calls.len() >= MOST {
            calls.clear();
        }
        calls.entry(key.clone()).or_insert(made).run(executor, known, may_reject)
    }
}
