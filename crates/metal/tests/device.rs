//! The Metal device over the simulator as the seam sees it.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a helper that fails fails its test")]

use std::{collections::HashMap, sync::Arc};

use elinvar_core::{
    Access, Buffer, CommandList, DType, Device, DeviceKind, Dispatch, Extent, HostMemory, KernelKey, KernelSource, ListBuilder, Metal, MetalText,
    Parameter,
};
use elinvar_kernels::{Operator, TensorInfo, encode, softmax::Softmax};
use elinvar_metal::{MetalBackend, Simulated, SimulatorOptions};

fn device(texts: &[(&str, String)]) -> Device {
    let texts: HashMap<_, _> = texts.iter().map(|(name, text)| ((*name).to_owned(), text.clone())).collect();
    let simulated = Simulated::new(SimulatorOptions::default()).unwrap();
    Device::new(MetalBackend::new(simulated, DeviceKind::MetalSim).with_texts(texts))
}

/// A list that computes the softmax of a row of zeros, and where its result goes.
fn softmax(device: &Device, n: usize) -> elinvar_core::Result<(Arc<CommandList>, Buffer)> {
    let (operator, info) = (Softmax { axis: -1, log: false }, TensorInfo::new(DType::F32, &[1, n])?);
    let plan = operator.plan(&[Some(info)], &[info], device.properties())?;
    let (x, y) = (device.allocate(4 * n)?, device.allocate(4 * n)?);
    device.write(&x, 0, &vec![0; 4 * n])?;
    let mut list = ListBuilder::new();
    encode(&plan, &[Some(x.bind(0, 4 * n)?)], &[y.bind(0, 4 * n)?], device, &mut list, |bytes| device.allocate(bytes))?;
    Ok((list.finish(), y))
}

