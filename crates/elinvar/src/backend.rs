use std::{fmt, str::FromStr};

use elinvar_core::{Device, DeviceProperties, Error, MemoryInfo, NullBackend, Result};
use elinvar_cpu::CpuBackend;

/// The devices this build can drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BackendType {
    /// The host's processor.
    Cpu,
    /// The Metal device over the simulator: the kernels' Metal text, run on the CPU and checked.
    MetalSim,
    /// Checks every command and executes nothing.
    Null,
}

impl BackendType {
    /// Every one, in the order the automatic choice prefers them; the simulator and the null device are never chosen.
    pub const ALL: &[BackendType] = &[BackendType::Cpu, BackendType::MetalSim, BackendType::Null];

    /// The name used on the command line and in `ELINVAR_DEVICE`.
    pub const fn name(self) -> &'static str {
        match self {
            BackendType::Cpu => "cpu",
            BackendType::MetalSim => "metal-sim",
            BackendType::Null => "null",
        }
    }

    /// Opens the device.
    ///
    /// # Errors
    /// It is not there.
    pub(crate) fn open(self) -> Result<Device> {
        match self {
            BackendType::Cpu => Ok(Device::new(CpuBackend::new(None)?)),
            BackendType::MetalSim => simulator(),
            BackendType::Null => Ok(Device::new(NullBackend::new())),
        }
    }
}

#[cfg(target_os = "linux")]
fn simulator() -> Result<Device> {
    use elinvar_metal::{MetalBackend, Simulated, SimulatorOptions};
    let simulated = Simulated::new(SimulatorOptions::default())?;
    Ok(Device::new(MetalBackend::new(simulated, elinvar_core::DeviceKind::MetalSim)))
}

#[cfg(not(target_os = "linux"))]
fn simulator() -> Result<Device> {
    Err(Error::device_unavailable("the Metal simulator runs on Linux: use cpu here"))
}

impl fmt::Display for BackendType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for BackendType {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        BackendType::ALL.iter().copied().find(|b| b.name() == name).ok_or_else(|| {
            let names: Vec<_> = BackendType::ALL.iter().map(|b| b.name()).collect();
            Error::device_unavailable(format!("device '{name}' is not available: this build has {}", names.join(", ")))
        })
    }
}

/// A device as `elinvar devices` lists it.
#[derive(Clone, Debug)]
pub struct DeviceReport {
    /// Which.
    pub backend: BackendType,
    /// What it is and its memory, or why it cannot be used.
    pub state: Result<(DeviceProperties, MemoryInfo)>,
}

/// Every device of this build and whether it can be used here.
pub fn devices() -> Vec<DeviceReport> {
    let report =
        |&backend: &BackendType| DeviceReport { backend, state: backend.open().map(|device| (device.properties().clone(), device.memory())) };
    BackendType::ALL.iter().map(report).collect()
}
