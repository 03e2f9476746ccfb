//! The order between a device's stream and those of other libraries, for callers that share memory with them.

use std::{ffi::c_void, sync::Arc};

use cudarc::driver::sys;
use elinvar_core::{RawBuffer, Result};

use crate::{driver::Context, memory::Memory};

/// A device's stream, which a caller keeps when the device is behind the backend interface.
#[derive(Clone)]
pub struct StreamOrder(Arc<Context>);

impl StreamOrder {
    pub(crate) fn of(context: &Arc<Context>) -> Self {
        Self(context.clone())
    }

    /// What the device is given from now on waits for what `stream` has been given so far.
    ///
    /// # Safety
    /// A stream of the device's primary context that lives, or 1 or 2, the driver's names of the two default streams.
    ///
    /// # Errors
    /// The device is lost.
    pub unsafe fn follow(&self, stream: *mut c_void) -> Result<()> {
        self.between(stream.cast(), self.0.stream())
    }

    /// What `stream` is given from now on waits for what the device has been given so far.
    ///
    /// # Safety
    /// As [`StreamOrder::follow`].
    ///
    /// # Errors
    /// As [`StreamOrder::follow`].
    pub unsafe fn lead(&self, stream: *mut c_void) -> Result<()> {
        self.between(self.0.stream(), stream.cast())
    }

    /// Waits until what the device was given is done.
    ///
    /// # Errors
    /// The device is lost.
    pub fn synchronize(&self) -> Result<()> {
        self.0.enter()?;
        self.0.synchronize()
    }

    /// The device's address of a buffer.
    ///
    /// # Errors
    /// A buffer of another kind of device.
    pub fn address(buffer: &RawBuffer) -> Result<u64> {
        Ok(buffer.downcast::<Memory>()?.pointer)
    }

    fn between(&self, first: sys::CUstream, second: sys::CUstream) -> Result<()> {
        self.0.enter()?;
        let event = self.0.record_on(first)?;
        // SAFETY: the callers promise that both streams live; the event does. What waits keeps what it waits for when the event is used again.
        self.0.check("ordering two streams", unsafe { sys::cuStreamWaitEvent(second, event.raw(), 0) })
    }
}
