//! The device's own promises, on a GPU: order, graphs, rejections, errors it survives.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a helper that fails fails its test")]

mod common;
#[path = "../../sim/tests/simulator/common/nonuniform.rs"]
mod model;
mod nonuniform;

use std::sync::Arc;

use elinvar_core::{CommandList, DType, Device, Dispatch, Extent, Grid, KernelKey, KernelSource, ListBuilder, MetalFile};
use elinvar_kernels::{
    Operator, TensorInfo,
    conformance::{self, Placement},
    encode,
    gather::Gather,
};

const STEP: &[MetalFile] = &[MetalFile {
    name: "step.metal",
    text: "#include <metal_stdlib>\nusing namespace metal;\ntemplate <typename T>\n[[kernel]] void step(device T* x [[buffer(0)]], uint i \
           [[thread_position_in_grid]]) {\n    x[i] = x[i] * 3 + i;\n}\n",
}];

const ADD: &[MetalFile] = &[MetalFile {
    name: "add.metal",
    text: "#include <metal_stdlib>\nusing namespace metal;\ntemplate <typename T, uint N>\n[[kernel]] void add(device T* x [[buffer(0)]], uint i \
           [[thread_position_in_grid]]) {\n    x[i] += N;\n}\n",
}];

const BROKEN: &[MetalFile] = &[MetalFile {
    name: "broken.metal",
    text: "#include <metal_stdlib>\nusing namespace metal;\ntemplate <typename T>\n[[kernel]] void broken(device T* x [[buffer(0)]], uint i \
           [[thread_position_in_grid]]) {\n    x[i] = nowhere;\n}\n",
}];

fn words(device: &Device, values: &[u32]) -> elinvar_core::Buffer {
    let buffer = device.allocate(4 * values.len()).unwrap();
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
    device.write(&buffer, 0, &bytes).unwrap();
    buffer
}

fn read(device: &Device, buffer: &elinvar_core::Buffer) -> Vec<u32> {
    let mut bytes = vec![0; buffer.bytes()];
    device.read(buffer, 0, &mut bytes).unwrap();
    bytes.as_chunks::<4>().0.iter().map(|word| u32::from_ne_bytes(*word)).collect()
}

#[test]
fn a_list_gives_the_same_as_a_graph() {
    let Some(device) = common::device() else { return };
    let kernel = common::kernel("step", STEP);
    let (x, copy) = (words(&device, &[0; 128]), device.allocate(512).unwrap());
    let mut list = ListBuilder::new();
    (0..5).for_each(|_| list.dispatch(common::over(&device, &kernel, &x), device.properties()).unwrap());
    list.copy(x.bind(0, 512).unwrap(), copy.bind(0, 512).unwrap()).unwrap();
    list.fill(x.bind(0, 4).unwrap(), 7).unwrap();
    let list = list.finish();
    let (mut expected, mut copied) = ([0u32; 128], [0u32; 128]);
    for round in 0u32..6 {
        device.submit(&list).unwrap();
        for _ in 0..5 {
            expected.iter_mut().zip(0..).for_each(|(x, i)| *x = x.wrapping_mul(3).wrapping_add(i));
        }
        copied = expected;
        expected[0] = 0x0707_0707;
        assert_eq!(read(&device, &x), expected, "round {round}");
        device.write(&x, 4, &round.to_ne_bytes()).unwrap();
        expected[1] = round;
    }
    assert_eq!(read(&device, &copy), copied);
}

/// Rows of `x [4]` chosen by `indices`, as a list long enough for a graph.
fn choosing(device: &Device, x: &elinvar_core::Buffer, indices: &elinvar_core::Buffer, y: &elinvar_core::Buffer) -> Arc<CommandList> {
    let (operator, i32) = (Gather { axis: 0 }, elinvar_core::DType::I32);
    let infos = [Some(TensorInfo::new(i32, &[4]).unwrap()), Some(TensorInfo::new(i32, &[2]).unwrap())];
    let plan = operator.plan(&infos, &operator.infer(&infos).unwrap(), device.properties()).unwrap();
    let mut list = ListBuilder::new();
    let inputs = [Some(x.bind(0, 16).unwrap()), Some(indices.bind(0, 8).unwrap())];
    for _ in 0..4 {
        encode(&plan, &inputs, &[y.bind(0, 8).unwrap()], device, &mut list, |bytes| device.allocate(bytes)).unwrap();
    }
    list.finish()
}

