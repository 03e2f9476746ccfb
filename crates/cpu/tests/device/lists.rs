//! The CPU device itself: order, asynchrony, errors, memory.

use std::{
    num::NonZeroUsize,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use elinvar_core::{
    Buffer, DType, Device, Dispatch, Error, Extent, Grid, HostForm, HostKernel, HostMemory, KernelKey, KernelSource, ListBuilder, Parameter,
};
use elinvar_cpu::CpuBackend;

use crate::common::list;

fn device() -> Device {
    Device::new(CpuBackend::new(NonZeroUsize::new(2)).unwrap())
}

fn read(device: &Device, buffer: &Buffer) -> Vec<f32> {
    let mut bytes = vec![0; buffer.bytes()];
    device.read(buffer, 0, &mut bytes).unwrap();
    bytes.chunks_exact(4).map(|c| f32::from_ne_bytes(c.try_into().unwrap())).collect()
}

const ADD_ONE: HostKernel = |arguments| {
    arguments.output::<f32>(0)?.iter_mut().for_each(|x| *x += 1.0);
    Ok(())
};

/// Bytes of a list that the submitter does not run by itself.
const LARGE: usize = 32 << 10;

const SLOW: HostKernel = |_| {
    std::thread::sleep(std::time::Duration::from_millis(50));
    Ok(())
};

#[test]
fn a_list_replays_in_order_with_writes_and_reads() {
    let device = device();
    let buffer = device.allocate(8).unwrap();
    device.write(&buffer, 0, &[0; 8]).unwrap();
    let list = list(&device, "add_one", ADD_ONE, &buffer);
    for _ in 0..100 {
        device.submit(&list).unwrap();
    }
    assert_eq!(read(&device, &buffer), [100.0, 100.0]);
    device.write(&buffer, 4, &5f32.to_ne_bytes()).unwrap();
    let done = device.submit(&list).unwrap();
    done.wait().unwrap();
    assert!(done.is_complete());
    assert_eq!(read(&device, &buffer), [101.0, 6.0]);
}

#[test]
fn a_read_sees_no_list_half_done_that_another_thread_submits() {
    let device = device();
    let buffer = device.allocate(8 << 20).unwrap();
    device.write(&buffer, 0, &vec![0; buffer.bytes()]).unwrap();
    let list = list(&device, "add_one", ADD_ONE, &buffer);
    let enough = AtomicUsize::new(0);
    let torn = std::thread::scope(|scope| {
        scope.spawn(|| {
            while enough.load(Ordering::Relaxed) == 0 {
                device.submit(&list).unwrap().wait().unwrap();
            }
        });
        let torn = (0..30).map(|_| read(&device, &buffer)).filter(|values| values.iter().any(|value| *value != values[0])).count();
        enough.store(1, Ordering::Relaxed);
        torn
    });
    assert_eq!(torn, 0);
}

#[test]
fn submission_returns_before_the_work_is_done() {
    let device = device();
    let buffer = device.allocate(LARGE).unwrap();
    let slow = list(&device, "slow", SLOW, &buffer);
    let done = device.submit(&slow).unwrap();
    assert!(!done.is_complete());
    done.wait().unwrap();
    assert!(done.is_complete());
}

#[test]
fn a_failing_or_panicking_kernel_is_an_error_and_the_device_goes_on() {
    let device = device();
    let buffer = device.allocate(4).unwrap();
    device.write(&buffer, 0, &[0; 4]).unwrap();
    let failing = list(&device, "failing", |_| Err(Error::invalid_argument("index 7 is out of range")), &buffer);
    let error = device.submit(&failing).unwrap().wait().unwrap_err();
    assert!(error.is_invalid_argument());
    assert_eq!(error.to_string(), "failing: index 7 is out of range");
    device.read(&buffer, 0, &mut [0; 4]).unwrap();

    let panicking = list(&device, "panicking", |_| panic!("on purpose"), &buffer);
    drop(device.submit(&panicking).unwrap());
    device.write(&buffer, 0, &2f32.to_ne_bytes()).unwrap();
    let mut bytes = [0; 4];
    assert!(device.read(&buffer, 0, &mut bytes).unwrap_err().is_device_lost(), "the next read reports a failure that nothing waited for");
    assert_eq!(read(&device, &buffer), [2.0], "a write takes effect whatever failed before");
    let good = list(&device, "add_one", ADD_ONE, &buffer);
    device.submit(&good).unwrap().wait().unwrap();
    assert_eq!(read(&device, &buffer), [3.0]);
}

#[test]
fn a_buffer_returns_to_the_pool_when_the_last_command_that_uses_it_has_completed() {
    let device = device();
    let buffer = device.allocate(LARGE).unwrap();
    let slow = list(&device, "slow", SLOW, &buffer);
    let done = device.submit(&slow).unwrap();
    drop((buffer, slow));
    assert_eq!(device.pool_statistics().cached_bytes, 0);
    done.wait().unwrap();
    assert_eq!((device.pool_statistics().live_bytes, device.pool_statistics().cached_bytes), (0, LARGE));
}

#[test]
fn adopted_memory_is_read_in_place() {
    static TOUCHED: AtomicUsize = AtomicUsize::new(0);
    let device = device();
    let owner = Arc::new(vec![3u8; 4096]);
    let address = owner.as_ptr().addr();
    let buffer = device.adopt(HostMemory::new(owner)).unwrap();
    let key = KernelKey::new("where_is_it", &[DType::U8]);
    let host: HostKernel = |arguments| {
        TOUCHED.store(arguments.input::<u8>(0)?.as_ptr().addr(), Ordering::SeqCst);
        Ok(())
    };
    let source = Arc::new(KernelSource {
        key,
        parameters: vec![Parameter::read("x", DType::U8)],
        params_bytes: 0,
        host: Some(HostForm::Kernel(host)),
        metal: None,
        native: None,
    });
    let one = Extent::linear(1);
    let bindings = vec![Some(buffer.bind(64, 64).unwrap())];
    let pipeline = device.pipeline(&source).unwrap();
    let mut list = ListBuilder::new();
    let dispatch = Dispatch {
        pipeline,
        bindings,
        params: [].into(),
        grid: Grid::Threadgroups(one.0),
        threadgroup: one,
        threadgroup_memory: Vec::new(),
        work: Default::default(),
    };
    list.dispatch(dispatch, device.properties()).unwrap();
    device.submit(&list.finish()).unwrap().wait().unwrap();
    assert_eq!(TOUCHED.load(Ordering::SeqCst), address + 64);
}

#[test]
fn more_memory_than_there_is_is_rejected() {
    let error = device().allocate_dedicated(1 << 50).unwrap_err();
    assert!(error.is_out_of_memory(), "{error:?}");
}

#[test]
fn kernels_run_over_threads_that_threadgroups_divide() {
    let device = device();
    let host: HostKernel = |arguments| {
        arguments.output::<u32>(0)?[..2].copy_from_slice(&[arguments.grid().0[0], arguments.threadgroup().0[0]]);
        Ok(())
    };
    let key = KernelKey::new("extents", &[DType::U32]);
    let (parameters, host) = (vec![Parameter::update("x", DType::U32)], Some(HostForm::Kernel(host)));
    let pipeline = device.pipeline(&Arc::new(KernelSource { key, parameters, params_bytes: 0, host, metal: None, native: None })).unwrap();
    let buffer = device.allocate(8).unwrap();
    let launch = |threads| {
        let (pipeline, bindings, threadgroup) = (pipeline.clone(), vec![Some(buffer.bind(0, 8).unwrap())], Extent::linear(4));
        let grid = Grid::Threads([threads, 1, 1]);
        let dispatch =
            Dispatch { pipeline, bindings, params: [].into(), grid, threadgroup, threadgroup_memory: Vec::new(), work: Default::default() };
        let mut list = ListBuilder::new();
        list.dispatch(dispatch, device.properties()).unwrap();
        device.submit(&list.finish()).unwrap().wait()
    };
    launch(12).unwrap();
    let mut bytes = [0; 8];
    device.read(&buffer, 0, &mut bytes).unwrap();
    assert_eq!(bytes[..], [3u32.to_ne_bytes(), 4u32.to_ne_bytes()].concat());
    let error = launch(13).unwrap_err();
    assert!(error.is_unsupported() && error.to_string().contains("whole threadgroups"), "{error}");
}

#[test]
fn a_profile_has_what_ran_while_it_was_taken() {
    let device = device();
    let buffer = device.allocate(8).unwrap();
    let list = list(&device, "slow", SLOW, &buffer);
    device.submit(&list).unwrap();
    device.start_profile().unwrap();
    (0..2).for_each(|_| drop(device.submit(&list).unwrap()));
    let events = device.end_profile().unwrap();
    assert_eq!(events.iter().map(|event| (event.activity.to_string(), event.bytes, event.list)).collect::<Vec<_>>(), {
        let once = ("slow_f32".to_owned(), 16, Some(list.id()));
        [once.clone(), once]
    });
    assert!(events.iter().all(|event| event.duration_ns >= 50_000_000) && events[0].end_ns() <= events[1].start_ns);
    device.submit(&list).unwrap().wait().unwrap();
    assert!(device.end_profile().unwrap().is_empty());
}
