//! Which operators have other results on a device that flushes subnormals, as Apple's GPUs do: the conformance suite's cases of subnormals on the simulator
//! that flushes, beside the CPU device.

#[cfg(target_os = "linux")]
fn main() -> elinvar_core::Result<()> {
    use std::collections::{BTreeMap, BTreeSet};

    use elinvar_core::{Device, DeviceKind};
    use elinvar_cpu::CpuBackend;
    use elinvar_kernels::{
        Precision,
        conformance::{self, HostTensor, Placement},
    };
    use elinvar_metal::{MetalBackend, Simulated, SimulatorOptions, Subnormals};

    let options = SimulatorOptions { subnormals: Subnormals::Flush, ..SimulatorOptions::default() };
    let flushing = Device::new(MetalBackend::new(Simulated::new(options)?, DeviceKind::MetalSim));
    let cpu = Device::new(CpuBackend::new(None)?);
    let mut operators: BTreeMap<String, (usize, usize, BTreeSet<String>)> = BTreeMap::new();
    for case in conformance::cases().iter().filter(|case| case.operator.precision() == Precision::Strict && case.name().ends_with("tiny")) {
        let operator = format!("{:?}", case.operator);
        let operator = operator.split(", ").next().unwrap_or_default().replace(['{', '}'], "");
        let (cases, differing, types) = operators.entry(operator.split_whitespace().collect::<Vec<_>>().join(" ")).or_default();
        *cases += 1;
        let (found, expected) = (conformance::run(case, &flushing, Placement::Aligned)?, conformance::run(case, &cpu, Placement::Aligned)?);
        if found.iter().zip(&expected).any(|(found, expected)| found.first_difference(expected).is_some()) {
            *differing += 1;
            types.extend(case.inputs.iter().flatten().map(HostTensor::dtype).filter(|dtype| dtype.is_float()).map(|dtype| dtype.to_string()));
        }
    }
    for (operator, (cases, differing, types)) in operators {
        println!("{operator:50} {differing:3} of {cases:3} differ  {}", types.into_iter().collect::<Vec<_>>().join(" "));
    }
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn main() {
    eprintln!("the simulator runs on Linux");
}
