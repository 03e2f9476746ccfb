//! Kernels as plans have them for NVIDIA's GPUs alone: quantised layers of many rows on matrix units for integers, and of one row by twice as many simdgroups;
//! strict attention of many rows.

use std::{collections::BTreeSet, num::NonZeroUsize};

use elinvar_core::{Device, DeviceKind};
use elinvar_cpu::CpuBackend;
use elinvar_kernels::conformance::{self, Placement};
use elinvar_metal::{MetalBackend, Seed, Simulated, SimulatorOptions};
use elinvar_sim::Config;

/// The simulator with the threadgroup memory of NVIDIA's GPUs, its seed, and a CPU.
fn devices() -> (Device, Seed, Device) {
    let config = Config { threadgroup_memory: conformance::Case::NVIDIA_THREADGROUP_MEMORY, ..Config::default() };
    let options = SimulatorOptions { config, ..SimulatorOptions::default() };
    let seed = options.seed.clone();
    let device = Device::new(MetalBackend::new(Simulated::new(options).unwrap(), DeviceKind::MetalSim));
    (device, seed, Device::new(CpuBackend::new(NonZeroUsize::new(1)).unwrap()))
}

#[test]
fn quantised_layers_as_for_nvidia_have_the_bits_of_the_cpu_and_no_findings() {
    let (device, seed, cpu) = devices();
    let (mut tried, mut skipped, mut narrow, mut normalised) = (0, 0, 0, BTreeSet::new());
    let is_strict = |case: &conformance::Case| case.operator.name() == "quantized_linear" && !case.operator.precision().is_fast();
    for case in conformance::cases().into_iter().filter(is_strict) {
        // Of one unit, so that simdgroups have several tiles; or of many, for which blocks of rows and columns are narrow.
        let rows = case.inputs[0].as_ref().map_or(0, |x| x.dims()[0]);
        let units = if rows > 16 && tried % 2 == 0 { 1000 } else { 1 };
        // Those of a device with one unit are there for tiles of other kernels.
        let is_for_others = case.name().contains("as planned for");
        let case = case.for_nvidia(units);
        let plan = case.plan(device.properties()).unwrap();
        let names: Vec<_> = plan.launches.iter().map(|launch| launch.kernel.key.to_string()).collect();
        if !names.iter().any(|name| name.starts_with("quantized_linear_blocks_") || name.ends_with("simdgroups16")) {
            continue;
        }
        let is_taken = |name: &String| {
            let is_of_eight =
                ["Q2_K", "Q4_0"].iter().any(|format| name.starts_with(&format!("quantized_linear_blocks_{format}_"))) && name.contains("rows8");
            is_of_eight || name.starts_with("quantized_linear_Q4_K") && name.contains("gated1") || name.starts_with("normalised_row_bytes")
        };
        let is_seldom = rows <= 16 && !names.iter().any(is_taken) || is_for_others;
        if is_seldom && !conformance::runs_all() {
            skipped += 1;
            continue;
        }
        tried += 1;
        narrow += usize::from(units > 1);
        normalised.extend(names.iter().find(|name| name.starts_with("normalised_row_bytes")).cloned());
        seed.set(tried % 4);
        conformance::compare(&case, &device, &cpu, Placement::ALL[tried as usize % 2]).unwrap();
    }
    if skipped > 0 {
        conformance::skipped(format_args!("{skipped} cases of few rows, or for one unit, as for NVIDIA's GPUs"));
    }
    assert!(tried >= 7 && narrow >= 3, "{narrow} of {tried}");
    assert!(["rows8", "rows16", "rows64"].iter().all(|rows| normalised.iter().any(|name| name.ends_with(rows))), "{normalised:?}");
}

/// The kernel of a case's plan for tiles of many rows, if it has one.
fn panel(case: &conformance::Case, device: &Device) -> Option<String> {
    let plan = case.plan(device.properties()).unwrap();
    plan.launches.iter().map(|launch| launch.kernel.key.to_string()).find(|name| name.contains("_rows32_"))
}

#[test]
fn attention_of_many_rows_as_for_nvidia_has_the_bits_of_the_cpu_and_no_findings() {
    let (device, seed, cpu) = devices();
    let is_strict =
        |case: &conformance::Case| ["attention", "paged_attention"].contains(&case.operator.name()) && !case.operator.precision().is_fast();
    let cases =
        conformance::cases().into_iter().filter(is_strict).map(|case| case.for_nvidia(1)).filter(|case| panel(case, &device).is_some()).collect();
    let mut kernels = BTreeSet::new();
    for (i, case) in conformance::sample(cases, device.properties()).into_iter().enumerate() {
        kernels.extend(panel(&case, &device));
        seed.set(i as u64 % 4);
        conformance::compare(&case, &device, &cpu, Placement::ALL[i % 2]).unwrap();
    }
    for part in
        ["attention_f32_", "attention_paged_", "_f32_f32_", "_f32_f16_", "_f32_bf16_", "_lanes4_", "_lanes8_", "_lanes16_", "_lanes32_", "_chunks2"]
    {
        assert!(kernels.iter().any(|name| name.contains(part)), "no kernel of {part}: {kernels:#?}");
    }
}

#[test]
fn attention_of_many_rows_rejects_pages_that_the_cache_does_not_have() {
    let (device, _, _) = devices();
    let paged = conformance::rejected().into_iter().filter(|case| case.operator.name() == "paged_attention").map(|case| case.for_nvidia(1));
    let cases: Vec<_> = paged.filter(|case| panel(case, &device).is_some()).collect();
    assert!(cases.len() >= 2, "{}", cases.len());
    for case in cases {
        conformance::reject(&case, &device, Placement::Odd).unwrap();
    }
}
