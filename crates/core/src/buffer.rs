use std::{fmt, sync::Arc};

use crate::{
    device_id::DeviceId,
    error::{Error, Result},
    memory::RawBuffer,
    pool::Slot,
};

/// Memory on a device. Clones share it; when the last is dropped it goes back to the pool it came from, or is freed.
///
/// A recorded command list holds clones of its buffers, and a device holds a submitted list until it has completed, or until all that is asked of it
/// comes later in its own order: so memory is never reused while a command may still use it.
#[derive(Clone)]
pub struct Buffer {
    slot: Arc<Slot>,
    bytes: usize,
}

impl Buffer {
    pub(crate) fn new(slot: Slot, bytes: usize) -> Self {
        Self { slot: Arc::new(slot), bytes }
    }

    /// The size asked for, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The device's allocation (which may be larger).
    pub fn raw(&self) -> &RawBuffer {
        self.slot.raw()
    }

    /// The device that it was allocated on.
    pub(crate) fn device(&self) -> DeviceId {
        self.slot.device()
    }

    /// The same memory under another size, if it is large enough: for reuse inside a recording.
    pub fn resized(&self, bytes: usize) -> Option<Buffer> {
        (bytes <= self.raw().bytes()).then(|| Buffer { slot: self.slot.clone(), bytes })
    }

    /// Whether both are the same memory.
    pub fn same(&self, other: &Buffer) -> bool {
        Arc::ptr_eq(&self.slot, &other.slot)
    }

    /// Has what stands for memory ([`Device::stand_in`](crate::Device::stand_in)) be that at an address, for lists that are submitted from now on.
    ///
    /// # Safety
    /// Until what was submitted is done, as many bytes are there where the device reaches them, initialised, and nothing else writes them, nor reads them
    /// unless they are read-only.
    ///
    /// # Errors
    /// It is memory.
    pub unsafe fn place(&self, address: usize) -> Result<()> {
        let stand_in = self.raw().stand_in().ok_or_else(|| Error::invalid_argument("a buffer that has memory cannot be placed elsewhere"))?;
        // What has no bytes may have no address either.
        stand_in.place(if address == 0 { align_of::<u128>() } else { address });
        Ok(())
    }

    /// Has what was placed stand for no memory again.
    pub fn displace(&self) {
        self.raw().stand_in().inspect(|stand_in| stand_in.place(0));
    }

    /// Binds `bytes` bytes from `offset`.
    ///
    /// # Errors
    /// A range outside the buffer.
    #[inline]
    pub fn bind(&self, offset: usize, bytes: usize) -> Result<Binding> {
        if offset.checked_add(bytes).is_none_or(|end| end > self.bytes) {
            return Err(Error::invalid_launch(format!("bytes {offset}..{offset}+{bytes} are outside a buffer of {} bytes", self.bytes)));
        }
        Ok(Binding { buffer: self.clone(), offset, bytes })
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} bytes)", self.bytes)
    }
}

/// A range of a buffer, in bytes, as a command uses it.
#[derive(Clone, Debug)]
pub struct Binding {
    buffer: Buffer,
    offset: usize,
    bytes: usize,
}

impl Binding {
    /// The buffer.
    pub fn buffer(&self) -> &Buffer {
        &self.buffer
    }

    /// First byte.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Length in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// `bytes` bytes of it from `offset` on, which it has.
    #[inline]
    pub(crate) fn part(&self, offset: usize, bytes: usize) -> Binding {
        Binding { buffer: self.buffer.clone(), offset: self.offset + offset, bytes }
    }

    /// Whether both touch a common byte.
    #[inline]
    pub fn overlaps(&self, other: &Binding) -> bool {
        self.buffer.same(&other.buffer) && self.offset < other.offset + other.bytes && other.offset < self.offset + self.bytes
    }
}
