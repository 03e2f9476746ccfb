//! Kernels in Metal that only plans for CUDA use, on the simulator: checked, under several schedules.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a helper that fails fails its test")]

mod properties;

use elinvar_core::{DType, Device, DeviceKind, DeviceProperties, Result};
use elinvar_kernels::{
    Operator, Plan, Precision, TensorInfo,
    conformance::{self, Bound, Case, HostTensor, Placement},
    lora::LoraLinear,
};
use elinvar_metal::{MetalBackend, Simulated, SimulatorOptions};

/// The first launch of a layer with an adapter, as CUDA has it beside cuBLASLt.
#[derive(Clone, Copy, Debug)]
struct Adapter(LoraLinear);

impl Operator for Adapter {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn outputs(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        self.0.outputs(inputs)
    }

    fn plan(&self, inputs: &[Option<TensorInfo>], outputs: &[TensorInfo], _device: &DeviceProperties) -> Result<Plan> {
        let mut launches = self.0.plan(inputs, outputs, &properties::gpu(90))?.launches;
        assert!(launches.iter().any(|launch| launch.kernel.native.is_some()), "the plan does without cuBLASLt");
        launches.truncate(1);
        Ok(Plan { launches, scratch: Vec::new() })
    }

    fn precision(&self) -> Precision {
        self.0.precision
    }
}

fn case([x, a, b]: [DType; 3], [m, n, k, r]: [usize; 4]) -> Case {
    let uniform = |dtype, dims: &[usize], seed| Some(HostTensor::random(dtype, dims, -1.0, 1.0, seed));
    let bias = if n % 2 == 1 { uniform(DType::F16, &[n], 5) } else { None };
    let inputs = [uniform(x, &[m, k], 1), uniform(x, &[n, k], 2), uniform(a, &[r, k], 3), uniform(b, &[n, r], 4), bias];
    let layer = LoraLinear { scale: 0.5, precision: Precision::Fast };
    Case::new(Adapter(layer), inputs, Bound::relative(1e-6).with_absolute(1e-5 * (k as f64).sqrt()), move |i| {
        let projected = |row: usize, l: usize| (0..k).map(|j| i[0][row * k + j] * i[2][l * k + j]).sum::<f64>();
        let projected: Vec<f64> = (0..m * r).map(|at| projected(at / r, at % r)).collect();
        let delta = |row: usize, column: usize| (0..r).map(|l| projected[row * r + l] * i[3][column * r + l]).sum::<f64>();
        vec![(0..m * n).map(|at| i[4].get(at % n).unwrap_or(&0.0) + 0.5 * delta(at / n, at % n)).collect()]
    })
}

#[test]
fn the_adapter_beside_the_library_s_product() {
    let options = SimulatorOptions::default();
    let seed = options.seed.clone();
    let device = Device::new(MetalBackend::new(Simulated::new(options).unwrap(), DeviceKind::MetalSim));
    let (f32, f16, bf16) = (DType::F32, DType::F16, DType::BF16);
    let cases = [
        case([f32, f32, f32], [9, 300, 256, 8]),
        case([bf16, bf16, bf16], [12, 65, 100, 17]),
        case([f16, f32, bf16], [10, 33, 520, 1]),
        case([bf16, bf16, f32], [515, 21, 40, 6]),
    ];
    for case in &cases {
        for schedule in 0..3 {
            seed.set(schedule);
            let results = conformance::run(case, &device, Placement::ALL[schedule as usize % 2]).unwrap();
            case.check(&results).unwrap();
        }
    }
}
