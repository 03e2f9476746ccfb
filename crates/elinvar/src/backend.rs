use std::{fmt, str::FromStr};

use elinvar_core::{Backend, Device, DeviceProperties, Error, MemoryInfo, NullBackend, Result};
use elinvar_cpu::CpuBackend;

/// The devices this build can drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BackendType {
    /// A Mac's GPU, counted from 0, the system's default.
    Metal(usize),
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
    pub const ALL: &[BackendType] = &[BackendType::Metal(0), BackendType::Cuda(0), BackendType::Cpu, BackendType::MetalSim, BackendType::Null];

    /// The kind's name on the command line and in `ELINVAR_DEVICE`; `cuda:1` and `metal:1` are the second GPU.
    pub const fn name(self) -> &'static str {
        match self {
            BackendType::Metal(_) => "metal",
            BackendType::Cuda(_) => "cuda",
            BackendType::Cpu => "cpu",
            BackendType::MetalSim => "metal-sim",
            BackendType::Null => "null",
        }
    }

    /// The device that the environment variable `ELINVAR_DEVICE` names, if it names one.
    ///
    /// # Errors
    /// It names one that this build does not know.
    pub fn from_environment() -> Result<Option<Self>> {
        match std::env::var("ELINVAR_DEVICE") {
            Ok(name) if !name.is_empty() && name != "auto" => name.parse().map(Some).map_err(|e: Error| e.context("ELINVAR_DEVICE")),
            _ => Ok(None),
        }
    }

    /// Whether the device can be used here; [`devices`] says why not.
    pub fn is_available(self) -> bool {
        self.open().is_ok()
    }

    /// Opens the device.
    ///
    /// # Errors
    /// It is not there.
    pub(crate) fn open(self) -> Result<Device> {
        self.opened().map(|opened| opened.device)
    }

    /// Whether this machine should have such a device, so that one which does not open is news: Macs have a GPU, others one of NVIDIA's, or its driver.
    pub(crate) fn is_expected(self) -> bool {
        match self {
            BackendType::Metal(_) => cfg!(target_vendor = "apple"),
            BackendType::Cuda(_) => expects_cuda(),
            BackendType::Cpu | BackendType::MetalSim | BackendType::Null => false,
        }
    }

    fn opened(self) -> Result<Opened> {
        match self {
            BackendType::Metal(ordinal) => metal(ordinal),
            BackendType::Cuda(ordinal) => cuda(ordinal),
            BackendType::Cpu => Ok(Opened::new(CpuBackend::new(None)?)),
            BackendType::MetalSim => simulator(),
            BackendType::Null => Ok(Opened::new(NullBackend::new())),
        }
    }
}

/// A device and what only its own crate knows of it.
struct Opened {
    device: Device,
    software: String,
    family: Option<String>,
    assumed: Option<String>,
}

impl Opened {
    fn new(backend: impl Backend + 'static) -> Self {
        Self { device: Device::new(backend), software: String::new(), family: None, assumed: None }
    }
}

#[cfg(target_vendor = "apple")]
fn metal(ordinal: usize) -> Result<Opened> {
    use elinvar_metal::{Apple, MetalBackend, api::Api};
    let apple = Apple::new(ordinal)?;
    let info = apple.info();
    let backend = MetalBackend::new(apple, elinvar_core::DeviceKind::Metal).with_archives(None).with_capture(|name| std::env::var_os(name))?;
    let family = info.family.map(|number| format!("Apple {number}"));
    Ok(Opened { software: info.system, family, assumed: info.assumed, ..Opened::new(backend) })
}

#[cfg(not(target_vendor = "apple"))]
fn metal(_ordinal: usize) -> Result<Opened> {
    let message = "Metal backend is only available on Apple platforms; use `--device metal-sim` to run Metal kernels here";
    Err(Error::device_unavailable(message))
}

/// Metal's devices, at least one, so that there is something to say why it cannot be used.
#[cfg(target_vendor = "apple")]
fn metal_devices() -> usize {
    elinvar_metal::Apple::count().max(1)
}

#[cfg(not(target_vendor = "apple"))]
fn metal_devices() -> usize {
    1
}

#[cfg(not(target_vendor = "apple"))]
fn cuda(ordinal: usize) -> Result<Opened> {
    let backend = elinvar_cuda::CudaBackend::new(ordinal)?;
    let software = backend.software();
    Ok(Opened { software, ..Opened::new(backend) })
}

#[cfg(target_vendor = "apple")]
fn cuda(_ordinal: usize) -> Result<Opened> {
    Err(Error::device_unavailable("NVIDIA offers no driver for this system: use cpu here"))
}

