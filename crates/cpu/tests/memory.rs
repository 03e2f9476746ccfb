//! Resident memory over many submissions: alone in its process, because other tests' memory would be counted too.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a helper that fails fails its test")]

use std::{num::NonZeroUsize, sync::Arc};

use elinvar_core::{Buffer, CommandList, DType, Device, Dispatch, Extent, HostKernel, KernelKey, KernelSource, ListBuilder, Parameter};
use elinvar_cpu::CpuBackend;

/// A list that adds one to every element of `buffer`.
fn add_one(device: &Device, buffer: &Buffer) -> Arc<CommandList> {
    let host: HostKernel = |arguments| {
        arguments.output::<f32>(0)?.iter_mut().for_each(|x| *x += 1.0);
        Ok(())
    };
    let key = KernelKey::new("add_one", &[DType::F32]);
    let source = Arc::new(KernelSource { key, parameters: vec![Parameter::update("x", DType::F32)], params_bytes: 0, host });
    let pipeline = device.pipeline(&source).unwrap();
    let one = Extent::linear(1);
    let bindings = vec![Some(buffer.bind(0, buffer.bytes()).unwrap())];
    let mut list = ListBuilder::new();
    let dispatch = Dispatch { pipeline, bindings, params: Vec::new(), grid: one, threadgroup: one, threadgroup_memory: 0 };
    list.dispatch(dispatch, device.properties()).unwrap();
    list.finish()
}

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
            device.submit(&add_one(&device, &buffer)).unwrap();
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
