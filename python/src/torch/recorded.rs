//! Calls that come back with tensors of the same types and layouts: recorded once, over what stands for the tensors, and replayed over those of each call.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use elinvar::{Executor, Recording, Result, Tensor};

use super::{Known, Place, described::Described};

/// Bytes for what is between a call's operators, up to which its recording is kept. The recordings of a place share them.
const LARGEST: usize = 64 << 20;

/// Recordings that an operator keeps. Where there are more calls, all begin again.
const MOST: usize = 1024;

/// What a call reads and writes, and which gradients are wanted.
pub(super) struct Operands {
    pub(super) reads: Vec<Option<Described>>,
    pub(super) writes: Vec<Described>,
    pub(super) wanted: Vec<bool>,
}

impl Operands {
    /// The tensors that are there, and whether each is read only.
    fn tensors(&self) -> impl Iterator<Item = (&Described, bool)> {
        self.reads.iter().flatten().map(|tensor| (tensor, true)).chain(self.writes.iter().map(|tensor| (tensor, false)))
    }

    /// What identifies the call: where it is, in which process of those that were forked, and its operands but for their addresses.
    fn key(&self, place: Place, process: u32) -> Vec<u8> {
        let mut key = Vec::with_capacity(256);
        place.identify(&mut key);
        key.extend_from_slice(&process.to_ne_bytes());
        for read in &self.reads {
            key.push(u8::from(read.is_some()));
            read.iter().for_each(|tensor| tensor.info().identify(&mut key));
        }
        self.writes.iter().for_each(|tensor| tensor.info().identify(&mut key));
        key.extend(self.wanted.iter().map(|wanted| u8::from(*wanted)));
        key
    }
}

struct Kept {
    recording: Recording,
    /// What stands for the tensors.
    places: Vec<Tensor>,
    /// The addresses of the last call, and the recording over its tensors: PyTorch gives what a loop allocates the same addresses again.
    last: Option<(Vec<usize>, Recording)>,
}

impl Kept {
    /// The recording over the tensors of a call.
    fn over(&mut self, executor: &Executor, place: Place, operands: &Operands) -> Result<&Recording> {
        let addresses = || operands.tensors().map(|(tensor, _)| tensor.address);
        if !self.last.as_ref().is_some_and(|(known, _)| addresses().eq(known.iter().copied())) {
            // SAFETY: the tensors are there until the call is done; after it, what is kept of them is replayed for others at the same addresses alone.
            let given = operands.tensors().map(|(tensor, is_read_only)| unsafe { tensor.adopt(executor, place, is_read_only) });
            let (given, places) = (given.collect::<Result<Vec<_>>>()?, self.places.iter().collect::<Vec<_>>());
            self.last = Some((addresses().collect(), self.recording.over(&places, &given.iter().collect::<Vec<_>>())?));
        }
        self.last.as_ref().map(|(_, recording)| recording).ok_or_else(|| elinvar::Error::internal("a call has no recording"))
    }

    /// What values it may reject is reported at once, or by a call after it where work goes on in the order of a stream.
    fn run(&mut self, executor: &Executor, known: &Known, place: Place, operands: &Operands, may_reject: bool) -> Result<()> {
        let completion = executor.replay(self.over(executor, place, operands)?)?;
        if may_reject && !known.is_blocking {
            known.rejecting().push_back(completion);
            return Ok(());
        }
        if may_reject || place == Place::Cpu { completion.wait() } else { Ok(()) }
    }
}

/// The calls of an operator.
#[derive(Default)]
pub(super) struct Calls(Mutex<HashMap<Vec<u8>, Kept>>);

impl Calls {
    /// Makes a call, which `body` records if it is a new one.
    pub(super) fn make(
        &self,
        executor: &Executor,
        known: &Known,
        (place, process): (Place, u32),
        operands: &Operands,
        may_reject: bool,
        body: impl FnOnce(&Executor, &[Option<Tensor>], &[Tensor]) -> Result<()>,
    ) -> Result<()> {
        let mut calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = operands.key(place, process);
        if let Some(kept) = calls.get_mut(&key) {
            return kept.run(executor, known, place, operands, may_reject);
        }
        let stand_in = |tensor: &Described, is_read_only| executor.stand_in(tensor.dtype, &tensor.layout, is_read_only);
        let reads =
            operands.reads.iter().map(|tensor| tensor.as_ref().map(|tensor| stand_in(tensor, true)).transpose()).collect::<Result<Vec<_>>>()?;
        let writes = operands.writes.iter().map(|tensor| stand_in(tensor, false)).collect::<Result<Vec<_>>>()?;
        let mut workspace = known.workspace.lock().unwrap_or_else(PoisonError::into_inner);
        let mut used = workspace.clone();
        let (recording, ()) = executor.record_in(&mut used, |recorded| body(recorded, &reads, &writes))?;
        let mut made = Kept { recording, places: reads.into_iter().flatten().chain(writes).collect(), last: None };
        if used.bytes() > LARGEST {
            return made.run(executor, known, place, operands, may_reject);
        }
        *workspace = used;
        if calls.len() >= MOST {
            calls.clear();
        }
        calls.entry(key).or_insert(made).run(executor, known, place, operands, may_reject)
    }
}
