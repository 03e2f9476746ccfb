//! Device memory.

use std::{
    ops::Range,
    ptr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use elinvar_core::{Error, Result};

use crate::{
    abi::Record,
    arena::{Arena, Slot},
    shadow::{COARSEST, Initialised, Race, Shadow},
};

/// Device memory, with exact bounds, far from all other memory. Clones are the same buffer; freed with the last one, or with the last command that
/// uses it.
///
/// Reads and writes by the host wait for a dispatch that is using the buffer, but not for those not yet started: wait for their completion.
#[derive(Clone)]
pub struct Buffer(Arc<Inner>);

struct Inner {
    name: String,
    bytes: usize,
    slot: Slot,
    state: Mutex<State>,
}

/// What checks know of a buffer.
pub(crate) struct State {
    /// None: every byte is.
    pub(crate) initialised: Option<Initialised>,
    pub(crate) shadow: Option<Shadow>,
    /// By the last checked dispatch that could write it.
    pub(crate) touched: Touched,
}

/// What a dispatch did with a buffer.
#[derive(Clone, Copy, Default)]
pub(crate) struct Touched {
    pub(crate) read: bool,
    pub(crate) written: bool,
}

impl From<u8> for Touched {
    /// From the bits that the runtime keeps.
    fn from(bits: u8) -> Self {
        Self { read: bits & 1 != 0, written: bits & 2 != 0 }
    }
}

impl Buffer {
    /// Uninitialised memory: checked kernels must not read what nothing wrote.
    pub(crate) fn new(arena: &Arc<Arena>, name: &str, bytes: usize) -> Result<Self> {
        let slot = arena.allocate(bytes)?;
        let state = State { initialised: Some(Initialised::nothing(bytes)), shadow: None, touched: Touched::default() };
        Ok(Self(Arc::new(Inner { name: name.to_owned(), bytes, slot, state: Mutex::new(state) })))
    }

    /// The name findings use.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Size in bytes.
    pub fn len(&self) -> usize {
        self.0.bytes
    }

    /// Whether it holds no byte.
    pub fn is_empty(&self) -> bool {
        self.0.bytes == 0
    }

    /// The first byte; valid while the buffer is.
    pub fn contents(&self) -> *mut u8 {
        self.0.slot.pointer()
    }

    /// Copies into the buffer.
    ///
    /// # Errors
    /// The range does not lie in the buffer.
    pub fn write(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        let range = self.range("write", offset, bytes.len())?;
        let mut state = self.lock();
        // SAFETY: the range was checked, and the lock keeps dispatches and other host threads out.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.contents().add(offset), bytes.len()) };
        state.initialise(range);
        Ok(())
    }

    /// Copies out of the buffer.
    ///
    /// # Errors
    /// The range does not lie in the buffer.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<()> {
        self.range("read", offset, bytes.len())?;
        let _state = self.lock();
        // SAFETY: as in `write`.
        unsafe { ptr::copy_nonoverlapping(self.contents().add(offset), bytes.as_mut_ptr(), bytes.len()) };
        Ok(())
    }

    /// The bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        let _state = self.lock();
        // SAFETY: the buffer holds so many initialised bytes (the system zeroed them), and the lock keeps dispatches out.
        unsafe { std::slice::from_raw_parts(self.contents(), self.len()) }.to_vec()
    }

    /// Sets every byte of a range.
    ///
    /// # Errors
    /// The range does not lie in the buffer.
    pub fn fill(&self, offset: usize, bytes: usize, value: u8) -> Result<()> {
        let range = self.range("fill", offset, bytes)?;
        let mut state = self.lock();
        // SAFETY: as in `write`.
        unsafe { ptr::write_bytes(self.contents().add(offset), value, bytes) };
        state.initialise(range);
        Ok(())
    }

    /// Copies between buffers, or within one; what was not initialised still is not.
    ///
    /// # Errors
    /// A range does not lie in its buffer.
    pub fn copy_from(&self, offset: usize, source: &Buffer, source_offset: usize, bytes: usize) -> Result<()> {
        self.range("copy into", offset, bytes)?;
        source.range("copy from", source_offset, bytes)?;
        let both = [self.clone(), source.clone()];
        let mut states = lock_all(&both);
        // SAFETY: the ranges were checked; both buffers are locked.
        unsafe { ptr::copy(source.contents().add(source_offset), self.contents().add(offset), bytes) };
        let map = states.iter().find(|(buffer, _)| buffer.slot() == source.slot()).and_then(|(_, state)| state.initialised.clone());
        if let Some((_, state)) = states.iter_mut().find(|(buffer, _)| buffer.slot() == self.slot()) {
            match (&mut state.initialised, map) {
                (Some(to), Some(from)) => to.copy(offset, &from, source_offset, bytes),
                (Some(_), None) => state.initialise(offset..offset + bytes),
                (None, Some(from)) => {
                    let mut to = Initialised::everything(self.len());
                    to.copy(offset, &from, source_offset, bytes);
                    state.initialised = Some(to);
                }
                (None, None) => {}
            }
        }
        Ok(())
    }

    /// Makes a range uninitialised: its contents are no longer wanted.
    ///
    /// # Errors
    /// The range does not lie in the buffer.
    pub fn discard(&self, offset: usize, bytes: usize) -> Result<()> {
        let range = self.range("discard", offset, bytes)?;
        self.lock().initialised.get_or_insert_with(|| Initialised::everything(self.len())).set(range, false);
        Ok(())
    }

    /// Ranges that nothing wrote: neither the host, nor a copy, nor a checked kernel.
    pub fn unwritten_ranges(&self) -> Vec<Range<usize>> {
        self.lock().initialised.as_ref().map_or_else(Vec::new, Initialised::unset_ranges)
    }

    /// Enters that a copy or fill touches a range; the race with an earlier access, of a sequence number from `oldest` on.
    pub(crate) fn transfer(&self, range: Range<usize>, written: bool, record: Record, oldest: u64) -> Result<Option<Race>> {
        let mut state = self.lock();
        state.prepare(self.len(), true, oldest / Record::GROUPS)?;
        state.shadow.as_mut().map_or(Ok(None), |shadow| shadow.transfer(range, written, record, oldest % Record::GROUPS))
    }

    pub(crate) fn slot(&self) -> u32 {
        self.0.slot.index()
    }

    pub(crate) fn address(&self) -> u64 {
        self.0.slot.address()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn range(&self, action: &str, offset: usize, bytes: usize) -> Result<Range<usize>> {
        match offset.checked_add(bytes) {
            Some(end) if end <= self.len() => Ok(offset..end),
            _ => Err(Error::invalid_argument(format!(
                "cannot {action} {bytes} bytes at offset {offset} of buffer `{}`: it holds {} bytes",
                self.name(),
                self.len()
            ))),
        }
    }
}

impl State {
    fn initialise(&mut self, range: Range<usize>) {
        if let Some(map) = &mut self.initialised {
            map.set(range, true);
        }
    }

    /// Makes ready what checks need: the map of initialised bytes while some are not, and cells for what is written.
    pub(crate) fn prepare(&mut self, bytes: usize, written: bool, era: u64) -> Result<()> {
        if self.initialised.as_ref().is_some_and(Initialised::is_full) {
            self.initialised = None;
        }
        match &mut self.shadow {
            Some(shadow) => shadow.enter_era(era),
            None if written => Shadow::new(bytes, COARSEST, era).map(|shadow| self.shadow = Some(shadow)),
            None => Ok(()),
        }
    }
}

/// Locks each of `buffers` once, in an order that is the same everywhere.
pub(crate) fn lock_all(buffers: &[Buffer]) -> Vec<(&Buffer, MutexGuard<'_, State>)> {
    let mut distinct: Vec<&Buffer> = buffers.iter().collect();
    distinct.sort_by_key(|buffer| buffer.slot());
    distinct.dedup_by_key(|buffer| buffer.slot());
    distinct.into_iter().map(|buffer| (buffer, buffer.lock())).collect()
}
