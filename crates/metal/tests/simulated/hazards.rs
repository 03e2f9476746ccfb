//! Barriers that are left out: the simulator reports each, whatever they were derived from.

use std::sync::Arc;

use elinvar_core::{
    Access, Buffer, CommandList, DType, Device, DeviceKind, Dispatch, Extent, Grid, KernelKey, KernelSource, ListBuilder, METAL_VERSION, Metal,
    MetalCode, Parameter, Pipeline, Result, UserMetal,
};
use elinvar_metal::{MetalBackend, Simulated, SimulatorOptions};

use crate::forgetful::{Barriers, Forgetful};

const BYTES: usize = 256;
const SEEDS: u64 = 4;

const TEXT: &str = "#include <metal_stdlib>
    using namespace metal;
    kernel void make(device uint* y [[buffer(0)]], uint i [[thread_position_in_grid]]) { y[i] = 3 * i; }
    kernel void take(device const uint* x [[buffer(0)]], device uint* y [[buffer(1)]], uint i [[thread_position_in_grid]]) { y[i] = x[i] + 1; }";

/// A device that leaves out one barrier of each command buffer, on demand.
fn open(seed: u64) -> (Device, Barriers) {
    let (options, barriers) = (SimulatorOptions::default(), Barriers::default());
    options.seed.set(seed);
    let forgetful = Forgetful { inner: Simulated::new(options).unwrap(), barriers: barriers.clone() };
    (Device::new(MetalBackend::new(forgetful, DeviceKind::MetalSim)), barriers)
}

fn prepare(device: &Device, name: &'static str, accesses: &[Access]) -> Pipeline {
    let parameter = |access: &Access| Parameter { name: "buffer".into(), access: *access, dtype: DType::U32, optional: false, prefetched: false };
    let text = UserMetal {
        name: "hazards.metal".into(),
        code: MetalCode::Text(TEXT.to_owned()),
        kernel: name.to_owned(),
        constants: vec![],
        fast_math: false,
        version: METAL_VERSION,
        buffers: (0..accesses.len() as u32).collect(),
        threadgroup: vec![],
        rejections: vec![],
        registers: None,
    };
    let (parameters, metal) = (accesses.iter().map(parameter).collect(), Some(Metal::User(Arc::new(text))));
    device.prepare(&Arc::new(KernelSource { key: KernelKey::new(name, &[]), parameters, params_bytes: 0, host: None, metal, native: None })).unwrap()
}

/// Records commands on buffers that hold numbers.
struct Recorder<'a> {
    device: &'a Device,
    list: ListBuilder,
    made: Access,
}

impl Recorder<'_> {
    fn launch(&mut self, name: &'static str, buffers: &[(&Buffer, Access)]) {
        let pipeline = prepare(self.device, name, &buffers.iter().map(|(_, access)| *access).collect::<Vec<_>>());
        let bindings = buffers.iter().map(|(buffer, _)| buffer.bind(0, BYTES).ok()).collect();
        let (grid, threadgroup) = (Grid::Threadgroups([2, 1, 1]), Extent::linear(32));
        let dispatch = Dispatch { pipeline, bindings, params: [].into(), grid, threadgroup, threadgroup_memory: vec![], work: Default::default() };
        self.list.dispatch(dispatch, self.device.properties()).unwrap();
    }

    fn make(&mut self, y: &Buffer) {
        self.launch("make", &[(y, self.made)]);
    }

    fn take(&mut self, x: &Buffer, y: &Buffer) {
        self.launch("take", &[(x, Access::Read), (y, Access::Write)]);
    }

    fn copy(&mut self, from: &Buffer, to: &Buffer) {
        self.list.copy(from.bind(0, BYTES).unwrap(), to.bind(0, BYTES).unwrap()).unwrap();
    }

    fn fill(&mut self, to: &Buffer) {
        self.list.fill(to.bind(0, BYTES).unwrap(), 7).unwrap();
    }
}

