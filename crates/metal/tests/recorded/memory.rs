//! Allocation, adoption, residency, private memory.

use std::sync::{Arc, Mutex, atomic::Ordering::Relaxed};

use elinvar_core::{Access, Device, DeviceKind, HostMemory, MemoryPressure};
use elinvar_metal::{BatchLimits, MetalBackend};

use crate::{
    chain, open,
    recorder::{
        Event::{Copy, Launch},
        Recorder,
    },
    source, whole,
};

#[test]
fn out_of_memory_is_reported_after_cached_memory_is_released() {
    let (device, state) = open(BatchLimits::default());
    for number in 0..4 {
        state.buffers.store(number, Relaxed);
        let held: Vec<_> = (0..number).map(|_| device.allocate_dedicated(64).unwrap()).collect();
        assert!(device.allocate_dedicated(64).unwrap_err().is_out_of_memory(), "allocation {number}");
        drop(held);
    }
    state.buffers.store(usize::MAX, Relaxed);
    state.available.store(1 << 20, Relaxed);
    let error = device.allocate((1 << 20) + 1).unwrap_err();
    assert!(error.is_out_of_memory() && error.to_string().contains("working set has 1 of"), "{error}");
    let owner: Arc<Vec<u8>> = Arc::new(vec![0; (1 << 20) + 1]);
    assert!(device.adopt(HostMemory::new(owner)).unwrap_err().is_out_of_memory());
    assert_eq!(state.live(), 0);
}

#[test]
fn adopted_memory_is_read_where_it_lies() {
    let (device, state) = open(BatchLimits::default());
    let owner: Arc<Vec<u8>> = Arc::new((0..=255).collect());
    let start = owner.as_ptr().addr() % 4096;
    let adopted = device.adopt(HostMemory::new(owner.clone()).slice(16..80).unwrap()).unwrap();
    let to = device.allocate(64).unwrap();
    device.submit(&chain(&device, &[(adopted.bind(8, 32).unwrap(), whole(&to))]).unwrap()).unwrap();
    assert_eq!(state.take(), [vec![Launch(vec![(start + 16) % 4096 + 8, 0])]]);
    assert!(device.write(&adopted, 0, &[0]).is_err() && chain(&device, &[(whole(&to), whole(&adopted))]).is_err());
    drop(adopted);
    assert_eq!((Arc::strong_count(&owner), state.written.load(Relaxed)), (1, 0));
    state.shares.store(false, Relaxed);
    let copied = device.adopt(HostMemory::new(owner.clone())).unwrap();
    assert_eq!((Arc::strong_count(&owner), state.written.load(Relaxed)), (1, 256), "pages that are not shared");
    assert!(device.write(&copied, 0, &[0]).is_err());

    let device = Device::new(MetalBackend::new(Recorder::default(), DeviceKind::Metal));
    let adopted = device.adopt(HostMemory::new(owner.clone())).unwrap();
    let mut seen = Vec::new();
    device.view(&adopted, 0, 4, &mut |bytes| seen = bytes.as_ptr_range().start.addr().to_ne_bytes().to_vec()).unwrap();
    assert_eq!(seen, owner.as_ptr().addr().to_ne_bytes(), "no copy");
    assert!(device.view(&adopted, 250, 7, &mut |_| panic!("outside")).is_err());
}

#[test]
fn adopted_memory_stays_resident_until_it_is_dropped() {
    let recorder = Recorder::default();
    recorder.0.has_residency.store(true, Relaxed);
    let (state, device) = (recorder.0.clone(), Device::new(MetalBackend::new(recorder, DeviceKind::Metal)));
    let owner: Arc<Vec<u8>> = Arc::new(vec![7; 4096]);
    let weights: Vec<_> = (0..10).map(|_| device.adopt(HostMemory::new(owner.clone())).unwrap()).collect();
    let (to, list) = (device.allocate(4096).unwrap(), |from, to| chain(&device, &[(from, to)]).unwrap());
    assert_eq!((state.resident.load(Relaxed), state.commits.load(Relaxed)), (10, 0), "one request for all, when they are first used");
    for _ in 0..3 {
        device.submit(&list(whole(&weights[0]), whole(&to))).unwrap().wait().unwrap();
    }
    assert_eq!([&state.commits, &state.requests].map(|count| count.load(Relaxed)), [1; 2]);
    let late = device.adopt(HostMemory::new(owner.clone())).unwrap();
    drop(weights);
    assert_eq!((state.evicted.load(Relaxed), Arc::strong_count(&owner)), (10, 2), "nothing is kept alive");
    assert_eq!([&state.commits, &state.requests].map(|count| count.load(Relaxed)), [11, 1], "and nothing is requested again");
    device.submit(&list(whole(&late), whole(&to))).unwrap().wait().unwrap();
    assert_eq!([&state.commits, &state.requests].map(|count| count.load(Relaxed)), [12, 2], "but what was added meanwhile");
    drop((to, late, device));
    assert_eq!(state.live(), 0, "nor the set itself");

    let (device, state) = open(BatchLimits::default());
    drop(device.adopt(HostMemory::new(owner)).unwrap());
    assert_eq!([&state.resident, &state.evicted, &state.commits].map(|count| count.load(Relaxed)), [0; 3], "systems without residency sets");
}

