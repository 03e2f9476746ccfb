//! Groups of devices that fail.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use elinvar_core::{Backend, CommandList, Completion, Device, Error, HostMemory, ListBuilder, NullBackend, RawBuffer, Result, Storage, forward};

use crate::{Group, GroupBackend};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Peer,
    Allocate,
    Write,
    Submit,
    /// While it runs.
    Run,
}

/// A device that is lost when it is to do something.
struct Faulty {
    null: NullBackend,
    /// What it cannot do, once it has failed.
    fault: Option<Fault>,
    has_failed: Arc<AtomicBool>,
    /// What a list that waits for another device reports.
    waiting: Option<&'static str>,
}

impl Faulty {
    fn check(&self, what: Fault) -> Result<()> {
        match self.fault == Some(what) && self.has_failed.load(Ordering::Relaxed) {
            true => Err(Error::device_lost(format!("lost on {what:?}"))),
            false => Ok(()),
        }
    }
}

impl Backend for Faulty {
    forward!(null: properties memory read compile);

    fn allocate(&self, bytes: usize, storage: Storage) -> Result<RawBuffer> {
        self.check(Fault::Allocate)?;
        self.null.allocate(bytes, storage)
    }

    fn adopt(&self, memory: HostMemory) -> Result<RawBuffer> {
        self.allocate(memory.bytes().len(), Storage::Shared)
    }

    fn adopt_peer(&self, memory: &RawBuffer) -> Result<RawBuffer> {
        self.check(Fault::Peer)?;
        self.null.allocate(memory.bytes(), Storage::Shared)
    }

    fn write(&self, buffer: &RawBuffer, offset: usize, bytes: &[u8]) -> Result<()> {
        self.check(Fault::Write)?;
        self.null.write(buffer, offset, bytes)
    }

    fn submit(&self, _commands: &Arc<CommandList>) -> Result<Completion> {
        self.check(Fault::Submit)?;
        let failed = self.has_failed.load(Ordering::Relaxed);
        let waited = self.waiting.filter(|_| failed).map_or(Ok(()), |why| Err(Error::invalid_data(why)));
        Ok(Completion::ready(self.check(Fault::Run).and(waited)))
    }
}

/// A group of two devices, of which the second fails in this way when the flag is set.
fn group(fault: Fault, has_failed: &Arc<AtomicBool>) -> Result<(Device, Group)> {
    let device = |fault, waiting| Device::new(Faulty { null: NullBackend::new(), fault, has_failed: has_failed.clone(), waiting });
    let group = Group::new(vec![device(None, Some("rank 1 sent nothing")), device(Some(fault), None)])?;
    Ok((Device::new(GroupBackend::new(group.clone())), group))
}

/// Loads, computes and reads.
fn work(device: &Device, group: &Group) -> Result<()> {
    let parts = vec![HostMemory::new(Arc::new(vec![0u8; 8])); group.ranks()];
    group.adopt(parts)?;
    let buffer = device.allocate(8)?;
    device.write(&buffer, 0, &[1; 8])?;
    let mut list = ListBuilder::new();
    list.fill(buffer.bind(0, 8)?, 3)?;
    device.submit(&list.finish())?.wait()
}

#[test]
fn a_rank_that_fails_is_named_wherever_it_fails() {
    for fault in [Fault::Allocate, Fault::Write, Fault::Submit, Fault::Run] {
        let has_failed = Arc::new(AtomicBool::new(false));
        let (device, group) = group(fault, &has_failed).unwrap();
        work(&device, &group).unwrap();
        has_failed.store(true, Ordering::Relaxed);
        let error = work(&device, &group).unwrap_err();
        assert!(error.is_device_lost() && error.to_string() == format!("rank 1: lost on {fault:?}"), "{error}");
    }
}

#[test]
fn a_rank_that_reaches_no_other_is_named() {
    let error = group(Fault::Peer, &Arc::new(AtomicBool::new(true))).err().unwrap();
    assert_eq!(error.to_string(), "rank 1: lost on Peer");
}