#[cfg(not(target_vendor = "apple"))]
fn expects_cuda() -> bool {
    elinvar_cuda::CudaBackend::is_expected()
}

#[cfg(target_vendor = "apple")]
fn expects_cuda() -> bool {
    false
}

/// The compiler for NVIDIA's GPUs, which need not be there.
///
/// # Errors
/// It is not found, or this system has none; the message says what to do.
#[cfg(not(target_vendor = "apple"))]
pub fn cuda_compiler() -> Result<String> {
    let [major, minor] = elinvar_cuda::Compiler::new(None)?.version();
    Ok(format!("NVRTC {major}.{minor}"))
}

/// The compiler for NVIDIA's GPUs, which need not be there.
///
/// # Errors
/// It is not found, or this system has none; the message says what to do.
#[cfg(target_vendor = "apple")]
pub fn cuda_compiler() -> Result<String> {
    Err(Error::unsupported("NVIDIA offers none for this system"))
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

/// The environment variable that names the chip which the simulator plans launches for, `Apple M3 Max` or `Apple M3 Max, 40 cores`.
#[cfg(target_os = "linux")]
const SIMULATED_CHIP: &str = "ELINVAR_SIMULATED_CHIP";

#[cfg(target_os = "linux")]
fn simulator() -> Result<Opened> {
    use elinvar_metal::{MetalBackend, Simulated, SimulatorOptions};
    let mut options = SimulatorOptions::default();
    if let Ok(name) = std::env::var(SIMULATED_CHIP) {
        options.gpu = name.parse().map_err(|error: Error| error.context(SIMULATED_CHIP))?;
    }
    let simulated = Simulated::new(options)?;
    Ok(Opened::new(MetalBackend::new(simulated, elinvar_core::DeviceKind::MetalSim)))
}

#[cfg(not(target_os = "linux"))]
fn simulator() -> Result<Opened> {
    Err(Error::device_unavailable("the Metal simulator runs on Linux: use cpu here"))
}

impl fmt::Display for BackendType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            BackendType::Metal(ordinal) | BackendType::Cuda(ordinal) if *ordinal > 0 => write!(f, ":{ordinal}"),
            _ => Ok(()),
        }
    }
}

impl FromStr for BackendType {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let numbered = |prefix| name.strip_prefix(prefix).and_then(|ordinal| ordinal.parse().ok());
        if let Some(backend) = numbered("metal:").map(BackendType::Metal).or_else(|| numbered("cuda:").map(BackendType::Cuda)) {
            return Ok(backend);
        }
        BackendType::ALL.iter().copied().find(|b| b.name() == name).ok_or_else(|| {
            let names: Vec<_> = BackendType::ALL.iter().map(|b| b.name()).collect();
            Error::device_unavailable(format!(
                "device '{name}' is not available: this build has {} (and metal:1, cuda:1 and so on)",
                names.join(", ")
            ))
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
    /// The vendor's family of GPUs that it belongs to, where it reports one.
    pub family: Option<String>,
    /// What launch plans assume of it because the system does not report it.
    pub assumed: Option<String>,
    /// Its memory now.
    pub memory: MemoryInfo,
    /// What drives it: versions of the driver and the compiler; empty where there is nothing to say.
    pub software: String,
}

/// Every device of this build and whether it can be used here.
pub fn devices() -> Vec<DeviceReport> {
    let each = BackendType::ALL.iter().flat_map(|&backend| match backend {
        BackendType::Metal(_) => (0..metal_devices()).map(BackendType::Metal).collect(),
        BackendType::Cuda(_) => (0..cuda_devices()).map(BackendType::Cuda).collect(),
        other => vec![other],
    });
    let report = |backend: BackendType| {
        let state = |Opened { device, software, family, assumed }| DeviceState {
            properties: device.properties().clone(),
            family,
            assumed,
            memory: device.memory(),
            software,
        };
        DeviceReport { backend, state: backend.opened().map(state) }
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
        assert_eq!("metal:1".parse::<BackendType>().unwrap(), BackendType::Metal(1));
        assert_eq!([BackendType::Cuda(3), BackendType::Metal(1)].map(|b| b.to_string()), ["cuda:3", "metal:1"]);
        #[cfg(not(target_vendor = "apple"))]
        assert!(BackendType::Metal(0).open().err().unwrap().to_string().contains("only available on Apple platforms"));
        let error = "cuda:x".parse::<BackendType>().unwrap_err().to_string();
        assert!(error.contains("metal-sim"), "{error}");
    }
}
