//! The backend interface over the null device and over one that fails on purpose: validation, pool, errors.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a helper that fails fails its test")]

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use elinvar_core::{
    Backend, Command, CommandList, Completion, DType, Device, DeviceKind, DeviceMemory, DeviceProperties, Dispatch, Error, Extent, Grid, HostMemory,
    KernelKey, KernelSource, ListBuilder, MemoryInfo, NullBackend, Parameter, RawBuffer, Result, Storage, forward,
};

fn kernel(parameters: &[Parameter]) -> Arc<KernelSource> {
    let key = KernelKey::new("probe", &[DType::F32]);
    Arc::new(KernelSource { key, parameters: parameters.to_vec(), params_bytes: 4, host: None, metal: None, native: None })
}

fn probe(device: &Device, parameters: &[Parameter], bindings: Vec<Option<elinvar_core::Binding>>) -> Dispatch {
    let pipeline = device.pipeline(&kernel(parameters)).unwrap();
    let one = Extent::linear(1);
    Dispatch {
        pipeline,
        bindings,
        params: [0; 4].into(),
        grid: Grid::Threadgroups(one.0),
        threadgroup: one,
        threadgroup_memory: Vec::new(),
        work: Default::default(),
    }
}

fn rejection(device: &Device, dispatch: Dispatch) -> String {
    let error = ListBuilder::new().dispatch(dispatch, device.properties()).unwrap_err();
    assert!(error.is_invalid_launch(), "{error:?}");
    error.to_string()
}

const READ_WRITE: &[Parameter] = &[Parameter::read("x", DType::F32), Parameter::write("y", DType::F32)];

#[test]
fn a_launch_that_contradicts_its_signature_is_rejected_with_the_reason() {
    let device = Device::new(NullBackend::new());
    let buffer = device.allocate(256).unwrap();
    let (low, high) = (buffer.bind(0, 128).unwrap(), buffer.bind(128, 128).unwrap());
    let good = probe(&device, READ_WRITE, vec![Some(low.clone()), Some(high.clone())]);
    let mut list = ListBuilder::new();
    list.dispatch(good.clone(), device.properties()).unwrap();
    assert_eq!(list.len(), 1);

    let few = Dispatch { bindings: vec![Some(low.clone())], ..good.clone() };
    assert!(rejection(&device, few).contains("1 buffers bound, the kernel takes 2"));
    let unbound = Dispatch { bindings: vec![None, Some(high.clone())], ..good.clone() };
    assert!(rejection(&device, unbound).contains("'x' is not bound"));
    let params = Dispatch { params: [0; 8].into(), ..good.clone() };
    assert!(rejection(&device, params).contains("parameter block of 8 bytes"));
    let aliased = Dispatch { bindings: vec![Some(buffer.bind(64, 128).unwrap()), Some(high.clone())], ..good.clone() };
    assert!(rejection(&device, aliased).contains("'y' is written but overlaps 'x'"));
    let unaligned = Dispatch { bindings: vec![Some(buffer.bind(2, 16).unwrap()), Some(high)], ..good.clone() };
    assert!(rejection(&device, unaligned).contains("multiples of 4"));
    let wide = Dispatch { threadgroup: Extent([64, 64, 1]), ..good.clone() };
    assert!(rejection(&device, wide).contains("4096 threads in a threadgroup"));
    let hungry = Dispatch { threadgroup_memory: vec![1 << 20], ..good };
    assert!(rejection(&device, hungry).contains("1048576 bytes of threadgroup memory"));
    assert!(buffer.bind(200, 100).unwrap_err().is_invalid_launch());
    assert!(buffer.bind(usize::MAX, 2).is_err());
}

