//! Putting a device through cases, one after the other.

use std::collections::HashSet;

use elinvar_core::{Device, DeviceProperties, Error, Result};

use super::{Case, Placement, compare};

/// Of some cases those that launch, on a device, a kernel that none before them launches: a short way through all kernels.
pub fn each_kernel_once(cases: Vec<Case>, device: &DeviceProperties) -> Vec<Case> {
    let mut seen = HashSet::new();
    let mut is_first = |case: &Case| match case.plan(device) {
        Ok(plan) => plan.launches.iter().filter(|launch| seen.insert(launch.kernel.key.clone())).count() > 0,
        // What the device refuses is told when the case is run.
        Err(_) => true,
    };
    cases.into_iter().filter(|case| is_first(case)).collect()
}

/// Compiles every kernel that cases launch on a device, side by side where the device does that: how many there are, and what does not compile.
pub fn compile(cases: &[Case], device: &Device) -> (usize, Vec<Error>) {
    let mut seen = HashSet::new();
    let launches = cases.iter().filter_map(|case| case.plan(device.properties()).ok()).flat_map(|plan| plan.launches);
    let kernels: Vec<_> = launches.map(|launch| launch.kernel).filter(|kernel| seen.insert(kernel.key.clone())).collect();
    let begun: Vec<_> = kernels.iter().map(|kernel| device.pipeline(kernel)).collect();
    let failures = begun.into_iter().filter_map(|begun| begun.and_then(|pipeline| device.ready(&pipeline)).err());
    (kernels.len(), failures.collect())
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
pub fn put_through(cases: &[Case], device: &Device, reference: &Device, mut tell: impl FnMut(usize, Placement, &Result<()>)) -> Tally {
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use elinvar_core::{Backend, CommandList, Completion, KernelSource, MemoryInfo, NullBackend, Pipeline, RawBuffer, Storage};

    use super::*;
    use crate::conformance::cases;

    /// Begins to compile at once, and tells later whether that succeeds.
    struct Late(NullBackend, bool);

    impl Backend for Late {
        fn properties(&self) -> &DeviceProperties {
            self.0.properties()
        }

        fn memory(&self) -> MemoryInfo {
            self.0.memory()
        }

        fn allocate(&self, bytes: usize, storage: Storage) -> Result<RawBuffer> {
            self.0.allocate(bytes, storage)
        }

        fn write(&self, buffer: &RawBuffer, offset: usize, bytes: &[u8]) -> Result<()> {
            self.0.write(buffer, offset, bytes)
        }

        fn read(&self, buffer: &RawBuffer, offset: usize, bytes: &mut [u8]) -> Result<()> {
            self.0.read(buffer, offset, bytes)
        }

        fn compile(&self, kernel: &Arc<KernelSource>) -> Result<Pipeline> {
            self.0.compile(kernel)
        }

        fn ready(&self, _: &Pipeline) -> Result<()> {
            if self.1 { Ok(()) } else { Err(Error::compile_failed("on purpose")) }
        }

        fn submit(&self, commands: &Arc<CommandList>) -> Result<Completion> {
            self.0.submit(commands)
        }
    }

    #[test]
    fn what_does_not_compile_is_told_also_by_devices_that_only_begin() {
        let chosen: Vec<_> = cases().into_iter().filter(|case| case.name().starts_with("Softmax")).collect();
        let outcome = |succeeds| {
            let (kernels, refused) = compile(&chosen, &Device::new(Late(NullBackend::new(), succeeds)));
            (kernels, refused.len())
        };
        let (kernels, refused) = outcome(false);
        assert!(kernels > 0 && refused == kernels, "{kernels} kernels, {refused} refused");
        assert_eq!(outcome(true), (kernels, 0));
    }
}