#[test]
fn a_rejection_belongs_to_its_own_submission() {
    let Some(device) = common::device() else { return };
    let (x, indices, y) = (words(&device, &[5, 6, 7, 8]), words(&device, &[0, 1]), device.allocate(8).unwrap());
    let list = choosing(&device, &x, &indices, &y);
    for round in 0u32..6 {
        let last = if round % 2 == 1 { 4 } else { round / 2 };
        device.write(&indices, 4, &last.to_ne_bytes()).unwrap();
        let (first, second) = (device.submit(&list).unwrap(), device.submit(&list).unwrap());
        for done in [&first, &second, &first] {
            let outcome = done.wait().map_err(|error| error.to_string());
            assert_eq!(outcome.is_err(), last == 4, "round {round}: {outcome:?}");
            assert!(outcome.is_ok() || outcome.unwrap_err().contains("(number 1)"));
        }
    }
    // The next read reports one that nothing waits for, once.
    device.write(&indices, 4, &9u32.to_ne_bytes()).unwrap();
    device.submit(&list).unwrap();
    let mut bytes = [0; 8];
    assert!(device.read(&y, 0, &mut bytes).unwrap_err().to_string().contains("outside its axis"));
    device.read(&y, 0, &mut bytes).unwrap();
}

#[test]
fn completions_call_back_in_order() {
    let Some(device) = common::device() else { return };
    let (x, indices, y) = (words(&device, &[5, 6, 7, 8]), words(&device, &[0, 1]), device.allocate(8).unwrap());
    let list = choosing(&device, &x, &indices, &y);
    let (sender, results) = std::sync::mpsc::channel();
    for last in [1u32, 4, 2] {
        device.write(&indices, 4, &last.to_ne_bytes()).unwrap();
        let sender = sender.clone();
        device.submit(&list).unwrap().on_complete(move |result| sender.send((last, result.is_ok())).unwrap());
    }
    let found: Vec<_> = (0..3).map(|_| results.recv_timeout(std::time::Duration::from_secs(60)).unwrap()).collect();
    assert_eq!(found, [(1, true), (4, false), (2, true)]);
}

#[test]
fn every_input_that_is_rejected_elsewhere_is_rejected() {
    let Some(device) = common::device() else { return };
    for case in conformance::rejected() {
        for placement in Placement::ALL {
            conformance::reject(&case, &device, *placement).unwrap();
        }
    }
}

#[test]
fn bytes_of_any_number_go_there_and_back() {
    let Some(device) = common::device() else { return };
    for bytes in [0, 1, 3, 255, 1024, 1025, 4096, (4 << 20) - 1, (4 << 20) + 5, (37 << 20) + 3] {
        let buffer = device.allocate(bytes + 1).unwrap();
        let sent: Vec<u8> = (0..bytes).map(|i| (i * 7 + i / 256) as u8).collect();
        device.write(&buffer, 1, &sent).unwrap();
        let later = device.read_later(&buffer, 1, bytes).unwrap();
        let mut back = vec![0; bytes];
        device.read(&buffer, 1, &mut back).unwrap();
        assert!(back == sent && later.wait().unwrap() == sent, "{bytes} bytes");
    }
    let small = words(&device, &[0; 1]);
    (0..100_000u32).for_each(|i| device.write(&small, 0, &i.to_ne_bytes()).unwrap());
    assert_eq!(read(&device, &small), [99_999]);
}

#[test]
fn too_much_memory_is_rejected_and_nothing_is_lost() {
    let Some(device) = common::device() else { return };
    let kept = words(&device, &[1, 2, 3]);
    let total = device.memory().total;
    let mut held = Vec::new();
    let error = loop {
        match device.allocate_dedicated(total / 8) {
            Ok(buffer) => held.push(buffer),
            Err(error) => break error,
        }
    };
    assert!(error.is_out_of_memory() && held.len() < 8, "{error}");
    drop(held);
    drop(device.allocate_dedicated(total / 8).unwrap());
    assert_eq!(read(&device, &kept), [1, 2, 3]);
    assert!(device.memory().available > total / 2);
}

