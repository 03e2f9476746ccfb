//! Launches as other devices get them.

use std::{fmt, sync::Arc};

use elinvar_core::{DeviceKind, DeviceProperties, Result};

use super::Case;
use crate::{Operator, Plan, Precision, TensorInfo, cuda::CudaFeatures};

/// An operator planned for a device with so many compute units, or for one of NVIDIA's GPUs with them, of compute capability 8.0, wherever there are simdgroups.
struct Planned {
    operator: Arc<dyn Operator>,
    units: usize,
    for_nvidia: bool,
}

impl fmt::Debug for Planned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} as planned for {} compute units{}", self.operator, self.units, if self.for_nvidia { " of NVIDIA's" } else { "" })
    }
}

impl Operator for Planned {
    fn name(&self) -> &'static str {
        self.operator.name()
    }

    fn outputs(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        self.operator.outputs(inputs)
    }

    fn plan(&self, inputs: &[Option<TensorInfo>], outputs: &[TensorInfo], device: &DeviceProperties) -> Result<Plan> {
        let mut device = DeviceProperties { compute_units: self.units, ..device.clone() };
        if self.for_nvidia && device.has_simdgroups() {
            device = DeviceProperties { kind: DeviceKind::Cuda, features: CudaFeatures::of(80, false), ..device };
        }
        self.operator.plan(inputs, outputs, &device)
    }

    fn precision(&self) -> Precision {
        self.operator.precision()
    }
}

impl Case {
    /// Bytes of threadgroup memory that a threadgroup of [`Case::for_nvidia`] may have.
    pub const NVIDIA_THREADGROUP_MEMORY: usize = 227 << 10;

    /// The case as it is planned for one of NVIDIA's GPUs with so many compute units, on whatever device has simdgroups: kernels that only those GPUs get, and
    /// that are Metal text, can so be run on the simulator.
    #[must_use]
    pub fn for_nvidia(self, units: usize) -> Self {
        self.planned(units, true)
    }

    /// The case as it is planned for a device of its kind with a single compute unit, for which little work is much.
    #[must_use]
    pub(crate) fn for_one_unit(self) -> Self {
        self.planned(1, false)
    }

    fn planned(self, units: usize, for_nvidia: bool) -> Self {
        Self { operator: Arc::new(Planned { operator: self.operator, units, for_nvidia }), ..self }
    }
}
