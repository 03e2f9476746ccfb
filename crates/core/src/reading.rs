use std::{fmt, pin::Pin};

use crate::{completion::Completion, error::Result};

/// Bytes in flight from a device: what a read that does not wait gives. Dropping it cancels nothing, and may wait for them.
pub struct Reading {
    arrival: Completion,
    take: Box<dyn FnOnce() -> Result<Vec<u8>> + Send>,
}

impl Reading {
    /// Of bytes that `take` gives once `arrival` is done.
    pub fn new(arrival: Completion, take: impl FnOnce() -> Result<Vec<u8>> + Send + 'static) -> Self {
        Self { arrival, take: Box::new(take) }
    }

    /// Of bytes that are there.
    pub fn ready(bytes: Vec<u8>) -> Self {
        Self::new(Completion::ready(Ok(())), move || Ok(bytes))
    }

    /// The same bytes, if `check` passes when they are there.
    pub fn checked(self, check: impl FnOnce() -> Result<()> + Send + 'static) -> Self {
        let Self { arrival, take } = self;
        Self::new(arrival, move || {
            let bytes = take()?;
            check().map(|()| bytes)
        })
    }

    /// Whether the bytes are there.
    pub fn is_complete(&self) -> bool {
        self.arrival.is_complete()
    }

    /// The bytes, when they are there.
    ///
    /// # Errors
    /// What went wrong on the device.
    pub fn wait(self) -> Result<Vec<u8>> {
        self.arrival.wait()?;
        (self.take)()
    }
}

impl IntoFuture for Reading {
    type Output = Result<Vec<u8>>;
    type IntoFuture = Pin<Box<dyn Future<Output = Result<Vec<u8>>> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            self.arrival.await?;
            (self.take)()
        })
    }
}

impl fmt::Debug for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reading").field("complete", &self.is_complete()).finish()
    }
}