fn source(file: &str) -> String {
    std::fs::read_to_string(format!("{}/../kernels/src/{file}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

#[test]
fn lists_run_in_order_and_are_waited_for_by_reads() {
    let device = device(&[]);
    let (list, y) = softmax(&device, 64).unwrap();
    for _ in 0..10 {
        device.submit(&list).unwrap();
    }
    let mut bytes = [0; 256];
    device.read(&y, 0, &mut bytes).unwrap();
    assert!(bytes.as_chunks().0.iter().all(|y| f32::from_ne_bytes(*y) == 1.0 / 64.0), "{bytes:?}");
}

#[test]
fn a_reading_has_what_was_there_between_two_lists() {
    let device = device(&[]);
    let buffer = device.allocate(8).unwrap();
    let fill = |value: u8| {
        let mut list = ListBuilder::new();
        list.fill(buffer.bind(0, 8).unwrap(), value).unwrap();
        device.submit(&list.finish()).unwrap()
    };
    let readings: Vec<_> = (1..20u8)
        .map(|value| {
            fill(value);
            device.read_later(&buffer, 4, 2).unwrap()
        })
        .collect();
    fill(99);
    for (reading, value) in readings.into_iter().zip(1..) {
        assert_eq!(reading.wait().unwrap(), [value; 2]);
    }
    assert!(device.read_later(&buffer, 7, 2).is_err());
}

#[test]
fn a_device_may_be_dropped_while_a_list_runs() {
    for _ in 0..5 {
        let device = device(&[]);
        let (list, _) = softmax(&device, 64).unwrap();
        let completion = device.submit(&list).unwrap();
        drop((device, list));
        completion.wait().unwrap();
    }
}

#[test]
fn a_finding_is_told_once_by_whoever_waits_first() {
    const FILE: &str = "softmax/row.metal";
    let broken = source(FILE).replacen("share.store(", "if (v > 0) share.store(", 1);
    assert_ne!(broken, source(FILE));
    let device = device(&[(FILE, broken)]);
    let (list, y) = softmax(&device, 64).unwrap();
    let error = device.submit(&list).unwrap().wait().unwrap_err().to_string();
    assert!(error.contains("unwritten-output") && error.contains("`y`"), "{error}");
    device.read(&y, 0, &mut [0; 4]).unwrap();
    device.submit(&list).unwrap();
    assert!(device.read(&y, 0, &mut [0; 4]).unwrap_err().to_string().contains("unwritten-output"));
}

#[test]
fn a_text_that_does_not_compile_is_told_with_its_line() {
    const FILE: &str = "softmax/softmax.metal";
    let line = source(FILE).lines().position(|l| l.contains("[[kernel]]")).unwrap() + 1;
    let device = device(&[(FILE, source(FILE).replacen("[[kernel]] void", "[[kernel]] vojd", 1))]);
    let error = softmax(&device, 64).unwrap_err();
    assert!(error.is_compile_failed() && error.to_string().contains(&format!("{FILE}:{line}")), "{error}");
}

/// Launches of kernels that write, then read, `y`; a launch says of it what `first` says.
fn handed_over(device: &Device, first: Access) -> (Arc<CommandList>, Buffer) {
    const TEXT: &str = "#include <metal_stdlib>
        using namespace metal;
        kernel void make(device uint* y [[buffer(0)]], uint i [[thread_position_in_grid]]) { y[i] = 3 * i; }
        kernel void take(device const uint* y [[buffer(0)]], device uint* z [[buffer(1)]], uint i [[thread_position_in_grid]]) { z[i] = y[i] + 1; }";
    let prepare = |name: &'static str, accesses: &[(&'static str, Access)]| {
        let parameters = accesses
            .iter()
            .map(|&(name, access)| Parameter { name: name.into(), access, dtype: DType::U32, optional: false, early: false })
            .collect::<Vec<_>>();
        let buffers = (0..parameters.len() as u32).collect();
        let (text, kernel) = (TEXT.to_owned(), name.to_owned());
        let text = MetalText {
            name: "handed.metal".into(),
            text,
            kernel,
            constants: vec![],
            fast_math: false,
            buffers,
            threadgroup: vec![],
            refusals: vec![],
            registers: None,
        };
        let metal = Some(Metal::Text(Arc::new(text)));
        device
            .prepare(&Arc::new(KernelSource { key: KernelKey::new(name, &[]), parameters, params_bytes: 0, host: None, metal, cuda: None }))
            .unwrap()
    };
    let (make, take) = (prepare("make", &[("y", first)]), prepare("take", &[("y", Access::Read), ("z", Access::Write)]));
    let (y, z) = (device.allocate_dedicated(256).unwrap(), device.allocate_dedicated(256).unwrap());
    let mut list = ListBuilder::new();
    for (pipeline, buffers) in [(make, vec![&y]), (take, vec![&y, &z])] {
        let bindings = buffers.iter().map(|buffer| buffer.bind(0, 256).ok()).collect();
        let (grid, threadgroup) = (Extent::linear(2), Extent::linear(32));
        list.dispatch(Dispatch { pipeline, bindings, params: vec![], grid, threadgroup, threadgroup_memory: vec![] }, device.properties()).unwrap();
    }
    (list.finish(), z)
}

#[test]
fn a_barrier_that_is_not_derived_is_told() {
    let (mut right, mut wrong) = (0, 0);
    for seed in 0..8 {
        let options = SimulatorOptions::default();
        options.seed.set(seed);
        let device = Device::new(MetalBackend::new(Simulated::new(options).unwrap(), DeviceKind::MetalSim));
        let (list, z) = handed_over(&device, Access::Write);
        device.submit(&list).unwrap().wait().unwrap();
        let mut bytes = [0; 256];
        device.read(&z, 0, &mut bytes).unwrap();
        right += usize::from(bytes.as_chunks().0.iter().enumerate().all(|(i, z)| u32::from_ne_bytes(*z) as usize == 3 * i + 1));
        // A launch that is said to read what it writes needs no barrier after it, as far as anyone can tell from the list.
        let (list, _) = handed_over(&device, Access::Read);
        let told = device.submit(&list).unwrap().wait();
        wrong += usize::from(told.is_err_and(|error| error.to_string().contains("uninitialised")));
    }
    assert_eq!(right, 8);
    assert!((1..8).contains(&wrong), "{wrong} of 8 orders");
}

#[test]
fn copies_and_fills_take_any_bytes() {
    let device = device(&[]);
    let (from, to) = (device.allocate(64).unwrap(), device.allocate(64).unwrap());
    device.write(&from, 0, &(0..64).collect::<Vec<u8>>()).unwrap();
    let mut list = ListBuilder::new();
    list.fill(to.bind(0, 64).unwrap(), 7).unwrap();
    list.copy(from.bind(5, 9).unwrap(), to.bind(2, 9).unwrap()).unwrap();
    list.fill(to.bind(9, 3).unwrap(), 200).unwrap();
    list.copy(from.bind(4, 8).unwrap(), to.bind(16, 8).unwrap()).unwrap();
    device.submit(&list.finish()).unwrap();
    let (mut bytes, mut expected) = ([0; 64], [7u8; 64]);
    device.read(&to, 0, &mut bytes).unwrap();
    expected[2..11].copy_from_slice(&[5, 6, 7, 8, 9, 10, 11, 12, 13]);
    expected[9..12].fill(200);
    expected[16..24].copy_from_slice(&[4, 5, 6, 7, 8, 9, 10, 11]);
    assert_eq!(bytes, expected);
}

#[test]
fn adopted_memory_may_begin_anywhere() {
    let device = device(&[]);
    let owner: Arc<Vec<u8>> = Arc::new((0..=255).collect());
    let adopted = device.adopt(HostMemory::new(owner).slice(24..128).unwrap()).unwrap();
    let to = device.allocate(16).unwrap();
    let mut list = ListBuilder::new();
    list.copy(adopted.bind(4, 16).unwrap(), to.bind(0, 16).unwrap()).unwrap();
    device.submit(&list.finish()).unwrap();
    let mut bytes = [0; 16];
    device.read(&to, 0, &mut bytes).unwrap();
    assert_eq!(bytes.to_vec(), (28..44).collect::<Vec<u8>>());
}

#[test]
fn memory_that_is_not_unified_is_reached_through_copies() {
    let options = SimulatorOptions { unified_memory: false, ..SimulatorOptions::default() };
    let device = Device::new(MetalBackend::new(Simulated::new(options).unwrap(), DeviceKind::MetalSim));
    let (from, to) = (device.allocate(64).unwrap(), device.allocate(64).unwrap());
    device.write(&from, 3, &(0..61).collect::<Vec<u8>>()).unwrap();
    let adopted = device.adopt(HostMemory::new(Arc::new((100..200).collect::<Vec<u8>>()))).unwrap();
    let mut list = ListBuilder::new();
    list.copy(from.bind(4, 32).unwrap(), to.bind(0, 32).unwrap()).unwrap();
    list.copy(adopted.bind(0, 32).unwrap(), to.bind(32, 32).unwrap()).unwrap();
    device.submit(&list.finish()).unwrap();
    let later = device.read_later(&to, 30, 4).unwrap();
    let mut bytes = [0; 62];
    device.read(&to, 1, &mut bytes).unwrap();
    assert_eq!(bytes.to_vec(), (2..33).chain(100..131).collect::<Vec<u8>>());
    assert_eq!(later.wait().unwrap(), [31, 32, 100, 101]);
    let (list, y) = softmax(&device, 64).unwrap();
    device.submit(&list).unwrap();
    let mut bytes = [0; 256];
    device.read(&y, 0, &mut bytes).unwrap();
    assert!(bytes.as_chunks().0.iter().all(|y| f32::from_ne_bytes(*y) == 1.0 / 64.0), "{bytes:?}");
}
