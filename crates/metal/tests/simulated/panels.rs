//! Strict attention as plans have it for NVIDIA's GPUs alone: tiles of many rows.

use std::{collections::BTreeSet, num::NonZeroUsize};

use elinvar_core::{Device, DeviceKind};
use elinvar_cpu::CpuBackend;
use elinvar_kernels::conformance::{self, Placement};
use elinvar_metal::{MetalBackend, Simulated, SimulatorOptions};
use elinvar_sim::Config;

#[test]
fn attention_of_many_rows_as_for_nvidia_has_the_bits_of_the_cpu_and_no_findings() {
    let config = Config { threadgroup_memory: conformance::Case::NVIDIA_THREADGROUP_MEMORY, ..Config::default() };
    let options = SimulatorOptions { config, ..SimulatorOptions::default() };
    let seed = options.seed.clone();
    let device = Device::new(MetalBackend::new(Simulated::new(options).unwrap(), DeviceKind::MetalSim));
    let cpu = Device::new(CpuBackend::new(NonZeroUsize::new(1)).unwrap());
    let is_strict =
        |case: &conformance::Case| ["attention", "paged_attention"].contains(&case.operator.name()) && !case.operator.precision().is_fast();
    let panel = |case: &conformance::Case| {
        let plan = case.plan(device.properties()).unwrap();
        plan.launches.iter().map(|launch| launch.kernel.key.to_string()).find(|name| name.contains("_rows32_"))
    };
    let cases = conformance::cases().into_iter().filter(is_strict).map(|case| case.for_nvidia(1)).filter(|case| panel(case).is_some()).collect();
    let mut kernels = BTreeSet::new();
    for (i, case) in conformance::sample(cases, device.properties()).into_iter().enumerate() {
        kernels.extend(panel(&case));
        seed.set(i as u64 % 4);
        conformance::compare(&case, &device, &cpu, Placement::ALL[i % 2]).unwrap();
    }
    for part in
        ["attention_f32_", "attention_paged_", "_f32_f32_", "_f32_f16_", "_f32_bf16_", "_lanes4_", "_lanes8_", "_lanes16_", "_lanes32_", "_chunks2"]
    {
        assert!(kernels.iter().any(|name| name.contains(part)), "no kernel of {part}: {kernels:#?}");
    }
}