type Record = fn(&mut Recorder<'_>, &[Buffer; 3]);

fn recorded(device: &Device, made: Access, record: Record) -> Arc<CommandList> {
    let buffers = [(); 3].map(|()| device.allocate_dedicated(BYTES).unwrap());
    buffers.iter().for_each(|buffer| device.write(buffer, 0, &[0; BYTES]).unwrap());
    let mut recorder = Recorder { device, list: ListBuilder::new(), made };
    record(&mut recorder, &buffers);
    recorder.list.finish()
}

fn run(device: &Device, list: &Arc<CommandList>) -> Result<()> {
    device.submit(list)?.wait()
}

#[test]
fn a_barrier_of_each_derivation_is_missed_under_every_order() {
    let derivations: [(&str, Record); 9] = [
        ("read after write", |r, [a, b, _]| (r.make(a), r.take(a, b)).1),
        ("write after read", |r, [a, b, _]| (r.take(a, b), r.make(a)).1),
        ("write after write", |r, [a, b, c]| (r.take(a, c), r.take(b, c)).1),
        ("copy after write", |r, [a, b, _]| (r.make(a), r.copy(a, b)).1),
        ("copy over what is read", |r, [a, b, c]| (r.take(a, b), r.copy(c, a)).1),
        ("read of a copy", |r, [a, b, c]| (r.copy(a, b), r.take(b, c)).1),
        ("fill over what is read", |r, [a, b, _]| (r.take(a, b), r.fill(a)).1),
        ("write over a fill", |r, [a, _, _]| (r.fill(a), r.make(a)).1),
        ("fill over a copy", |r, [a, b, _]| (r.copy(a, b), r.fill(b)).1),
    ];
    for (seed, (name, record)) in (0..SEEDS).flat_map(|seed| derivations.map(|derivation| (seed, derivation))) {
        let (device, barriers) = open(seed);
        let list = recorded(&device, Access::Write, record);
        run(&device, &list).unwrap();
        assert_eq!(barriers.take(), 1, "{name}");
        barriers.forget(0);
        let error = run(&device, &list).expect_err(name).to_string();
        assert!(error.contains("data-race") && error.contains("nothing orders"), "{name}, seed {seed}: {error}");
    }
}

#[test]
fn each_barrier_of_a_longer_list_is_missed() {
    let record: Record = |r, [a, b, c]| {
        r.make(a);
        r.take(a, b);
        r.take(a, c);
        r.fill(a);
        r.take(b, a);
        r.copy(a, b);
        r.take(c, a);
    };
    let (device, barriers) = open(0);
    let list = recorded(&device, Access::Write, record);
    run(&device, &list).unwrap();
    let count = barriers.take();
    assert_eq!(count, 5, "the two that read the same share one");
    for number in 0..count {
        barriers.forget(number);
        let error = run(&device, &list).unwrap_err().to_string();
        assert!(error.contains("data-race"), "barrier {number}: {error}");
        assert_eq!(barriers.take(), count);
    }
    barriers.forget(count);
    run(&device, &list).unwrap();
}

#[test]
fn an_access_that_is_not_declared_is_reported_with_both_kernels() {
    for seed in 0..SEEDS {
        let (device, barriers) = open(seed);
        // A launch that is said to read what it writes needs no barrier after it, as far as the list shows.
        let list = recorded(&device, Access::Read, |r, [a, b, _]| (r.make(a), r.take(a, b)).1);
        let error = run(&device, &list).unwrap_err().to_string();
        assert_eq!(barriers.take(), 0);
        assert!(error.contains("data-race") && error.contains("kernel `make`") && error.contains("kernel `take`"), "{error}");
    }
}

#[test]
fn commands_on_other_bytes_of_a_buffer_do_not_race() {
    let (device, barriers) = open(3);
    let buffer = device.allocate_dedicated(4 * BYTES).unwrap();
    device.write(&buffer, 0, &[0; 4 * BYTES]).unwrap();
    let part = |at: usize| buffer.bind(at, BYTES).unwrap();
    let mut list = ListBuilder::new();
    let take = prepare(&device, "take", &[Access::Read, Access::Write]);
    for to in [BYTES, 2 * BYTES] {
        let (bindings, params) = (vec![Some(part(0)), Some(part(to))], vec![]);
        let (pipeline, grid, threadgroup) = (take.clone(), Grid::Threadgroups([2, 1, 1]), Extent::linear(32));
        list.dispatch(
            Dispatch { pipeline, bindings, params: params.into(), grid, threadgroup, threadgroup_memory: vec![], work: Default::default() },
            device.properties(),
        )
        .unwrap();
    }
    list.copy(part(0), part(3 * BYTES)).unwrap();
    run(&device, &list.finish()).unwrap();
    assert_eq!(barriers.take(), 0);
}
