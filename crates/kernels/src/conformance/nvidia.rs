//! Launches as NVIDIA's GPUs get them, on other devices with simdgroups.

use std::sync::Arc;

use elinvar_core::{DeviceKind, DeviceProperties, Result};

use super::Case;
use crate::{Operator, Plan, Precision, TensorInfo, cuda::CudaFeatures};

/// An operator planned for a GPU of compute capability 8.0 with so many compute units.
#[derive(Debug)]
struct ForNvidia(Arc<dyn Operator>, usize);

impl Operator for ForNvidia {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn outputs(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        self.0.outputs(inputs)
    }

    fn plan(&self, inputs: &[Option<TensorInfo>], outputs: &[TensorInfo], device: &DeviceProperties) -> Result<Plan> {
        if !device.has_simdgroups() {
            return self.0.plan(inputs, outputs, device);
        }
        let features = CudaFeatures::of(80, false);
        self.0.plan(inputs, outputs, &DeviceProperties { kind: DeviceKind::Cuda, compute_units: self.1, features, ..device.clone() })
    }

    fn precision(&self) -> Precision {
        self.0.precision()
    }
}

impl Case {
    /// Bytes of threadgroup memory that a threadgroup of [`Case::for_nvidia`] may have.
    pub const NVIDIA_THREADGROUP_MEMORY: usize = 227 << 10;

    /// The case as it is planned for one of NVIDIA's GPUs with so many compute units, on whatever device has simdgroups: kernels that only those GPUs get, and
    /// that are Metal text, can so be run on the simulator.
    #[must_use]
    pub fn for_nvidia(self, units: usize) -> Self {
        Self { operator: Arc::new(ForNvidia(self.operator, units)), ..self }
    }
}
