//! The low-rank adapter of a linear layer by itself: plans have it where a vendor's library adds the long product, so for no GPU of Apple's.

use elinvar_core::{DType, Device, DeviceKind, DeviceProperties, Result};
use elinvar_kernels::{
    Operator, Plan, Precision, TensorInfo,
    conformance::{self, Bound, Case, HostTensor, Placement},
    cuda::CudaFeatures,
    lora::LoraLinear,
};
use elinvar_metal::{MetalBackend, Simulated, SimulatorOptions};

const LAYER: LoraLinear = LoraLinear { scale: 0.25, precision: Precision::Fast };

/// What is launched before the library's product.
#[derive(Debug)]
struct Adapter;

impl Operator for Adapter {
    fn name(&self) -> &'static str {
        LAYER.name()
    }

    fn outputs(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        LAYER.outputs(inputs)
    }

    fn plan(&self, inputs: &[Option<TensorInfo>], outputs: &[TensorInfo], device: &DeviceProperties) -> Result<Plan> {
        let mut plan =
            LAYER.plan(inputs, outputs, &DeviceProperties { kind: DeviceKind::Cuda, features: CudaFeatures::of(90, true), ..device.clone() })?;
        plan.launches.truncate(1);
        Ok(plan)
    }

    fn precision(&self) -> Precision {
        LAYER.precision
    }
}

/// `y = bias + scale (x Aᵀ) Bᵀ`.
fn case(dtype: DType, [m, n, k, r]: [usize; 4]) -> Case {
    let uniform = |dtype, dims: &[usize], seed| Some(HostTensor::random(dtype, dims, -1.0, 1.0, seed));
    let bias = uniform(DType::F32, &[n], 5).filter(|_| n % 2 == 1);
    let inputs = [uniform(dtype, &[m, k], 1), uniform(dtype, &[n, k], 2), uniform(DType::F32, &[r, k], 3), uniform(dtype, &[n, r], 4), bias];
    let bound = Bound::relative(3e-7).with_absolute((k as f64 * r as f64).sqrt() * 2f64.powi(-18));
    Case::new(Adapter, inputs, bound, move |i| {
        let projected = |row: usize, rank: usize| (0..k).map(|l| i[0][row * k + l] * i[2][rank * k + l]).sum::<f64>();
        let line = |row: usize| {
            let t: Vec<f64> = (0..r).map(|rank| f64::from(LAYER.scale) * projected(row, rank)).collect();
            let sum = move |column: usize| t.iter().zip(&i[3][column * r..]).map(|(t, b)| t * b).sum::<f64>();
            (0..n).map(move |column| sum(column) + i[4].get(column).unwrap_or(&0.0))
        };
        vec![(0..m).flat_map(line).collect()]
    })
}

#[test]
fn the_adapter_before_a_library_s_product_is_right_and_without_findings() {
    let options = SimulatorOptions::default();
    let seed = options.seed.clone();
    let device = Device::new(MetalBackend::new(Simulated::new(options).unwrap(), DeviceKind::MetalSim));
    let extents = [[20, 33, 100, 16], [33, 300, 31, 1], [514, 9, 33, 5]];
    for (number, case) in DType::FLOATS.iter().flat_map(|&dtype| extents.map(|extents| case(dtype, extents))).enumerate() {
        let keys: Vec<_> = case.plan(device.properties()).unwrap().launches.iter().map(|launch| launch.kernel.key.to_string()).collect();
        assert!(matches!(keys.as_slice(), [key] if key.starts_with("lora_adapter_")), "{keys:?}");
        seed.set(number as u64 % 4);
        conformance::compare(&case, &device, &device, Placement::ALL[number % 2]).unwrap();
    }
}
