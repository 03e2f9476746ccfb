//! Copies between the host and private memory, through a shared buffer, piece by piece.

use std::sync::Arc;

use elinvar_core::{Activity, ProfileLog, Result, Signal, Wait};

use crate::{
    api::{Api, StorageMode},
    compile::Pipelines,
    encode::Encoder,
    submission::{Timed, done},
};

/// The most bytes of the shared buffer.
const PIECE: usize = 64 << 20;

/// What copies are encoded with. Nothing is in flight meanwhile.
pub(crate) struct Staging<'a, A: Api> {
    pub(crate) api: &'a A,
    pub(crate) encoder: &'a Encoder<A>,
    pub(crate) pipelines: &'a Pipelines<A>,
    pub(crate) profile: &'a Arc<ProfileLog>,
}

impl<A: Api> Staging<'_, A> {
    /// Host to device.
    pub(crate) fn write(&self, (buffer, offset): (&A::Buffer, usize), bytes: &[u8]) -> Result<()> {
        let shared = self.buffer(bytes.len())?;
        for (number, piece) in bytes.chunks(PIECE).enumerate() {
            self.api.write(&shared, 0, piece)?;
            self.copy(Activity::Write, (&shared, 0), (buffer, offset + number * PIECE), piece.len())?;
        }
        Ok(())
    }

    /// Device to host.
    pub(crate) fn read(&self, (buffer, offset): (&A::Buffer, usize), bytes: &mut [u8]) -> Result<()> {
        let shared = self.buffer(bytes.len())?;
        for (number, piece) in bytes.chunks_mut(PIECE).enumerate() {
            self.copy(Activity::Read, (buffer, offset + number * PIECE), (&shared, 0), piece.len())?;
            self.api.read(&shared, 0, piece)?;
        }
        Ok(())
    }

    fn buffer(&self, bytes: usize) -> Result<A::Buffer> {
        self.api.scope(|| self.api.buffer(bytes.min(PIECE), StorageMode::Shared, "staging"))
    }

    fn copy(&self, activity: Activity, from: (&A::Buffer, usize), to: (&A::Buffer, usize), bytes: usize) -> Result<()> {
        let signal = Signal::new();
        self.api.scope(|| {
            let mut commands = self.api.command_buffer("staging")?;
            self.encoder.copy(self.api, self.pipelines, &mut commands, from, to, bytes)?;
            let completed = signal.clone();
            let timed = Timed { activity, bytes: bytes as u64, list: None };
            self.api.commit(commands, done(self.profile, Some(timed), move |result| completed.complete(result)));
            Ok(())
        })?;
        signal.wait()
    }
}
