//! What is asked of a device before it is measured.

use elinvar::{DeviceKind, DeviceProperties};

/// Whether the device is a graphics processor, not the simulator of one.
pub(crate) fn is_gpu(properties: &DeviceProperties) -> bool {
    properties.has_simdgroups() && properties.kind != DeviceKind::MetalSim
}

/// What a device's compute units are called.
pub(crate) fn units(properties: &DeviceProperties) -> &'static str {
    match properties.kind {
        DeviceKind::Metal | DeviceKind::MetalSim => "cores",
        DeviceKind::Cuda => "multiprocessors",
        DeviceKind::Cpu | DeviceKind::Null => "threads",
    }
}
