//! Metal's devices: Apple's, and the simulator.

use elinvar_core::Result;

use super::opened::Opened;

#[cfg(all(feature = "metal", target_vendor = "apple"))]
pub(super) fn open(ordinal: usize) -> Result<Opened> {
    use elinvar_metal::{Apple, MetalBackend, api::Api};
    let apple = Apple::new(ordinal)?;
    let info = apple.info();
    let backend = MetalBackend::new(apple, elinvar_core::DeviceKind::Metal).with_archives(None).with_capture(|name| std::env::var_os(name))?;
    let family = info.family.map(|number| format!("Apple {number}"));
    Ok(Opened { software: info.system, family, assumed: info.assumed, ..Opened::new(backend) })
}

#[cfg(not(all(feature = "metal", target_vendor = "apple")))]
pub(super) fn open(_ordinal: usize) -> Result<Opened> {
    let message = "Metal backend is only available on Apple platforms; use the device metal-sim to run Metal kernels here";
    Err(super::opened::absent("metal", cfg!(feature = "metal"), message))
}

/// Metal's devices, at least one, so that there is something to say why it cannot be used.
pub(super) fn count() -> usize {
    #[cfg(all(feature = "metal", target_vendor = "apple"))]
    let count = elinvar_metal::Apple::count();
    #[cfg(not(all(feature = "metal", target_vendor = "apple")))]
    let count = 1;
    count.max(1)
}

/// The environment variable that names the chip which the simulator plans launches for, `Apple M3 Max` or `Apple M3 Max, 40 cores`.
#[cfg(all(feature = "metal", target_os = "linux"))]
const SIMULATED_CHIP: &str = "ELINVAR_SIMULATED_CHIP";

#[cfg(all(feature = "metal", target_os = "linux"))]
pub(super) fn open_simulator() -> Result<Opened> {
    use elinvar_metal::{MetalBackend, Simulated, SimulatorOptions};
    let mut options = SimulatorOptions::default();
    if let Ok(name) = std::env::var(SIMULATED_CHIP) {
        options.gpu = name.parse().map_err(|error: elinvar_core::Error| error.context(SIMULATED_CHIP))?;
    }
    let simulated = Simulated::new(options)?;
    Ok(Opened::new(MetalBackend::new(simulated, elinvar_core::DeviceKind::MetalSim)))
}

#[cfg(not(all(feature = "metal", target_os = "linux")))]
pub(super) fn open_simulator() -> Result<Opened> {
    Err(super::opened::absent("metal", cfg!(feature = "metal"), "the Metal simulator runs on Linux: use cpu here"))
}