#[test]
fn a_list_over_stand_ins_is_moved_over_memory_that_fits() {
    let device = Device::new(NullBackend::new());
    let places = [device.stand_in(64, true), device.stand_in(64, false)];
    let bound = places.iter().map(|place| Some(place.bind(0, 64).unwrap())).collect();
    let mut list = ListBuilder::new();
    list.dispatch(probe(&device, READ_WRITE, bound), device.properties()).unwrap();
    let list = list.finish();
    let buffer = device.allocate(256).unwrap();
    let part = |offset, bytes| buffer.bind(offset, bytes).unwrap();
    let moved = list.over(&places, &[part(128, 64), part(0, 64)]).unwrap();
    let [Command::Dispatch(dispatch)] = moved.commands() else { panic!("one launch is expected") };
    let offsets: Vec<_> = dispatch.bindings.iter().flatten().map(|binding| (binding.buffer().same(&buffer), binding.offset())).collect();
    assert_eq!(offsets, [(true, 128), (true, 0)]);
    assert!(list.has_stand_ins() && !moved.has_stand_ins() && list.id() != moved.id());
    let rejected = |given: &[elinvar_core::Binding]| {
        let error = list.over(&places, given).unwrap_err().to_string();
        assert_eq!(device.submit_over(&list, &places, given).map(drop).unwrap_err().to_string(), error);
        error
    };
    assert!(rejected(&[part(32, 64), part(0, 64)]).contains("'y' is written but overlaps 'x'"));
    assert!(rejected(&[part(0, 64), part(64, 32)]).contains("32 bytes are given where a list of this device takes 64"));
    assert!(rejected(&[part(0, 64)]).contains("1 buffers are given for 2 places"));
    let other = Device::new(NullBackend::new()).allocate(64).unwrap().bind(0, 64).unwrap();
    assert!(rejected(&[other, part(0, 64)]).contains("of this device"));
    // SAFETY: the null device runs nothing.
    assert!(unsafe { buffer.place(64) }.unwrap_err().is_invalid_argument());
}

#[test]
fn an_optional_buffer_may_be_absent_and_an_empty_grid_is_dropped() {
    let device = Device::new(NullBackend::new());
    let y = device.allocate(4).unwrap().bind(0, 4).unwrap();
    let parameters = [Parameter::read("x", DType::F32).or_absent(), Parameter::write("y", DType::F32)];
    let dispatch = probe(&device, &parameters, vec![None, Some(y)]);
    let mut list = ListBuilder::new();
    for grid in [Grid::Threadgroups([0, 1, 1]), Grid::Threads([5, 0, 1])] {
        list.dispatch(Dispatch { grid, ..dispatch.clone() }, device.properties()).unwrap();
    }
    assert!(list.is_empty());
    list.dispatch(dispatch, device.properties()).unwrap();
    assert!(matches!(list.finish().commands(), [Command::Dispatch(_)]));
}

#[test]
fn copies_and_fills_are_checked() {
    let device = Device::new(NullBackend::new());
    let buffer = device.allocate(64).unwrap();
    let mut list = ListBuilder::new();
    list.copy(buffer.bind(0, 32).unwrap(), buffer.bind(32, 32).unwrap()).unwrap();
    assert!(list.copy(buffer.bind(0, 32).unwrap(), buffer.bind(16, 32).unwrap()).is_err());
    assert!(list.copy(buffer.bind(0, 16).unwrap(), buffer.bind(32, 32).unwrap()).is_err());
    assert_eq!(list.len(), 1);
}

#[test]
fn a_list_is_of_one_device() {
    let [device, other] = [(); 2].map(|()| Device::new(NullBackend::new()));
    let [x, y] = [&device, &other].map(|device| device.allocate(64).unwrap().bind(0, 64).unwrap());
    assert!(rejection(&device, probe(&device, READ_WRITE, vec![Some(x.clone()), Some(y.clone())])).contains("different devices"));
    assert!(rejection(&other, probe(&device, READ_WRITE, vec![Some(y.clone()), Some(y.clone())])).contains("different devices"));
    assert!(ListBuilder::new().copy(x.clone(), y.clone()).unwrap_err().to_string().contains("different devices"));
    let list = |on: elinvar_core::Binding| {
        let mut list = ListBuilder::new();
        list.fill(on, 0).unwrap();
        list.finish()
    };
    let (here, there) = (list(x.clone()), list(y));
    assert!(device.submit(&there).map(drop).unwrap_err().to_string().contains("another device"));
    device.submit(&here).unwrap();
    let mut joined = ListBuilder::new();
    joined.append(&here).unwrap();
    assert!(joined.append(&there).unwrap_err().to_string().contains("different devices"));
}