#[test]
fn memory_comes_back_after_a_thousand_lives() {
    let Some(device) = common::device() else { return };
    let kernel = common::kernel("step", STEP);
    let mut free = Vec::new();
    for _ in 0..1000 {
        let weights = device.allocate_dedicated(8 << 20).unwrap();
        let x = words(&device, &[1; 256]);
        let mut list = ListBuilder::new();
        list.fill(weights.bind(0, 8 << 20).unwrap(), 1).unwrap();
        (0..4).for_each(|_| list.dispatch(common::over(&device, &kernel, &x), device.properties()).unwrap());
        let list = list.finish();
        (0..3).for_each(|_| drop(device.submit(&list).unwrap()));
        assert_eq!(read(&device, &x).len(), 256);
        drop((weights, list));
        free.push(device.memory().available);
    }
    assert!(free[999] + (16 << 20) >= free[100], "{} bytes free, then {}", free[100], free[999]);
}

#[test]
fn a_device_goes_with_kernels_that_were_launched_lately_and_others() {
    let Some(device) = common::device() else { return };
    let x = words(&device, &[0; 64]);
    let kernels: Vec<_> = (0..16u32).map(|n| common::keyed(KernelKey::new("add", &[DType::U32]).with("n", n), "add", ADD)).collect();
    let launch = |kernels: &[Arc<KernelSource>]| {
        let mut list = ListBuilder::new();
        kernels.iter().for_each(|kernel| list.dispatch(common::over(&device, kernel, &x), device.properties()).unwrap());
        device.submit(&list.finish()).unwrap()
    };
    launch(&kernels);
    assert_eq!(read(&device, &x), [120; 64]);
    // Unloading one of the others waits for the GPU, which must not wait for itself.
    launch(&kernels[..8]).wait().unwrap();
}

#[test]
fn a_kernel_that_does_not_compile_names_its_line() {
    let Some(device) = common::device() else { return };
    let buffer = words(&device, &[0; 64]);
    let mut list = ListBuilder::new();
    list.dispatch(common::over(&device, &common::kernel("broken", BROKEN), &buffer), device.properties()).unwrap();
    let error = device.submit(&list.finish()).and_then(|done| done.wait()).unwrap_err();
    assert!(error.is_compile_failed() && error.to_string().contains("broken.metal:5"), "{error}");
    assert_eq!(read(&device, &buffer), [0; 64]);
}

#[test]
fn threads_that_do_not_exist_take_no_part() {
    let Some(device) = common::device() else { return };
    for model::Case { kernel, threads, threadgroup, x, out } in model::cases() {
        let (x, written) = (words(&device, &x), words(&device, &vec![0xdead_beef; out.len()]));
        let whole = |buffer: &elinvar_core::Buffer| Some(buffer.bind(0, buffer.bytes()).unwrap());
        let launch = Dispatch {
            pipeline: device.pipeline(&nonuniform::kernel(kernel)).unwrap(),
            bindings: vec![whole(&x), whole(&written)],
            params: [].into(),
            grid: Grid::Threads(threads),
            threadgroup: Extent(threadgroup),
            threadgroup_memory: Vec::new(),
            work: Default::default(),
        };
        let mut list = ListBuilder::new();
        // As a list, and as a graph.
        (0..4).for_each(|_| list.dispatch(launch.clone(), device.properties()).unwrap());
        let list = list.finish();
        for _ in 0..2 {
            device.write(&written, 0, &vec![0xee; written.bytes()]).unwrap();
            device.submit(&list).unwrap();
            let (found, width) = (read(&device, &written), out.len() * 4 / x.bytes());
            let first = found.iter().zip(&out).position(|(found, expected)| found != expected);
            let mismatch = first.map(|at| (at / width, at % width, found[at], out[at]));
            assert_eq!(mismatch, None, "{kernel} over {threads:?} by {threadgroup:?}: thread, number, found, expected");
        }
    }
}

#[test]
fn a_grid_that_is_too_high_is_rejected() {
    let Some(device) = common::device() else { return };
    let buffer = words(&device, &[0; 64]);
    let mut list = ListBuilder::new();
    let mut launch = common::over(&device, &common::kernel("step", STEP), &buffer);
    launch.grid = Grid::Threadgroups([1, 65536, 1]);
    list.dispatch(launch, device.properties()).unwrap();
    assert!(device.submit(&list.finish()).is_err_and(|error| error.is_unsupported()));
}
