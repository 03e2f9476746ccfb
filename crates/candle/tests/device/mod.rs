//! The device that the tests compute on.

use std::sync::OnceLock;

use candle_core::Device;

/// The CPU, or the first GPU where `ELINVAR_CANDLE_DEVICE` is `cuda`. All of a process have one: Candle takes two handles of one GPU for two devices.
pub(crate) fn device() -> &'static Device {
    static DEVICE: OnceLock<Device> = OnceLock::new();
    DEVICE.get_or_init(|| match std::env::var("ELINVAR_CANDLE_DEVICE").as_deref() {
        Ok("cuda") => Device::new_cuda(0).unwrap(),
        Ok(other) => panic!("ELINVAR_CANDLE_DEVICE is '{other}': 'cuda' is expected, or nothing for the CPU"),
        Err(_) => Device::Cpu,
    })
}
