//! Calls that come back with the same memory: PyTorch gives what a loop allocates the same addresses again, so a call is recorded once and replayed.

use std::{
    collections::HashMap,
    hash::{Hash, Hasher},
    sync::{Mutex, PoisonError},
};

use elinvar::{Error, Executor, Recording, Result, Tensor};

use super::{Described, Place};

/// Elements of all tensors of a call, up to which its recording is kept. Beyond it the host is not what takes the time, and what a recording keeps of memory
/// would be much.
const SMALL: usize = 1 << 18;

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

impl Key {
    pub(super) fn is_small(&self) -> bool {
        self.reads.iter().flatten().chain(&self.writes).map(|tensor| tensor.layout.shape().elements()).sum::<usize>() <= SMALL
    }
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

/// The calls of an operator.
#[derive(Default)]
pub(super) struct Calls(Mutex<HashMap<Key, Kept>>);

impl Calls {
    /// Makes a call, which `body` records if it is a new one.
    pub(super) fn make(
        &self,
        executor: &Executor,
        key: &Key,
        may_reject: bool,
        body: impl FnOnce(&Executor, &[Option<Tensor>], &[Tensor]) -> Result<()>,
    ) -> Result<()> {
        let mut calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !calls.contains_key(key) {
            // SAFETY: what is recorded touches the memory only when it is replayed, for tensors that are there then, at the same addresses.
            let adopt = |tensor: &Described, is_read_only| unsafe { tensor.adopt(executor, key.place, is_read_only) };
            let reads = key.reads.iter().map(|tensor| tensor.as_ref().map(|tensor| adopt(tensor, true)).transpose()).collect::<Result<Vec<_>>>()?;
            let writes = key.writes.iter().map(|tensor| adopt(tensor, false)).collect::<Result<Vec<_>>>()?;
            let (recording, ()) = executor.record(|recorded| body(recorded, &reads, &writes))?;
            if calls.len() >= MOST {
                calls.clear();
            }
            calls.insert(key.clone(), Kept { recording, writes });
        }
        let Some(kept) = calls.get(key) else { return Err(Error::internal("a call was recorded and is not there")) };
        executor.replay(&kept.recording)?;
        kept.writes.iter().try_for_each(|output| output.settle(may_reject))
    }
}
