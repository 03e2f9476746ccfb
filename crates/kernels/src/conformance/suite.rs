//! Putting a device through cases, one after the other.

use std::{
    collections::{BTreeMap, HashSet},
    io::Write,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use elinvar_core::{Device, DeviceProperties, Error, KernelKey, KernelSource, Metal, Result};

use super::{Case, Placement, compare};

/// Of some cases those that launch, on a device, a kernel that none before them launches: a short way through all kernels.
pub fn each_kernel_once(cases: Vec<Case>, device: &DeviceProperties) -> Vec<Case> {
    first_of_each(cases, device, |kernel| vec![kernel.key.to_string()])
}

/// The cases that a test runs: all of them where [`runs_all`] says so, otherwise those that launch a kernel whose text, argument or value of a constant no
/// case before them has, for whatever data types. Prints how many are left out, and how to run them.
pub fn sample(cases: Vec<Case>, device: &DeviceProperties) -> Vec<Case> {
    if runs_all() {
        return cases;
    }
    let count = cases.len();
    let sampled = first_of_each(cases, device, |kernel| {
        let KernelKey { operator, constants, .. } = &kernel.key;
        let form = kernel.metal.as_ref().and_then(Metal::form);
        // Operators that differ in what their function is given share it.
        let name = form.map_or(&**operator, |form| form.function);
        let (files, arguments) = (form.map(|form| form.text(|file| file.name)), form.map(|form| form.arguments));
        let values = constants.iter().map(|constant| format!("{name} {constant:?}"));
        values.chain([format!("{name} {files:?}"), format!("{name} {arguments:?}")]).collect()
    });
    let left_out = count - sampled.len();
    skipped(format_args!("{left_out} of {count} cases, kernels for other data types, sizes and combinations of constants"));
    sampled
}

/// Reports, also where a test that passes is not heard, what it leaves out unless [`runs_all`].
pub fn skipped(what: impl std::fmt::Display) {
    // Nobody may listen.
    let _ = writeln!(std::io::stderr(), "SKIPPED: {what}; `tools/test --all` runs them");
}

/// Whether tests run everything they have: the environment variable `ELINVAR_TESTS` is `all`, as `tools/test --all` sets it.
pub fn runs_all() -> bool {
    std::env::var_os("ELINVAR_TESTS").is_some_and(|tests| tests == "all")
}

/// Of some cases those that launch a kernel with a trait which no kernel of a case before them has.
fn first_of_each(cases: Vec<Case>, device: &DeviceProperties, traits: impl Fn(&KernelSource) -> Vec<String>) -> Vec<Case> {
    let mut seen = HashSet::new();
    let mut is_first = |case: &Case| match case.plan(device) {
        Ok(plan) => plan.launches.iter().flat_map(|launch| traits(&launch.kernel)).filter(|found| seen.insert(found.clone())).count() > 0,
        // What the device rejects is reported when the case is run.
        Err(_) => true,
    };
    cases.into_iter().filter(|case| is_first(case)).collect()
}

/// Compiles every kernel that cases launch on a device, some at a time: how many there are, and what does not compile. `tell` hears how many of how
/// many are done.
pub fn compile(cases: &[Case], device: &Device, tell: impl Fn(usize, usize) + Sync) -> (usize, Vec<Error>) {
    let mut seen = HashSet::new();
    let launches = cases.iter().filter_map(|case| case.plan(device.properties()).ok()).flat_map(|plan| plan.launches);
    let kernels: Vec<_> = launches.map(|launch| launch.kernel).filter(|kernel| seen.insert(kernel.key.clone())).collect();
    let (next, done, failures) = (AtomicUsize::new(0), AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(kernel) = kernels.get(number) else { break };
                    if let Err(error) = device.pipeline(kernel).and_then(|pipeline| device.ready(&pipeline)) {
                        failures.lock().unwrap_or_else(PoisonError::into_inner).insert(number, error);
                    }
                    tell(done.fetch_add(1, Ordering::Relaxed) + 1, kernels.len());
                }
            });
        }
    });
    (kernels.len(), failures.into_inner().unwrap_or_else(PoisonError::into_inner).into_values().collect())
}

/// Runs that passed, and those that failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Bits (or, for fast precision, errors) as they must be.
    pub passed: usize,
    /// Anything else.
    pub failed: usize,
}

/// Compares a device with a reference on each case, aligned and at odd offsets, until the device is lost; `tell` hears of each run, with the case's number.
pub fn run_suite(cases: &[Case], device: &Device, reference: &Device, mut tell: impl FnMut(usize, Placement, &Result<()>)) -> Tally {
    let mut tally = Tally::default();
    for (number, case) in cases.iter().enumerate() {
        for &placement in Placement::ALL {
            let outcome = compare(case, device, reference, placement);
            tell(number, placement, &outcome);
            match outcome {
                Ok(()) => tally.passed += 1,
                Err(error) => {
                    tally.failed += 1;
                    if error.is_device_lost() {
                        return tally;
                    }
                }
            }
        }
    }
    tally
}