#[test]
fn memory_returns_to_the_pool_only_when_no_list_holds_it() {
    let device = Device::new(NullBackend::new());
    let buffer = device.allocate(1000).unwrap();
    let mut list = ListBuilder::new();
    list.fill(buffer.bind(0, 1000).unwrap(), 0).unwrap();
    let list = list.finish();
    drop(buffer);
    assert_eq!((device.pool_statistics().live_bytes, device.pool_statistics().cached_bytes), (1024, 0));
    drop(list);
    let statistics = device.pool_statistics();
    assert_eq!((statistics.live_bytes, statistics.cached_bytes, statistics.misses), (0, 1024, 1));
    let again = device.allocate(1020).unwrap();
    assert_eq!(device.pool_statistics().hits, 1);
    drop(again);
    device.pool().set_cap(0);
    assert_eq!(device.pool_statistics().cached_bytes, 0);
    drop(device.allocate(10).unwrap());
    assert_eq!(device.pool_statistics().cached_bytes, 0);
    assert_eq!(device.pool_statistics().peak_bytes, 1024);
}

/// A device with little memory that counts what it gives.
struct SmallBackend {
    inner: NullBackend,
    used: Arc<AtomicUsize>,
    log: Arc<Mutex<Vec<u64>>>,
}

struct Counted(usize, Arc<AtomicUsize>);

impl DeviceMemory for Counted {
    fn bytes(&self) -> usize {
        self.0
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.fetch_sub(self.0, Ordering::SeqCst);
    }
}

const SMALL: usize = 4096;

impl Backend for SmallBackend {
    forward!(inner: properties compile);

    fn memory(&self) -> MemoryInfo {
        MemoryInfo { total: SMALL, available: SMALL - self.used.load(Ordering::SeqCst) }
    }

    fn allocate(&self, bytes: usize, _storage: Storage) -> Result<RawBuffer> {
        if self.used.load(Ordering::SeqCst) + bytes > SMALL {
            return Err(Error::out_of_memory("full"));
        }
        self.used.fetch_add(bytes, Ordering::SeqCst);
        Ok(RawBuffer::new(Counted(bytes, self.used.clone())))
    }

    fn write(&self, _: &RawBuffer, _: usize, _: &[u8]) -> Result<()> {
        Ok(())
    }

    fn read(&self, _: &RawBuffer, _: usize, _: &mut [u8]) -> Result<()> {
        Ok(())
    }

    fn submit(&self, commands: &Arc<CommandList>) -> Result<Completion> {
        self.log.lock().unwrap().push(commands.id());
        Ok(Completion::ready(Ok(())))
    }
}

#[test]
fn out_of_memory_flushes_the_pool_once_and_leaves_the_device_usable() {
    let (used, log) = (Arc::new(AtomicUsize::new(0)), Arc::default());
    let device = Device::new(SmallBackend { inner: NullBackend::new(), used: used.clone(), log });
    drop(device.allocate(3000).unwrap());
    assert_eq!(used.load(Ordering::SeqCst), 3072);
    let whole = device.allocate(4096).unwrap();
    assert_eq!(used.load(Ordering::SeqCst), 4096);
    assert!(device.allocate(1).unwrap_err().is_out_of_memory());
    drop(whole);
    assert!(device.allocate_dedicated(100).is_ok());
    assert_eq!(device.memory().available, SMALL);
}

