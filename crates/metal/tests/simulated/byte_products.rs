//! Quantised layers of many rows on matrix units for integers: plans have them where a GPU has such units, so for none of Apple's.

use std::{num::NonZeroUsize, sync::Arc};

use elinvar_core::{Device, DeviceKind, DeviceProperties, Result};
use elinvar_cpu::CpuBackend;
use elinvar_kernels::{
    Operator, Plan, TensorInfo,
    conformance::{self, Placement},
    cuda::CudaFeatures,
};
use elinvar_metal::{MetalBackend, Simulated, SimulatorOptions};

/// Planned for a GPU with such units.
#[derive(Debug)]
struct WithUnits(Arc<dyn Operator>);

impl Operator for WithUnits {
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
        self.0.plan(inputs, outputs, &DeviceProperties { kind: DeviceKind::Cuda, features: CudaFeatures::of(80, false), ..device.clone() })
    }
}

#[test]
fn quantised_layers_of_many_rows_have_the_bits_of_the_cpu_and_no_findings() {
    let options = SimulatorOptions::default();
    let seed = options.seed.clone();
    let device = Device::new(MetalBackend::new(Simulated::new(options).unwrap(), DeviceKind::MetalSim));
    let cpu = Device::new(CpuBackend::new(NonZeroUsize::new(1)).unwrap());
    let (mut tried, mut skipped) = (0, 0);
    for mut case in conformance::cases().into_iter().filter(|case| case.operator.name() == "quantized_linear") {
        case.operator = Arc::new(WithUnits(case.operator));
        let plan = case.plan(device.properties()).unwrap();
        if !plan.launches.iter().any(|launch| launch.kernel.key.to_string().starts_with("quantized_linear_blocks_")) {
            continue;
        }
        if !conformance::runs_all() && case.inputs[0].as_ref().is_some_and(|x| x.dims()[0] <= 16) {
            skipped += 1;
            continue;
        }
        tried += 1;
        seed.set(tried % 4);
        conformance::compare(&case, &device, &cpu, Placement::ALL[tried as usize % 2]).unwrap();
    }
    if skipped > 0 {
        conformance::skipped(format_args!("{skipped} cases of few rows on matrix units for integers"));
    }
    assert!(tried >= 6, "{tried}");
}