#[test]
fn memory_that_is_not_unified_is_private_and_reached_through_copies() {
    const MIB: usize = 1 << 20;
    let recorder = Recorder::default();
    recorder.0.unified.store(false, Relaxed);
    recorder.0.has_residency.store(true, Relaxed);
    let (state, device) = (recorder.0.clone(), Device::new(MetalBackend::new(recorder, DeviceKind::Metal)));
    let buffer = device.allocate_dedicated(130 * MIB).unwrap();
    let bytes = |private: usize, shared: usize| {
        assert_eq!((state.private_bytes.swap(0, Relaxed), state.shared_bytes.swap(0, Relaxed)), (private, shared));
    };
    bytes(130 * MIB, 0);
    device.write(&buffer, 0, &vec![0; 130 * MIB]).unwrap();
    assert_eq!(state.take(), vec![vec![Copy]; 3], "in pieces of 64 MiB");
    bytes(0, 64 * MIB);
    device.read(&buffer, 4, &mut [0; 16]).unwrap();
    assert_eq!(state.take(), [[Copy]]);
    bytes(0, 16);
    device.read(&buffer, 1, &mut [0; 16]).unwrap();
    assert_eq!(state.take(), [[Launch(vec![1, 0])]], "at an odd place");
    bytes(0, 16);
    let owner: Arc<Vec<u8>> = Arc::new(vec![7; 4096]);
    let adopted = device.adopt(HostMemory::new(owner.clone())).unwrap();
    bytes(4096, 4096);
    assert_eq!((Arc::strong_count(&owner), state.resident.load(Relaxed)), (1, 1), "weights are copied, and resident where they are");
    assert!(device.write(&adopted, 0, &[0]).is_err());
    drop((buffer, adopted, device));
    assert_eq!(state.live(), 0);
}

#[test]
fn the_pool_gives_back_before_the_working_set_is_exceeded() {
    let (device, state) = open(BatchLimits::default());
    for ask in 0..3 {
        state.available.store(usize::MAX, Relaxed);
        drop(device.allocate(1 << 20).unwrap());
        assert_eq!(device.pool_statistics().cached_bytes, 1 << 20);
        state.available.store(100, Relaxed);
        let error = match ask {
            0 => device.allocate(4096),
            1 => device.allocate_dedicated(4096),
            _ => device.adopt(HostMemory::new(Arc::new(vec![0; 4096]))),
        };
        let error = error.unwrap_err();
        assert!(error.is_out_of_memory() && error.to_string().contains("working set"), "{error}");
        assert_eq!((device.pool_statistics().cached_bytes, state.live()), (0, 0));
    }
}

#[test]
fn memory_pressure_empties_the_pool_and_at_its_worst_forgets_kernels() {
    let (device, state) = open(BatchLimits::default());
    let watch = || state.watch.lock().unwrap().upgrade();
    let relieve = |pressure| watch().unwrap()(pressure);
    let kernel = source("step", &[Access::Read, Access::Write]);
    let held = device.allocate(64).unwrap();
    let kept = || device.cached::<Mutex<usize>>();
    for (pressure, kernels) in [(MemoryPressure::Warning, 1), (MemoryPressure::Critical, 0)] {
        drop(device.pipeline(&kernel).unwrap());
        drop(device.allocate(1 << 20).unwrap());
        *kept().lock().unwrap() += 1;
        assert_eq!(state.live(), 3, "a kernel, what is in use, and what is not");
        relieve(pressure);
        assert_eq!((device.pool_statistics().cached_bytes, state.live()), (0, 1 + kernels), "{pressure:?}");
        assert_eq!(*kept().lock().unwrap(), kernels, "what is kept goes with the kernels");
    }
    let libraries = state.libraries.load(Relaxed);
    let pipeline = device.pipeline(&kernel).unwrap();
    relieve(MemoryPressure::Critical);
    drop(device.pipeline(&kernel).unwrap());
    assert_eq!(state.libraries.load(Relaxed), libraries + 1, "a kernel that is held is found again");
    drop((pipeline, held, device));
    assert!(state.live() == 0 && watch().is_none(), "nothing is watched any more");
}
