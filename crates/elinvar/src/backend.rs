use std::{fmt, str::FromStr};

use elinvar_core::{Device, DeviceProperties, Error, MemoryInfo, NullBackend, Result};
use elinvar_cpu::CpuBackend;

/// The devices this build can drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BackendType {
    /// The Mac's GPU.
    Metal,
    /// An NVIDIA GPU, counted from 0.
    Cuda(usize),
    /// The host's processor.
    Cpu,
    /// The Metal device over the simulator: the kernels' Metal text, run on the CPU and checked.
    MetalSim,
    /// Checks every command and executes nothing.
    Null,
}

impl BackendType {
    /// One of each kind, in the order the automatic choice prefers them; the simulator and the null device are never chosen.
    pub const ALL: &[BackendType] = &[BackendType::Metal, BackendType::Cuda(0), BackendType::Cpu, BackendType::MetalSim, BackendType::Null];

    /// The kind's name on the command line and in `ELINVAR_DEVICE`; `cuda:1` is the second GPU.
    pub const fn name(self) -> &'static str {
        match self {
            BackendType::Metal => "metal",
            BackendType::Cuda(_) => "cuda",
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
        self.report().map(|(device, _)| device)
    }

    /// Opens the device and says what software drives it.
    fn report(self) -> Result<(Device, String)> {
        match self {
            BackendType::Metal => metal(),
            BackendType::Cuda(ordinal) => cuda(ordinal),
            BackendType::Cpu => Ok((Device::new(CpuBackend::new(None)?), String::new())),
            BackendType::MetalSim => Ok((simulator()?, String::new())),
            BackendType::Null => Ok((Device::new(NullBackend::new()), String::new())),
        }
    }
}

#[cfg(target_vendor = "apple")]
fn metal() -> Result<(Device, String)> {
    use elinvar_metal::{Apple, MetalBackend, api::Api};
    let apple = Apple::new()?;
    let system = apple.facts().system;
    let backend = MetalBackend::new(apple, elinvar_core::DeviceKind::Metal);
    Ok((Device::new(backend.with_archives(None)), system))
}

#[cfg(not(target_vendor = "apple"))]
fn metal() -> Result<(Device, String)> {
    let message = "Metal backend is only available on Apple platforms; use `--device metal-sim` to run Metal kernels here";
    Err(Error::device_unavailable(message))
}

#[cfg(not(target_vendor = "apple"))]
fn cuda(ordinal: usize) -> Result<(Device, String)> {
    let backend = elinvar_cuda::CudaBackend::new(ordinal)?;
    let software = backend.software();
    Ok((Device::new(backend), software))
}

#[cfg(target_vendor = "apple")]
fn cuda(_ordinal: usize) -> Result<(Device, String)> {
    Err(Error::device_unavailable("NVIDIA offers no driver for this system: use cpu here"))
}

/// GPUs the driver sees, at least one, so that there is something to say why it cannot be used.
#[cfg(not(target_vendor = "apple"))]
fn cuda_devices() -> usize {
    elinvar_cuda::CudaBackend::count().unwrap_or(1)
}

#[cfg(target_vendor = "apple")]
fn cuda_devices() -> usize {
    1
}

/// Whether there is an NVIDIA GPU, or a driver for one.
pub(crate) fn expects_cuda() -> bool {
    #[cfg(not(target_vendor = "apple"))]
    let expected = elinvar_cuda::CudaBackend::is_expected();
    #[cfg(target_vendor = "apple")]
    let expected = false;
    expected
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
        f.write_str(self.name())?;
        match self {
            BackendType::Cuda(ordinal) if *ordinal > 0 => write!(f, ":{ordinal}"),
            _ => Ok(()),
        }
    }
}

impl FromStr for BackendType {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        if let Some(ordinal) = name.strip_prefix("cuda:").and_then(|ordinal| ordinal.parse().ok()) {
            return Ok(BackendType::Cuda(ordinal));
        }
        BackendType::ALL.iter().copied().find(|b| b.name() == name).ok_or_else(|| {
            let names: Vec<_> = BackendType::ALL.iter().map(|b| b.name()).collect();
            Error::device_unavailable(format!("device '{name}' is not available: this build has {} (and cuda:1 and so on)", names.join(", ")))
        })
    }
}

/// A device as `elinvar devices` lists it.
#[derive(Clone, Debug)]
pub struct DeviceReport {
    /// Which.
    pub backend: BackendType,
    /// What it is, or why it cannot be used.
    pub state: Result<DeviceState>,
}

/// A device that can be used.
#[derive(Clone, Debug)]
pub struct DeviceState {
    /// What it is.
    pub properties: DeviceProperties,
    /// Its memory now.
    pub memory: MemoryInfo,
    /// What drives it: versions of the driver and the compiler; empty where there is nothing to say.
    pub software: String,
}

/// Every device of this build and whether it can be used here.
pub fn devices() -> Vec<DeviceReport> {
    let each = BackendType::ALL.iter().flat_map(|&backend| match backend {
        BackendType::Cuda(_) => (0..cuda_devices()).map(BackendType::Cuda).collect(),
        other => vec![other],
    });
    let report = |backend: BackendType| {
        let state =
            backend.report().map(|(device, software)| DeviceState { properties: device.properties().clone(), memory: device.memory(), software });
        DeviceReport { backend, state }
    };
    each.map(report).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_found_by_name() {
        for &backend in BackendType::ALL {
            assert_eq!(backend.to_string().parse::<BackendType>().unwrap(), backend);
        }
        assert_eq!("cuda:3".parse::<BackendType>().unwrap(), BackendType::Cuda(3));
        assert_eq!(BackendType::Cuda(3).to_string(), "cuda:3");
        #[cfg(not(target_vendor = "apple"))]
        assert!(BackendType::Metal.open().err().unwrap().to_string().contains("only available on Apple platforms"));
        let error = "cuda:x".parse::<BackendType>().unwrap_err().to_string();
        assert!(error.contains("metal-sim"), "{error}");
    }
}
