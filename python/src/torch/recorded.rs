//! Calls that come back with tensors of the same types and layouts: recorded once, over what stands for the tensors, and replayed where those of each call are.

use std::{
    ptr::NonNull,
    sync::{Arc, Mutex, PoisonError},
};

use elinvar::{Completion, Executor, FastMap, Recording, Result, Tensor, advise_huge_pages};

use super::{Known, Place, described::Call};

/// Bytes for what is between a call's operators, up to which its recording is kept. The recordings of a place share them.
const LARGEST: usize = 64 << 20;

/// Bytes of a result from which its pages matter.
const LARGE: usize = 2 << 20;

/// Recordings that an operator keeps. Where there are more calls, all begin again.
pub(super) const MOST: usize = 1024;

/// Bytes of memory up to which work is so short that other threads of Python's need not run meanwhile.
const SHORT: u64 = 64 << 10;

struct Kept {
    known: Arc<Known>,
    recording: Recording,
    /// What stands for the tensors.
    places: Vec<Tensor>,
    /// Which of them are written on the CPU, and large: their bytes.
    large: Vec<(usize, usize)>,
    is_short: bool,
}

impl Kept {
    /// What values it may reject is reported at once, or by a call after it where work goes on in the order of a stream.
    fn run(&self, place: Place, call: &Call, may_reject: bool) -> Result<()> {
        self.known.report(false)?;
        for (index, bytes) in &self.large {
            // PyTorch hands out large memory unwritten.
            call.addresses().get(*index).and_then(|address| NonNull::new(*address as *mut u8)).inspect(|first| advise_huge_pages(*first, *bytes));
        }
        let completion = self.known.turns.take(|executor| self.replay(executor, place, call, may_reject))?;
        if may_reject && !self.known.is_blocking {
            self.known.rejecting().push_back(completion);
        }
        Ok(())
    }

    fn replay(&self, executor: &Executor, place: Place, call: &Call, may_reject: bool) -> Result<Completion> {
        let Self { known, recording, places, .. } = self;
        for (tensor, address) in places.iter().zip(call.addresses()) {
            // SAFETY: the tensor is there until the call returns: on the CPU it is done then, and on a GPU PyTorch frees in the order of the stream.
            unsafe { tensor.place(*address)? };
        }
        let completion = executor.replay(recording)?;
        if place == Place::Cpu || may_reject && known.is_blocking {
            completion.wait()?;
        }
        Ok(completion)
    }
}

/// The calls of an operator.
#[derive(Default)]
pub(super) struct Calls(Mutex<FastMap<Vec<u8>, Kept>>);

impl Calls {
    /// Makes a call that came before and is short, if it need not wait for others.
    pub(super) fn make_short(&self, place: Place, call: &Call, may_reject: bool) -> Option<Result<()>> {
        let calls = self.0.try_lock().ok()?;
        let kept = calls.get(call.key()).filter(|kept| kept.is_short)?;
        kept.known.turns.try_take(|executor| kept.replay(executor, place, call, may_reject)).map(|done| done.map(drop))
    }

    /// Makes a call whose last tensors are written, so many; `body` records it if it is a new one.
    pub(super) fn make(
        &self,
        place: Place,
        call: &Call,
        written: usize,
        may_reject: bool,
        body: impl FnOnce(&Executor, &[Option<Tensor>], &[Tensor]) -> Result<()>,
    ) -> Result<()> {
        let mut calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kept) = calls.get(call.key()) {
            return kept.run(place, call, may_reject);
        }
        let known = Known::of(place)?;
        let read = call.count() - written;
        let stand_in = |(index, operand): (usize, &Option<_>)| {
            operand.as_ref().map(|(dtype, layout)| known.turns.executor().stand_in(*dtype, layout, index < read)).transpose()
        };
        let mut reads = call.operands()?.iter().enumerate().map(stand_in).collect::<Result<Vec<_>>>()?;
        let places: Vec<_> = reads.iter().flatten().cloned().collect();
        let writes: Vec<_> = reads.drain(read..).flatten().collect();
        let bytes = |tensor: &Tensor| tensor.shape().elements() * tensor.dtype().size();
        let of_writes = places.iter().enumerate().skip(places.len() - writes.len()).filter(|_| place == Place::Cpu);
        let large = of_writes.map(|(index, tensor)| (index, bytes(tensor))).filter(|(_, bytes)| *bytes >= LARGE).collect();
        let mut workspace = known.workspace.lock().unwrap_or_else(PoisonError::into_inner);
        let mut used = workspace.clone();
        let (recording, ()) = known.turns.take(|executor| executor.record_in(&mut used, |recorded| body(recorded, &reads, &writes)))?;
        let is_kept = used.bytes() <= LARGEST;
        if is_kept {
            *workspace = used;
        }
        drop(workspace);
        let is_short = place == Place::Cpu && recording.bytes() <= SHORT;
        let made = Kept { known, recording, places, large, is_short };
        made.run(place, call, may_reject)?;
        if is_kept {
            if calls.len() >= MOST {
                calls.clear();
            }
            calls.insert(call.key().to_vec(), made);
        }
        Ok(())
    }
}
