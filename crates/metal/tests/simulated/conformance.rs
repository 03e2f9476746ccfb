//! The conformance suite on the Metal device over the simulator: every operator's Metal text, checked, under several schedules, with the CPU
//! device's bits.

use std::{
    num::NonZeroUsize,
    sync::{
        LazyLock,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use elinvar_core::{Backend, Device, DeviceKind};
use elinvar_cpu::CpuBackend;
use elinvar_kernels::{
    conformance::{self, Case, Placement},
    plan_for,
};
use elinvar_metal::{MetalBackend, Simulated, SimulatorOptions};

const SCHEDULES: u64 = 4;

/// Takes cases until none is left, each under `schedules` of the schedules; what failed.
fn work(cases: &[Case], next: &AtomicUsize, schedules: u64) -> Vec<String> {
    let options = SimulatorOptions::default();
    let seed = options.seed.clone();
    let simulated = Device::new(MetalBackend::new(Simulated::new(options).unwrap(), DeviceKind::MetalSim));
    let cpu = Device::new(CpuBackend::new(NonZeroUsize::new(1)).unwrap());
    let mut failures = Vec::new();
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        let Some(case) = cases.get(number) else { return failures };
        for schedule in (number as u64..).take(schedules as usize).map(|schedule| schedule % SCHEDULES) {
            seed.set(schedule);
            if let Err(error) = conformance::compare(case, &simulated, &cpu, Placement::ALL[schedule as usize % 2]) {
                failures.push(format!("schedule {schedule}: {error}"));
                break;
            }
        }
    }
}

fn backend() -> MetalBackend<Simulated> {
    MetalBackend::new(Simulated::new(SimulatorOptions::default()).unwrap(), DeviceKind::MetalSim)
}

/// The cases that are run here. Their kernels are compiled, many in one run of the compiler.
fn cases() -> &'static [Case] {
    static CASES: LazyLock<Vec<Case>> = LazyLock::new(|| {
        let backend = backend();
        let cases = conformance::sample(conformance::cases(), backend.properties());
        let launches = cases.iter().flat_map(|case| case.plan(backend.properties()).unwrap().launches);
        backend.compile_all(&launches.map(|launch| launch.kernel).collect::<Vec<_>>()).unwrap();
        cases
    });
    &CASES
}

#[test]
fn every_operator_has_the_bits_of_the_cpu_and_no_findings_under_any_schedule() {
    let (cases, next) = (cases(), AtomicUsize::new(0));
    let schedules = if conformance::runs_all() { SCHEDULES } else { 1 };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let failures: Vec<_> = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(|| work(cases, &next, schedules))).collect();
        workers.into_iter().flat_map(|w| w.join().unwrap()).collect()
    });
    println!("{} cases, each under {schedules} of {SCHEDULES} schedules, {} failed", cases.len(), failures.len());
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn plans_for_any_chip_have_the_bits_of_the_cpu() {
    let simulated = |name: &str| {
        let options = SimulatorOptions { gpu: name.parse().unwrap(), ..SimulatorOptions::default() };
        Device::new(MetalBackend::new(Simulated::new(options).unwrap(), DeviceKind::MetalSim))
    };
    let default = backend().properties().clone();
    assert!(default.compute_units == 7 && default.name.contains("Apple M1, 7 cores"), "{default:?}");
    let cpu = Device::new(CpuBackend::new(NonZeroUsize::new(1)).unwrap());
    let shape = |plan: elinvar_kernels::Plan| plan.launches.iter().map(|launch| (launch.grid, launch.kernel.key.clone())).collect::<Vec<_>>();
    for name in ["Apple M4 Max, 40 cores", "Apple M3 Ultra, 80 cores"] {
        let device = simulated(name);
        let differs = |case: &&Case| shape(case.plan(&default).unwrap()) != shape(case.plan(device.properties()).unwrap());
        let different: Vec<_> = cases().iter().filter(differs).take(8).collect();
        assert!(!different.is_empty(), "{name} is planned for as the default");
        different.into_iter().for_each(|case| conformance::compare(case, &device, &cpu, Placement::Aligned).unwrap());
    }
}

#[test]
fn kernels_that_need_many_registers_run_with_smaller_threadgroups_and_the_same_bits() {
    const MOST: usize = 64;
    let simulated = |max_threads| {
        let options = SimulatorOptions { max_threads, ..SimulatorOptions::default() };
        Device::new(MetalBackend::new(Simulated::new(options).unwrap(), DeviceKind::MetalSim))
    };
    let (narrow, cpu) = (simulated(MOST), Device::new(CpuBackend::new(NonZeroUsize::new(1)).unwrap()));
    let (mut smaller, mut asked) = (0, 0);
    let step = if conformance::runs_all() { 7 } else { 28 };
    if step > 7 {
        conformance::skipped("three of four cases with smaller threadgroups");
    }
    for case in conformance::cases().iter().step_by(step) {
        let threads = |plan: elinvar_kernels::Plan| plan.launches.iter().map(|launch| launch.threadgroup.count()).max().unwrap_or(0);
        let (planned, infos) = (threads(case.plan(narrow.properties()).unwrap()), case.infos().unwrap());
        let fitted = threads(plan_for(&*case.operator, &infos, &case.operator.infer(&infos).unwrap(), &narrow).unwrap());
        smaller += usize::from(fitted < planned);
        asked += usize::from(fitted > MOST as u128);
        conformance::compare(case, &narrow, &cpu, Placement::Aligned).unwrap();
    }
    println!("{smaller} plans were smaller, {asked} had kernels compiled for them");
    assert!(smaller > 0 && asked > 0);
}
