mod cuda;
mod metal;
mod opened;

use std::{fmt, str::FromStr};

use elinvar_core::{Device, DeviceProperties, Error, MemoryInfo, NullBackend, Result};
use elinvar_cpu::CpuBackend;
use elinvar_group::Place;

pub use cuda::cuda_compiler;
use opened::Opened;

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

    /// The devices that a list names, such as `cuda:0,cuda:1`.
    ///
    /// # Errors
    /// A name that this build does not know.
    pub fn parse_list(names: &str) -> Result<Vec<Self>> {
        names.split(',').map(|name| name.trim().parse()).collect()
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

    /// The devices of one of several processes, of those that are named for its host: its share of several, of one GPU the one that lies as far behind as the
    /// process; if none is named, the best there are.
    ///
    /// # Errors
    /// Several that the processes of the host cannot share.
    pub fn of_process(named: &[Self], place: &Place) -> Result<Vec<Self>> {
        let Place { local_rank, local_world_size, .. } = *place;
        let own = |backend: Self| match backend {
            Self::Cuda(ordinal) => Self::Cuda(ordinal + local_rank),
            Self::Metal(ordinal) => Self::Metal(ordinal + local_rank),
            Self::Cpu | Self::MetalSim | Self::Null => backend,
        };
        match named {
            [] => {
                let best = [Self::Metal(0), Self::Cuda(0)].into_iter().find(|backend| backend.is_available());
                Ok(vec![own(best.unwrap_or(Self::Cpu))])
            }
            [one] => Ok(vec![own(*one)]),
            several if several.len().is_multiple_of(local_world_size) => {
                let share = several.len() / local_world_size;
                Ok(several[local_rank * share..][..share].to_vec())
            }
            several => {
                let count = several.len();
                Err(Error::invalid_argument(format!("{count} devices for {local_world_size} processes of a host: name as many for each")))
            }
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
            BackendType::Metal(_) => cfg!(all(feature = "metal", target_vendor = "apple")),
            BackendType::Cuda(_) => cuda::is_expected(),
            BackendType::Cpu | BackendType::MetalSim | BackendType::Null => false,
        }
    }

    fn opened(self) -> Result<Opened> {
        match self {
            BackendType::Metal(ordinal) => metal::open(ordinal),
            BackendType::Cuda(ordinal) => cuda::open(ordinal),
            BackendType::Cpu => Ok(Opened::new(CpuBackend::new(None)?)),
            BackendType::MetalSim => metal::open_simulator(),
            BackendType::Null => Ok(Opened::new(NullBackend::new())),
        }
    }
}

impl fmt::Display for BackendType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            BackendType::Metal(ordinal) | BackendType::Cuda(ordinal) if *ordinal > 0 => write!(f, ":{ordinal}"),
            BackendType::Metal(_) | BackendType::Cuda(_) | BackendType::Cpu | BackendType::MetalSim | BackendType::Null => Ok(()),
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
    /// Other devices whose memory its kernels reach, as those of a group must.
    pub peers: Vec<BackendType>,
    /// What drives it: versions of the driver and the compiler; empty where there is nothing to say.
    pub software: String,
}

/// Every device of this build and whether it can be used here.
pub fn devices() -> Vec<DeviceReport> {
    let each = BackendType::ALL.iter().flat_map(|&backend| match backend {
        BackendType::Metal(_) => (0..metal::count()).map(BackendType::Metal).collect(),
        BackendType::Cuda(_) => (0..cuda::count()).map(BackendType::Cuda).collect(),
        BackendType::Cpu | BackendType::MetalSim | BackendType::Null => vec![backend],
    });
    let report = |backend: BackendType| {
        let state = |Opened { device, software, family, assumed, peers }| DeviceState {
            properties: device.properties().clone(),
            family,
            assumed,
            memory: device.memory(),
            peers,
            software,
        };
        DeviceReport { backend, state: backend.opened().map(state) }
    };
    each.map(report).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_devices_of_a_host_are_shared_by_its_processes() {
        let of = |names: &str, local_rank, local_world_size| {
            let (patience, silence) = (Duration::from_secs(1), Duration::from_secs(1));
            let place = Place { rank: local_rank, world_size: 4, local_rank, local_world_size, address: "here".into(), port: 1, patience, silence };
            let own = BackendType::of_process(&BackendType::parse_list(names).unwrap(), &place);
            own.map(|own| own.iter().map(ToString::to_string).collect::<Vec<_>>().join(","))
        };
        assert_eq!(of("cuda:2", 1, 2).unwrap(), "cuda:3");
        assert_eq!(of("cpu", 1, 2).unwrap(), "cpu");
        assert_eq!(of("cuda:0,cuda:1", 0, 1).unwrap(), "cuda,cuda:1");
        assert_eq!(of("cuda:0,cuda:1,cuda:2,cuda:3", 1, 2).unwrap(), "cuda:2,cuda:3");
        let error = of("cpu,cpu,cpu", 0, 2).unwrap_err().to_string();
        assert_eq!(error, "3 devices for 2 processes of a host: name as many for each");
    }

    #[test]
    fn devices_are_found_by_name() {
        for &backend in BackendType::ALL {
            assert_eq!(backend.to_string().parse::<BackendType>().unwrap(), backend);
        }
        assert_eq!("cuda:3".parse::<BackendType>().unwrap(), BackendType::Cuda(3));
        assert_eq!("metal:1".parse::<BackendType>().unwrap(), BackendType::Metal(1));
        assert_eq!(BackendType::parse_list("cuda:0, cuda:1").unwrap(), [BackendType::Cuda(0), BackendType::Cuda(1)]);
        assert!(BackendType::parse_list("cpu,").unwrap_err().to_string().starts_with("device '' is not available"));
        assert_eq!([BackendType::Cuda(3), BackendType::Metal(1)].map(|b| b.to_string()), ["cuda:3", "metal:1"]);
        #[cfg(all(feature = "metal", not(target_vendor = "apple")))]
        assert!(BackendType::Metal(0).open().err().unwrap().to_string().contains("only available on Apple platforms"));
        let error = "cuda:x".parse::<BackendType>().unwrap_err().to_string();
        assert!(error.contains("metal-sim"), "{error}");
        for (feature, is_built, backend) in
            [("cuda", cfg!(feature = "cuda"), BackendType::Cuda(0)), ("metal", cfg!(feature = "metal"), BackendType::MetalSim)]
        {
            let is_left_out = backend.open().is_err_and(|error| error.to_string().contains(&format!("feature '{feature}'")));
            assert_eq!(is_left_out, !is_built, "{feature}");
        }
    }
}
