//! Device memory in stream order, and pinned host memory that copies go through.

use std::{
    any::Any,
    ptr,
    sync::{Arc, Mutex, PoisonError},
};

use cudarc::driver::sys::{self, CUresult};
use elinvar_core::{DeviceMemory, Error, RawBuffer, Result};

use crate::driver::Context;

/// An allocation on the device.
///
/// It is freed in stream order: what was submitted before may still use it, and what comes after may be given the same memory.
pub(crate) struct Memory {
    pub(crate) pointer: sys::CUdeviceptr,
    bytes: usize,
    owner: Owner,
}

enum Owner {
    /// The device that frees it.
    Device(Arc<Context>),
    /// Another library.
    Lender { is_read_only: bool, _mark: Arc<dyn Any + Send + Sync> },
}

impl Memory {
    /// At least one byte, so that no buffer's address is null.
    pub(crate) fn new(context: &Arc<Context>, bytes: usize) -> Result<Self> {
        context.enter()?;
        let mut pointer = 0;
        // SAFETY: the context is current; the pointer is to a variable of ours.
        let mut allocate = || unsafe { sys::cuMemAllocAsync(&mut pointer, bytes.max(1), context.stream()) };
        let mut result = allocate();
        if result == CUresult::CUDA_ERROR_OUT_OF_MEMORY {
            context.synchronize()?;
            trim(context)?;
            result = allocate();
        }
        context.check(&format!("allocating {bytes} bytes"), result)?;
        Ok(Self { pointer, bytes, owner: Owner::Device(context.clone()) })
    }

    /// Zeros, in stream order.
    pub(crate) fn zeros(context: &Arc<Context>, bytes: usize) -> Result<Self> {
        let memory = Self::new(context, bytes)?;
        // SAFETY: the range is the memory just allocated, in the order of the same stream.
        context.check(&format!("zeroing {bytes} bytes"), unsafe { sys::cuMemsetD8Async(memory.pointer, 0, bytes, context.stream()) })?;
        Ok(memory)
    }

    /// Another device's, which `context`'s kernels reach from now on.
    pub(crate) fn of_peer(context: &Arc<Context>, memory: &RawBuffer) -> Result<Self> {
        let peer = memory.downcast::<Self>()?;
        let Owner::Device(owner) = &peer.owner else { return Err(Error::internal("another library's memory is to be shared")) };
        if owner.device != context.device {
            let mut reaches = 0;
            // SAFETY: both devices exist; the pointer is to a variable of ours.
            context.check("asking for peer access", unsafe { sys::cuDeviceCanAccessPeer(&mut reaches, context.device, owner.device) })?;
            if reaches == 0 {
                let devices = [context.device, owner.device];
                return Err(Error::unsupported(format!(
                    "CUDA devices {} and {} do not reach each other's memory: group others",
                    devices[0], devices[1]
                )));
            }
            let location = sys::CUmemLocation { type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: context.device };
            let access = sys::CUmemAccessDesc { location, flags: sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
            // SAFETY: the owner's own pool; the description lives through the call.
            context.check("asking for peer access", unsafe { sys::cuMemPoolSetAccess(pool(owner)?, &access, 1) })?;
        }
        Ok(Self::lent(peer.pointer, peer.bytes, false, Arc::new(memory.clone())))
    }

    /// Another library's, which `mark` is held for.
    pub(crate) fn lent(pointer: sys::CUdeviceptr, bytes: usize, is_read_only: bool, mark: Arc<dyn Any + Send + Sync>) -> Self {
        Self { pointer, bytes, owner: Owner::Lender { is_read_only, _mark: mark } }
    }
}

/// What the device's memory comes from.
fn pool(context: &Context) -> Result<sys::CUmemoryPool> {
    let mut pool = ptr::null_mut();
    // SAFETY: the device exists; the pointer is to a variable of ours.
    context.check("finding the memory pool", unsafe { sys::cuDeviceGetMemPool(&mut pool, context.device) })?;
    Ok(pool)
}

/// Returns freed memory to the system.
fn trim(context: &Context) -> Result<()> {
    // SAFETY: the device's own pool.
    context.check("trimming the memory pool", unsafe { sys::cuMemPoolTrimTo(pool(context)?, 0) })
}

impl DeviceMemory for Memory {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn is_read_only(&self) -> bool {
        match self.owner {
            Owner::Device(_) => false,
            Owner::Lender { is_read_only, .. } => is_read_only,
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Owner::Device(context) = &self.owner
            && context.enter().is_ok()
        {
            // An error cannot be reported here; the next call reports a lost device.
            // SAFETY: allocated from this stream, freed once, after everything that uses it.
            unsafe { sys::cuMemFreeAsync(self.pointer, context.stream()) };
        }
    }
}

/// Host memory that the device reads and writes without the processor.
pub(crate) struct Pinned {
    context: Arc<Context>,
    pub(crate) pointer: *mut u8,
    pub(crate) bytes: usize,
}

// SAFETY: plain memory; its holders decide when it may be touched.
unsafe impl Send for Pinned {}
// SAFETY: as above.
unsafe impl Sync for Pinned {}

impl Pinned {
    pub(crate) fn new(context: &Arc<Context>, bytes: usize) -> Result<Self> {
        let mut pointer = ptr::null_mut();
        // SAFETY: the context is current; the pointer is to a variable of ours.
        context.check("allocating pinned memory", unsafe { sys::cuMemHostAlloc(&mut pointer, bytes, 0) })?;
        Ok(Self { context: context.clone(), pointer: pointer.cast(), bytes })
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if self.context.enter().is_ok() {
            // SAFETY: allocated by the driver, freed once; holders wait for copies before they drop it.
            unsafe { sys::cuMemFreeHost(self.pointer.cast()) };
        }
    }
}

/// Small pieces of pinned memory, kept for the next use.
#[derive(Default)]
pub(crate) struct Pieces(Mutex<Vec<Pinned>>);

impl Pieces {
    /// A piece of at least so many bytes.
    pub(crate) fn take(&self, context: &Arc<Context>, bytes: usize) -> Result<Pinned> {
        const SMALLEST: usize = 4096;
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match kept.iter().position(|piece| piece.bytes >= bytes) {
            Some(at) => Ok(kept.swap_remove(at)),
            None => Pinned::new(context, bytes.next_multiple_of(SMALLEST)),
        }
    }

    /// Keeps a piece that no copy uses any more.
    pub(crate) fn put_back(&self, piece: Pinned) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(piece);
    }
}
