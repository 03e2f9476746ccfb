use std::{any::Any, fmt, sync::Arc};

use crate::dtype::DType;

/// The kinds of device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeviceKind {
    /// The host's processor.
    Cpu,
    /// An NVIDIA GPU.
    Cuda,
    /// An Apple GPU.
    Metal,
    /// The Metal device over the simulator, which runs the kernels' Metal text on the CPU and checks it.
    MetalSim,
    /// Checks and executes nothing: for testing planners and recorders.
    Null,
}

impl DeviceKind {
    /// The name used on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            DeviceKind::Cpu => "cpu",
            DeviceKind::Cuda => "cuda",
            DeviceKind::Metal => "metal",
            DeviceKind::MetalSim => "metal-sim",
            DeviceKind::Null => "null",
        }
    }

    /// What times the events of its profiles.
    pub const fn clock(self) -> &'static str {
        match self {
            DeviceKind::Cpu => "the host's clock around each command",
            DeviceKind::Cuda => "the GPU's, by CUPTI",
            DeviceKind::Metal => "the GPU's, of a command buffer for each command",
            DeviceKind::MetalSim => "the simulator's on this machine's processor, not a GPU's",
            DeviceKind::Null => "none",
        }
    }
}

impl fmt::Display for DeviceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What devices of one vendor have beyond [`DeviceProperties`], for plans that know its type.
pub trait DeviceFeatures: Any + fmt::Debug + Send + Sync {}

/// What a launch plan may know of a device. Plans are pure functions of shapes, data types and this.
#[derive(Clone, Debug)]
pub struct DeviceProperties {
    /// The kind.
    pub kind: DeviceKind,
    /// The vendor's name for it.
    pub name: String,
    /// Cores of a CPU (threads used), multiprocessors of a GPU.
    pub compute_units: usize,
    /// Threads that run in lockstep: 32 on Apple and NVIDIA GPUs; 1 where a launch plan's groups mean nothing.
    pub simd_width: usize,
    /// The most threads in a threadgroup.
    pub max_threads_per_threadgroup: usize,
    /// Bytes of threadgroup memory a kernel may use.
    pub threadgroup_memory: usize,
    /// The largest single allocation, in bytes.
    pub max_buffer_bytes: usize,
    /// Host and device share memory: adopted host memory costs no copy.
    pub unified_memory: bool,
    /// Data types kernels may use on it.
    pub dtypes: &'static [DType],
    /// What only devices of its vendor have.
    pub features: Option<Arc<dyn DeviceFeatures>>,
}

impl DeviceProperties {
    /// The features of this type, if it has such.
    pub fn features<F: DeviceFeatures>(&self) -> Option<&F> {
        let features: &dyn Any = &**self.features.as_ref()?;
        features.downcast_ref()
    }

    /// Whether launches run as threadgroups of simdgroups (a GPU, or the simulator of one), not by CPU kernels.
    pub const fn has_simdgroups(&self) -> bool {
        self.simd_width > 1
    }
}
