//! What opening a device gives.

use elinvar_core::{Backend, Device, Error};

use super::BackendType;

/// A device and what only its own crate knows of it.
pub(super) struct Opened {
    pub(super) device: Device,
    pub(super) software: String,
    pub(super) family: Option<String>,
    pub(super) assumed: Option<String>,
    pub(super) peers: Vec<BackendType>,
}

impl Opened {
    pub(super) fn new(backend: impl Backend + 'static) -> Self {
        Self { device: Device::new(backend), software: String::new(), family: None, assumed: None, peers: Vec::new() }
    }
}

/// Why a device cannot be opened that needs this feature of the crate, which this build has or not.
pub(super) fn absent(feature: &str, is_built: bool, otherwise: &str) -> Error {
    if is_built {
        return Error::device_unavailable(otherwise);
    }
    Error::device_unavailable(format!("this build leaves it out: build elinvar with its feature '{feature}', or use cpu"))
}