#[test]
fn a_buffer_beyond_what_the_device_allows_is_rejected() {
    let properties = DeviceProperties { max_buffer_bytes: 1000, ..NullBackend::new().properties().clone() };
    let (inner, used, log) = (NullBackend::with_properties(properties), Arc::default(), Arc::default());
    let device = Device::new(SmallBackend { inner, used, log });
    let adopt = |bytes| device.adopt(HostMemory::new(Arc::new(vec![0u8; bytes])));
    assert!(device.allocate(1000).is_ok() && device.allocate_dedicated(1000).is_ok() && adopt(1000).is_ok());
    for rejected in [device.allocate(1001), device.allocate_dedicated(1001), adopt(1001)] {
        let error = rejected.unwrap_err();
        assert!(error.is_out_of_memory() && error.to_string().contains("allows at most 1000"), "{error}");
    }
}

#[test]
fn memory_has_the_size_asked_where_there_is_none_for_its_class() {
    let used = Arc::new(AtomicUsize::new(0));
    let device = Device::new(SmallBackend { inner: NullBackend::new(), used: used.clone(), log: Arc::default() });
    let kept = device.allocate_dedicated(1000).unwrap();
    // The class is 3328 bytes.
    let most = device.allocate(SMALL - 1000).unwrap();
    assert_eq!((used.load(Ordering::SeqCst), device.pool_statistics().live_bytes), (SMALL, SMALL - 1000));
    drop((most, kept));
    assert_eq!((device.pool_statistics().live_bytes, device.pool_statistics().cached_bytes), (0, SMALL - 1000));
}

#[test]
fn host_memory_is_what_its_owner_lent_first() {
    struct Fickle(AtomicUsize);
    impl AsRef<[u8]> for Fickle {
        fn as_ref(&self) -> &[u8] {
            if self.0.fetch_add(1, Ordering::SeqCst) == 0 { &[1, 2, 3, 4] } else { &[] }
        }
    }
    let memory = HostMemory::new(Arc::new(Fickle(AtomicUsize::new(0))));
    assert_eq!(memory.bytes(), [1, 2, 3, 4]);
    assert_eq!(memory.slice(1..3).unwrap().slice(1..2).unwrap().bytes(), [3]);
}

#[test]
fn a_list_is_submitted_as_often_as_wanted_under_one_identity() {
    let log: Arc<Mutex<Vec<u64>>> = Arc::default();
    let device = Device::new(SmallBackend { inner: NullBackend::new(), used: Arc::default(), log: log.clone() });
    let (a, b) = (ListBuilder::new().finish(), ListBuilder::new().finish());
    for list in [&a, &b, &a] {
        device.submit(list).unwrap().wait().unwrap();
    }
    assert_eq!(*log.lock().unwrap(), [a.id(), b.id(), a.id()]);
    assert_ne!(a.id(), b.id());
}

#[test]
fn adopted_memory_is_read_only_where_it_is_not_copied() {
    struct Adopting(NullBackend);
    struct Host(HostMemory);
    impl DeviceMemory for Host {
        fn bytes(&self) -> usize {
            self.0.bytes().len()
        }
        fn is_read_only(&self) -> bool {
            true
        }
    }
    impl Backend for Adopting {
        forward!(0: properties memory allocate write read compile submit);

        fn adopt(&self, memory: HostMemory) -> Result<RawBuffer> {
            Ok(RawBuffer::new(Host(memory)))
        }
    }
    let device = Device::new(Adopting(NullBackend::new()));
    assert_eq!(device.properties().kind, DeviceKind::Null);
    let memory = HostMemory::new(Arc::new(vec![7u8; 64]));
    assert_eq!(memory.slice(8..16).unwrap().bytes(), [7; 8]);
    assert!(memory.slice(60..70).is_err());
    let buffer = device.adopt(memory).unwrap();
    assert!(device.write(&buffer, 0, &[1]).is_err());
    assert!(ListBuilder::new().fill(buffer.bind(0, 64).unwrap(), 0).is_err());
    let x = device.allocate(64).unwrap().bind(0, 64).unwrap();
    assert!(rejection(&device, probe(&device, READ_WRITE, vec![Some(x), Some(buffer.bind(0, 64).unwrap())])).contains("read-only"));
}
