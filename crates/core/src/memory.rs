use std::{
    any::Any,
    fmt,
    ops::Range,
    ptr::NonNull,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use crate::error::{Error, Result};

/// Who reaches a buffer's memory where it lies. A device without a choice has one kind for all; [`RawBuffer::is_shared`] says which it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Storage {
    /// Host and device where memory is unified, else the device alone.
    #[default]
    Automatic,
    /// Host and device, also where that is slow memory for the device.
    Shared,
    /// The device alone: the host reads and writes through copies.
    Private,
}

/// A device's own allocation: its `Drop` frees it.
pub trait DeviceMemory: Any + Send + Sync {
    /// Its size in bytes.
    fn bytes(&self) -> usize;

    /// Kernels may only read it (adopted host memory).
    fn is_read_only(&self) -> bool {
        false
    }

    /// The host reaches it where it lies.
    fn is_shared(&self) -> bool {
        false
    }
}

/// A handle on a device's allocation.
#[derive(Clone)]
pub struct RawBuffer(Arc<dyn DeviceMemory>);

impl RawBuffer {
    /// Wraps an allocation.
    pub fn new(memory: impl DeviceMemory) -> Self {
        Self(Arc::new(memory))
    }

    /// Its size in bytes.
    pub fn bytes(&self) -> usize {
        self.0.bytes()
    }

    /// Kernels may only read it.
    pub fn is_read_only(&self) -> bool {
        self.0.is_read_only()
    }

    /// The host reaches it where it lies: [`Backend::view`](crate::Backend::view) shows it without a copy.
    pub fn is_shared(&self) -> bool {
        self.0.is_shared()
    }

    /// What it is if it is no memory but stands for some.
    #[inline]
    pub fn stand_in(&self) -> Option<&StandIn> {
        (&*self.0 as &dyn Any).downcast_ref()
    }

    /// The device's own type.
    ///
    /// # Errors
    /// The buffer belongs to another kind of device.
    pub fn downcast<T: DeviceMemory>(&self) -> Result<&T> {
        let any: &dyn Any = &*self.0;
        any.downcast_ref().ok_or_else(|| Error::invalid_launch("a buffer of another device was passed to this one: copy it through the host first"))
    }
}

/// No memory: it stands for some, of which devices that reach memory by its address are given that.
pub struct StandIn {
    bytes: usize,
    is_read_only: bool,
    address: AtomicUsize,
}

impl StandIn {
    pub(crate) fn new(bytes: usize, is_read_only: bool) -> Self {
        Self { bytes, is_read_only, address: AtomicUsize::new(0) }
    }

    pub(crate) fn place(&self, address: usize) {
        self.address.store(address, Ordering::Relaxed);
    }

    /// Where the memory is that it stands for.
    ///
    /// # Errors
    /// It was given none.
    #[inline]
    pub fn address(&self) -> Result<usize> {
        match self.address.load(Ordering::Relaxed) {
            0 => Err(Error::invalid_launch("a buffer that stands for others was given no memory: move the list over some")),
            address => Ok(address),
        }
    }
}

impl DeviceMemory for StandIn {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn is_read_only(&self) -> bool {
        self.is_read_only
    }
}

/// Host memory with an owner, such as a memory-mapped file, that a device can adopt.
#[derive(Clone)]
pub struct HostMemory {
    /// Lent by the owner, and as long as it lives: it is asked once, for another answer might differ.
    bytes: &'static [u8],
    owner: Arc<dyn AsRef<[u8]> + Send + Sync>,
}

impl HostMemory {
    /// All of `owner`'s bytes. They must not change while any clone lives.
    pub fn new(owner: Arc<dyn AsRef<[u8]> + Send + Sync>) -> Self {
        let bytes: *const [u8] = (*owner).as_ref();
        // SAFETY: `owner` is shared, so neither moved nor borrowed mutably, as long as any clone lives, and `bytes` borrows from a clone.
        let bytes = unsafe { &*bytes };
        Self { bytes, owner }
    }

    /// A part of it.
    ///
    /// # Errors
    /// A range outside the memory.
    pub fn slice(&self, range: Range<usize>) -> Result<Self> {
        let part = self.bytes.get(range.clone());
        let bytes = part.ok_or_else(|| Error::invalid_argument(format!("bytes {range:?} are outside memory of {} bytes", self.bytes.len())))?;
        Ok(Self { bytes, owner: self.owner.clone() })
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        self.bytes
    }
}

/// Host memory with an owner that a device can adopt and its kernels may write.
pub struct HostMemoryMut {
    pointer: NonNull<u8>,
    bytes: usize,
    _owner: Arc<dyn Any + Send + Sync>,
}

// SAFETY: plain memory, which by the promise of `new` nothing touches but what holds it.
unsafe impl Send for HostMemoryMut {}
// SAFETY: as above.
unsafe impl Sync for HostMemoryMut {}

impl HostMemoryMut {
    /// The `bytes` bytes from `pointer`.
    ///
    /// # Safety
    /// They are initialised, and until `owner` is dropped they can be read and written, and are only by what is done with this value.
    pub unsafe fn new(pointer: NonNull<u8>, bytes: usize, owner: Arc<dyn Any + Send + Sync>) -> Self {
        Self { pointer, bytes, _owner: owner }
    }

    /// The first byte.
    pub fn pointer(&self) -> *mut u8 {
        self.pointer.as_ptr()
    }

    /// Its size in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl fmt::Debug for HostMemoryMut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostMemoryMut({} bytes)", self.bytes)
    }
}
