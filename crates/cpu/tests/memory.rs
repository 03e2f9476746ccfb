//! Resident memory over many submissions: alone in its process, because other tests' memory would be counted too.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a helper that fails fails its test")]

mod common;

use std::num::NonZeroUsize;

use elinvar_core::{Device, HostKernel};
use elinvar_cpu::CpuBackend;

use common::list;

const ADD_ONE: HostKernel = |arguments| {
    arguments.output::<f32>(0)?.iter_mut().for_each(|x| *x += 1.0);
    Ok(())
};

/// Bytes this process holds.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}

#[test]
fn memory_stays_flat_over_a_hundred_thousand_submissions() {
    let device = Device::new(CpuBackend::new(NonZeroUsize::new(2)).unwrap());
    let submit = |times: usize| {
        for _ in 0..times {
            let buffer = device.allocate(64 << 10).unwrap();
            device.submit(&list(&device, "add_one", ADD_ONE, &buffer)).unwrap();
        }
        device.read(&device.allocate(4).unwrap(), 0, &mut [0; 4]).unwrap();
    };
    submit(1000);
    let before = resident();
    submit(100_000);
    let grown = resident().saturating_sub(before);
    assert!(grown < 8 << 20, "grew by {grown} bytes");
    let statistics = device.pool_statistics();
    assert_eq!(statistics.live_bytes, 0);
    assert!(statistics.peak_bytes < 8 << 20 && statistics.misses < 100, "{statistics:?}");
}
