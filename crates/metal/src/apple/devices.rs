//! The system's devices and what they say of themselves.

use objc2::{rc::Retained, runtime::ProtocolObject};
use objc2_foundation::NSProcessInfo;
use objc2_metal::{MTLCopyAllDevices, MTLCreateSystemDefaultDevice, MTLDevice, MTLGPUFamily};

use super::cores::gpu_cores;
use crate::{api::DeviceInfo, chips::Gpu};

pub(super) type Device = Retained<ProtocolObject<dyn MTLDevice>>;

/// The system's devices, the default first.
pub(super) fn devices() -> Vec<Device> {
    let default = MTLCreateSystemDefaultDevice();
    let others = MTLCopyAllDevices().into_iter().filter(|device| default.as_ref().is_none_or(|d| d.registryID() != device.registryID()));
    default.iter().cloned().chain(others).collect()
}

pub(super) fn info(device: &Device) -> DeviceInfo {
    const FAMILIES: [(MTLGPUFamily, u32); 10] = [
        (MTLGPUFamily::Apple10, 10),
        (MTLGPUFamily::Apple9, 9),
        (MTLGPUFamily::Apple8, 8),
        (MTLGPUFamily::Apple7, 7),
        (MTLGPUFamily::Apple6, 6),
        (MTLGPUFamily::Apple5, 5),
        (MTLGPUFamily::Apple4, 4),
        (MTLGPUFamily::Apple3, 3),
        (MTLGPUFamily::Apple2, 2),
        (MTLGPUFamily::Apple1, 1),
    ];
    let name = device.name().to_string();
    let family = FAMILIES.into_iter().find(|(family, _)| device.supportsFamily(*family)).map(|(_, number)| number);
    let (gpu, assumed) = Gpu::identify(&name, family, gpu_cores());
    DeviceInfo {
        name,
        system: NSProcessInfo::processInfo().operatingSystemVersionString().to_string(),
        family,
        compute_units: gpu.cores,
        assumed,
        threadgroup_memory: device.maxThreadgroupMemoryLength(),
        max_threads: device.maxThreadsPerThreadgroup().width,
        max_buffer_bytes: device.maxBufferLength(),
        unified_memory: device.hasUnifiedMemory(),
    }
}
