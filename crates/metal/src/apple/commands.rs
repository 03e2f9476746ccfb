//! A command buffer while it is encoded, and what becomes of it.

use elinvar_core::{Error, Result};
use objc2::{rc::Retained, runtime::ProtocolObject};
use objc2_foundation::{NSError, NSString};
use objc2_metal::{
    MTLBarrierScope, MTLBlitCommandEncoder, MTLCommandBuffer, MTLCommandBufferError, MTLCommandBufferStatus, MTLCommandEncoder,
    MTLComputeCommandEncoder, MTLDispatchType,
};

use crate::compile::first_errors;

/// A command buffer and the encoder that is open on it.
pub struct Commands {
    pub(super) buffer: Retained<ProtocolObject<dyn MTLCommandBuffer>>,
    encoder: Encoder,
    label: Retained<NSString>,
}

enum Encoder {
    None,
    Compute(Retained<ProtocolObject<dyn MTLComputeCommandEncoder>>),
    Blit(Retained<ProtocolObject<dyn MTLBlitCommandEncoder>>),
}

impl Commands {
    /// Of a command buffer that has none.
    pub(super) fn new(buffer: Retained<ProtocolObject<dyn MTLCommandBuffer>>, label: Retained<NSString>) -> Self {
        buffer.setLabel(Some(&label));
        Self { buffer, encoder: Encoder::None, label }
    }

    pub(super) fn compute(&mut self) -> Result<&ProtocolObject<dyn MTLComputeCommandEncoder>> {
        if !matches!(self.encoder, Encoder::Compute(_)) {
            self.end();
            let encoder = self.buffer.computeCommandEncoderWithDispatchType(MTLDispatchType::Concurrent).ok_or_else(no_encoder)?;
            encoder.setLabel(Some(&self.label));
            self.encoder = Encoder::Compute(encoder);
        }
        match &self.encoder {
            Encoder::Compute(encoder) => Ok(encoder),
            _ => Err(no_encoder()),
        }
    }

    /// Metal orders what two encoders do with the same buffers.
    pub(super) fn blit(&mut self) -> Result<&ProtocolObject<dyn MTLBlitCommandEncoder>> {
        if !matches!(self.encoder, Encoder::Blit(_)) {
            self.end();
            let encoder = self.buffer.blitCommandEncoder().ok_or_else(no_encoder)?;
            encoder.setLabel(Some(&self.label));
            self.encoder = Encoder::Blit(encoder);
        }
        match &self.encoder {
            Encoder::Blit(encoder) => Ok(encoder),
            _ => Err(no_encoder()),
        }
    }

    pub(super) fn end(&mut self) {
        match std::mem::replace(&mut self.encoder, Encoder::None) {
            Encoder::None => {}
            Encoder::Compute(encoder) => encoder.endEncoding(),
            Encoder::Blit(encoder) => encoder.endEncoding(),
        }
    }

    /// What is encoded later sees what was encoded before.
    pub(super) fn barrier(&mut self) {
        match &self.encoder {
            Encoder::None => {}
            Encoder::Compute(encoder) => encoder.memoryBarrierWithScope(MTLBarrierScope::Buffers),
            Encoder::Blit(_) => self.end(),
        }
    }
}

fn no_encoder() -> Error {
    Error::out_of_memory("Metal gives no encoder")
}

impl Drop for Commands {
    /// Metal ends the process if an encoder goes that was not ended.
    fn drop(&mut self) {
        self.end();
    }
}

pub(super) fn message_of(error: &NSError) -> String {
    first_errors(&error.localizedDescription().to_string())
}

/// A completed command buffer's error.
pub(super) fn outcome(buffer: &ProtocolObject<dyn MTLCommandBuffer>) -> Result<()> {
    if buffer.status() != MTLCommandBufferStatus::Error {
        return Ok(());
    }
    let Some(error) = buffer.error() else { return Err(Error::device_lost("Metal ended a command buffer with an error that it does not name")) };
    let (code, message) = (MTLCommandBufferError(error.code().unsigned_abs()), message_of(&error));
    Err(match code {
        MTLCommandBufferError::OutOfMemory => Error::out_of_memory(format!("Metal had too little memory to run a command buffer: {message}")),
        MTLCommandBufferError::InvalidResource => Error::invalid_launch(message),
        MTLCommandBufferError::NotPermitted => Error::device_unavailable(format!("Metal may not be used by this process now: {message}")),
        _ => Error::device_lost(format!("Metal ended a command buffer: {message}; open the device again")),
    })
}
