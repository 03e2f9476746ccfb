//! Pipelines: shared, kept on disk, and compiled again for larger threadgroups.

use std::{
    fs,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use elinvar_core::{Access, DType, Device, DeviceKind, Dispatch, Extent, Grid, ListBuilder, METAL_VERSION};
use elinvar_kernels::{Operator, TensorInfo, softmax::Softmax};
use elinvar_metal::{BatchLimits, MetalBackend};
use elinvar_msl::{MetalHeaders, preprocess};

use crate::{
    dispatch, open,
    recorder::{Event, Recorder},
    source, source_with, user_source, whole,
};

#[test]
fn a_kernel_that_needs_many_registers_is_compiled_again_for_large_threadgroups() {
    let (device, state) = open(BatchLimits::default());
    state.max_threads.store(512, Relaxed);
    let pipeline = device.prepare(&source("many_registers", &[Access::Write])).unwrap();
    assert_eq!(pipeline.info().unwrap().max_threads, 512);
    let (a, made) = (device.allocate(4).unwrap(), state.live());
    for (threads, wider) in [(512, 0), (1024, 1), (1024, 1), (768, 2)] {
        let mut list = ListBuilder::new();
        list.dispatch(dispatch(&pipeline, &[whole(&a)], threads), device.properties()).unwrap();
        device.submit(&list.finish()).unwrap().wait().unwrap();
        assert_eq!(state.live() - made, wider, "{threads} threads");
    }
    drop((pipeline, a));
    device.pool().clear();
    assert_eq!(state.live(), 0);
}

#[test]
fn a_threadgroup_beyond_what_the_pipeline_can_run_is_rejected() {
    let (device, state) = open(BatchLimits::default());
    state.max_threads.store(512, Relaxed);
    state.wide_threads.store(768, Relaxed);
    let pipeline = device.prepare(&source("many_registers", &[Access::Write])).unwrap();
    let a = device.allocate(4).unwrap();
    for (threads, fits) in [(512, true), (1024, false)] {
        let mut list = ListBuilder::new();
        list.fill(whole(&a), 0).unwrap();
        list.dispatch(dispatch(&pipeline, &[whole(&a)], threads), device.properties()).unwrap();
        match device.submit(&list.finish()) {
            Ok(_) => assert!(fits && state.take().len() == 1),
            Err(error) => assert!(!fits && error.to_string().contains("many_registers: 1024 threads") && state.take().is_empty(), "{error}"),
        }
    }
}

#[test]
fn threadgroup_memory_is_counted_with_what_the_kernel_declares_and_as_metal_takes_it() {
    let (device, state) = open(BatchLimits::default());
    let (limit, a) = (device.properties().threadgroup_memory, device.allocate(4).unwrap());
    for (declared, given, fits) in [
        (0, vec![limit], true),
        (64, vec![limit - 64], true),
        (80, vec![limit - 64], false),
        (0, vec![8, limit - 16], true),
        (0, vec![8, limit - 8], false),
    ] {
        state.declared_memory.store(declared, Relaxed);
        let pipeline = device.prepare(&source("shares", &[Access::Write])).unwrap();
        let mut list = ListBuilder::new();
        let dispatch = Dispatch { threadgroup_memory: given.clone(), ..dispatch(&pipeline, &[whole(&a)], 32) };
        list.dispatch(dispatch, device.properties()).unwrap();
        match device.submit(&list.finish()) {
            Ok(_) => assert!(fits, "{declared} {given:?}"),
            Err(error) => assert!(!fits && error.to_string().contains("threadgroup memory"), "{declared} {given:?}: {error}"),
        }
    }
}

#[test]
fn a_grid_whose_positions_have_more_than_32_bits_is_rejected() {
    let (device, state) = open(BatchLimits::default());
    let pipeline = device.prepare(&source("long", &[Access::Write])).unwrap();
    let a = device.allocate(4).unwrap();
    for (grid, fits) in [([(1 << 24) - 1, 1, 1], true), ([1 << 24, 1, 1], false), ([1 << 23, 1 << 23, 2], true), ([1, u32::MAX, 2], false)] {
        let mut list = ListBuilder::new();
        let threadgroup = Extent([256, 2, 1]);
        list.dispatch(Dispatch { grid: Grid::Threadgroups(grid), threadgroup, ..dispatch(&pipeline, &[whole(&a)], 1) }, device.properties()).unwrap();
        match device.submit(&list.finish()) {
            Ok(_) => assert!(fits && state.take().len() == 1, "{grid:?}"),
            Err(error) => assert!(!fits && error.to_string().starts_with("long: ") && error.to_string().contains("32 bits"), "{grid:?}: {error}"),
        }
    }
    assert!(state.take().is_empty());
}

#[test]
fn metal_is_asked_for_threads_or_for_threadgroups_as_the_launch_says() {
    let (device, state) = open(BatchLimits::default());
    let pipeline = device.prepare(&source("add", &[Access::Write])).unwrap();
    let a = device.allocate(4).unwrap();
    for grid in [Grid::Threads([10_000, 3, 1]), Grid::Threads([u32::MAX; 3]), Grid::Threadgroups([40, 3, 1])] {
        let mut list = ListBuilder::new();
        list.dispatch(Dispatch { grid, ..dispatch(&pipeline, &[whole(&a)], 256) }, device.properties()).unwrap();
        device.submit(&list.finish()).unwrap();
        assert_eq!(*state.grid.lock().unwrap(), Some(grid));
    }
}

#[test]
fn pipelines_are_shared_while_one_is_held() {
    let (device, state) = open(BatchLimits::default());
    let [one, other] = ["one", "other"].map(|name| source(name, &[]));
    let first = device.prepare(&one).unwrap();
    let again = device.prepare(&one).unwrap();
    let another = device.prepare(&other).unwrap();
    assert_eq!(state.libraries.load(Relaxed), 2);
    drop((first, again));
    assert_eq!(state.live(), 1, "nothing holds the first");
    device.prepare(&one).unwrap();
    assert_eq!(state.libraries.load(Relaxed), 3);
    drop(another);
}

#[test]
fn machine_code_is_kept_on_disk_and_made_again_when_it_is_damaged() {
    let folder = std::env::temp_dir().join(format!("elinvar-archives-{}", std::process::id()));
    let start = |name: &str| {
        let recorder = Recorder::default();
        let state = recorder.0.clone();
        let device = Device::new(MetalBackend::new(recorder, DeviceKind::Metal).with_archives(Some(&folder)));
        device.prepare(&source(name, &[])).unwrap();
        (state.archived.load(Relaxed), state.found.load(Relaxed))
    };
    let files = || fs::read_dir(folder.join("metal")).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
    assert_eq!(start("one"), (1, 1), "cold");
    assert_eq!(start("one"), (0, 1), "warm");
    assert_eq!(start("other"), (1, 1), "another kernel");
    assert_eq!(files().len(), 2);
    for file in files() {
        fs::write(file, "damaged").unwrap();
    }
    assert_eq!(start("one"), (1, 1), "damaged");
    assert_eq!(start("one"), (0, 1), "and mended");
    for file in files() {
        fs::write(file, "archive\nof another system\n").unwrap();
    }
    assert_eq!(start("one"), (1, 1), "one that the system reads and cannot use");
    for file in files() {
        fs::write(file, "archive\nanother\n").unwrap();
    }
    assert_eq!(start("one"), (0, 0), "an archive that lacks the kernel does no harm");
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn strict_kernels_are_compiled_without_contraction() {
    let (device, state) = open(BatchLimits::default());
    for (fast_math, pragmas) in [(false, 1), (true, 0)] {
        device.prepare(&source_with("kernel", &[], fast_math)).unwrap();
        assert_eq!(state.text.lock().unwrap().matches("#pragma METAL fp contract(off)\n").count(), pragmas, "fast math: {fast_math}");
    }
}

#[test]
fn every_text_brings_metals_headers_and_asks_for_its_version() {
    let (device, state) = open(BatchLimits::default());
    let given = |version: u32| {
        let text = state.text.lock().unwrap().clone();
        assert!(text.contains("\n#include <metal_stdlib>\n"), "{text}");
        assert_eq!(state.version.load(Relaxed), version as usize);
    };
    let (softmax, x) = (Softmax { axis: -1, log: false }, [Some(TensorInfo::new(DType::F32, &[4, 64]).unwrap())]);
    for launch in softmax.plan(&x, &softmax.infer(&x).unwrap(), device.properties()).unwrap().launches {
        device.prepare(&launch.kernel).unwrap();
        given(METAL_VERSION);
    }
    let [a, b] = [8, 8].map(|bytes| device.allocate(bytes).unwrap());
    let mut list = ListBuilder::new();
    list.copy(a.bind(1, 3).unwrap(), b.bind(0, 3).unwrap()).unwrap();
    device.submit(&list.finish()).unwrap().wait().unwrap();
    given(METAL_VERSION);
    let text = preprocess(
        "user.metal",
        "// A user's.\n#include <metal_stdlib>\n#define T float\nkernel void k(device T* x [[buffer(0)]]) {}\n",
        &[],
        &MetalHeaders,
    );
    device.prepare(&user_source("k", &text.unwrap(), 320)).unwrap();
    given(320);
}

#[test]
fn an_absent_buffer_is_bound_to_an_empty_one() {
    let (device, state) = open(BatchLimits::default());
    let mut kernel = (*source("optional", &[Access::Write, Access::Read])).clone();
    kernel.parameters[1].optional = true;
    let pipeline = device.prepare(&Arc::new(kernel)).unwrap();
    let a = device.allocate(4).unwrap();
    let mut list = ListBuilder::new();
    let launch = Dispatch { bindings: vec![Some(whole(&a)), None], ..dispatch(&pipeline, &[], 32) };
    list.dispatch(launch, device.properties()).unwrap();
    device.submit(&list.finish()).unwrap().wait().unwrap();
    assert_eq!(state.take(), [vec![Event::Launch(vec![0, 0])]]);
}
