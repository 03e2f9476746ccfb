//! Barriers, command buffers, completion.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use elinvar_core::{Binding, Buffer, CommandList, DeviceKind, Error, HostMemory, ListBuilder};
use elinvar_metal::{BatchLimits, MetalBackend};

use crate::{
    chain, open,
    recorder::{
        Event::{Barrier, Copy, Fill, Launch},
        Recorder,
    },
    whole,
};

#[test]
fn barriers_come_from_what_commands_read_and_write() {
    let (device, state) = open(BatchLimits::default());
    let [a, b, c, d] = [(); 4].map(|()| device.allocate(64).unwrap());
    let shape = |ranges: &[(Binding, Binding)]| {
        device.submit(&chain(&device, ranges).unwrap()).unwrap().wait().unwrap();
        let events = state.take().remove(0);
        events.iter().map(|event| if *event == Barrier { '|' } else { 'x' }).collect::<String>()
    };
    let (w, half) = (whole, |buffer: &Buffer, at| buffer.bind(at, 32).unwrap());
    assert_eq!(shape(&[(w(&a), w(&b)), (w(&b), w(&c))]), "x|x", "read after write");
    assert_eq!(shape(&[(w(&a), w(&b)), (w(&c), w(&a))]), "x|x", "write after read");
    assert_eq!(shape(&[(w(&a), w(&b)), (w(&c), w(&b))]), "x|x", "write after write");
    assert_eq!(shape(&[(w(&a), w(&b)), (w(&a), w(&c)), (w(&a), w(&d))]), "xxx", "reads only");
    assert_eq!(shape(&[(w(&a), half(&b, 0)), (w(&a), half(&b, 32)), (half(&b, 0), w(&c))]), "xx|x", "separate ranges");
    assert_eq!(shape(&[(w(&a), w(&b)), (w(&b), w(&c)), (w(&a), w(&d)), (w(&d), half(&b, 0))]), "x|xx|x", "each barrier settles all before it");
    let mut list = ListBuilder::new();
    list.fill(w(&a), 0).unwrap();
    list.copy(w(&a), w(&b)).unwrap();
    list.fill(w(&c), 0).unwrap();
    device.submit(&list.finish()).unwrap();
    assert_eq!(state.take(), [vec![Fill, Barrier, Copy, Fill]]);
}

#[test]
fn copies_and_fills_at_odd_places_become_launches() {
    let (device, state) = open(BatchLimits::default());
    let (a, b) = (device.allocate(64).unwrap(), device.allocate(64).unwrap());
    let mut list = ListBuilder::new();
    list.copy(a.bind(2, 8).unwrap(), b.bind(0, 8).unwrap()).unwrap();
    list.copy(a.bind(4, 8).unwrap(), b.bind(8, 8).unwrap()).unwrap();
    list.fill(b.bind(16, 3).unwrap(), 1).unwrap();
    list.fill(b.bind(0, 0).unwrap(), 1).unwrap();
    device.submit(&list.finish()).unwrap();
    assert_eq!(state.take(), [vec![Launch(vec![2, 0]), Copy, Launch(vec![16])]]);
}

#[test]
fn long_lists_go_in_bounded_command_buffers() {
    let (device, state) = open(BatchLimits { commands: 3, bytes: 1000 });
    let [a, b] = [(); 2].map(|()| device.allocate(400).unwrap());
    let sizes = |ranges: &[(Binding, Binding)]| {
        device.submit(&chain(&device, ranges).unwrap()).unwrap().wait().unwrap();
        state.take().iter().map(|events| events.iter().filter(|e| **e != Barrier).count()).collect::<Vec<_>>()
    };
    let small = (a.bind(0, 4).unwrap(), b.bind(0, 4).unwrap());
    assert_eq!(sizes(&vec![small.clone(); 8]), [3, 3, 2], "by count");
    assert_eq!(sizes(&[(whole(&a), whole(&b)), small.clone(), small.clone(), (whole(&a), whole(&b))]), [3, 1], "by bytes");
    assert_eq!(sizes(&[(whole(&a), whole(&b)), (whole(&a), whole(&b))]), [1, 1], "one command at least");
    assert_eq!(sizes(&[]), [0; 0]);
}

#[test]
fn a_list_is_done_when_all_its_command_buffers_are_and_reports_the_first_error() {
    let (device, state) = open(BatchLimits { commands: 1, bytes: usize::MAX });
    state.holds.store(true, Relaxed);
    let (a, b) = (device.allocate(4).unwrap(), device.allocate(4).unwrap());
    let list = chain(&device, &vec![(whole(&a), whole(&b)); 3]).unwrap();
    let completion = device.submit(&list).unwrap();
    state.complete(2, Ok(()));
    state.complete(0, Err(Error::out_of_memory("no room")));
    assert!(!completion.is_complete());
    state.complete(0, Err(Error::invalid_launch("later")));
    assert!(completion.wait().unwrap_err().is_out_of_memory());
    device.read(&a, 0, &mut [0; 4]).unwrap();

    let unwaited = device.submit(&list).unwrap();
    (0..3).for_each(|_| state.complete(0, Err(Error::out_of_memory("no room"))));
    assert!(device.read(&a, 0, &mut [0; 4]).unwrap_err().is_out_of_memory(), "a read reports what nothing waited for");
    drop(unwaited);
    device.read(&a, 0, &mut [0; 4]).unwrap();
}

#[test]
fn a_lost_device_stays_lost() {
    let (device, state) = open(BatchLimits::default());
    state.holds.store(true, Relaxed);
    let (a, b) = (device.allocate(4).unwrap(), device.allocate(4).unwrap());
    let list = chain(&device, &[(whole(&a), whole(&b))]).unwrap();
    let completion = device.submit(&list).unwrap();
    state.complete(0, Err(Error::device_lost("removed")));
    assert!(completion.wait().unwrap_err().is_device_lost());
    assert!(device.submit(&list).err().unwrap().is_device_lost());
    assert!(state.held.lock().unwrap().is_empty());
}

#[test]
fn a_submission_that_cannot_be_encoded_ends_when_what_was_committed_has() {
    let (device, state) = open(BatchLimits { commands: 1, bytes: usize::MAX });
    state.holds.store(true, Relaxed);
    state.command_buffers.store(2, Relaxed);
    let (a, b) = (device.allocate_dedicated(4).unwrap(), device.allocate_dedicated(4).unwrap());
    let list = chain(&device, &vec![(whole(&a), whole(&b)); 3]).unwrap();
    assert!(device.submit(&list).err().unwrap().is_out_of_memory());
    assert_eq!(Arc::strong_count(&list), 2, "the list is held until the device is done with it");
    (0..2).for_each(|_| state.complete(0, Ok(())));
    assert_eq!(Arc::strong_count(&list), 1);
    device.read(&a, 0, &mut [0; 4]).unwrap();
}

#[test]
fn a_submission_that_nothing_waits_for_completes() {
    let (device, state) = open(BatchLimits::default());
    state.holds.store(true, Relaxed);
    let (a, b) = (device.allocate_dedicated(4).unwrap(), device.allocate_dedicated(4).unwrap());
    let list = chain(&device, &[(whole(&a), whole(&b))]).unwrap();
    drop(device.submit(&list).unwrap());
    drop((a, b));
    let weak = Arc::downgrade(&list);
    drop((list, device));
    assert!(weak.strong_count() == 1 && state.live() > 0, "held until the device has done it");
    // A device that cancels reports an error, which nothing reads here.
    state.complete(0, Err(Error::device_lost("cancelled")));
    assert_eq!((weak.strong_count(), state.live()), (0, 0));
}

#[test]
fn a_profile_gives_each_command_a_command_buffer_and_its_time() {
    let (device, state) = open(BatchLimits::default());
    let [a, b] = [64, 64].map(|bytes| device.allocate(bytes).unwrap());
    let submitted = |list: &Arc<CommandList>| {
        device.submit(list).unwrap().wait().unwrap();
        state.take().len()
    };
    let list = chain(&device, &[(whole(&a), whole(&b)), (whole(&b), whole(&a))]).unwrap();
    assert_eq!(submitted(&list), 1);
    device.start_profile().unwrap();
    assert_eq!(submitted(&list), 2);
    device.read_later(&a, 0, 8).unwrap().wait().unwrap();
    let events = device.end_profile().unwrap();
    let id = Some(list.id());
    let times: Vec<_> = events.iter().map(|e| (e.activity.to_string(), e.start_ns, e.duration_ns, e.bytes, e.list)).collect();
    let [step, read] = ["step", "(read to host)"].map(str::to_owned);
    assert_eq!(times, [(step.clone(), 10, 7, 128, id), (step, 20, 7, 128, id), (read, 30, 7, 8, None)]);
    state.take();
    assert_eq!((submitted(&list), device.end_profile().unwrap().len()), (1, 0));
}

#[test]
fn what_tools_show_has_a_name() {
    let (device, state) = open(BatchLimits::default());
    let owner: Arc<Vec<u8>> = Arc::new(vec![0; 64]);
    state.shares.store(false, Relaxed);
    let (a, b) = (device.adopt(HostMemory::new(owner)).unwrap(), device.allocate(64).unwrap());
    let list = chain(&device, &[(whole(&a), whole(&b)), (whole(&a), whole(&b))]).unwrap();
    device.submit(&list).unwrap().wait().unwrap();
    device.read_later(&b, 0, 8).unwrap();
    let of_list = format!("command buffer list {} of 2 commands from step", list.id());
    assert_eq!(
        *state.labels.lock().unwrap(),
        ["buffer copied memory", "buffer memory", "pipeline step", &of_list, "buffer read later", "command buffer read later"]
    );
}

#[test]
fn a_capture_begins_with_the_device_and_ends_with_it() {
    let recorder = Recorder::default();
    let state = recorder.0.clone();
    let environment = |name: &str| Some(if name == "MTL_CAPTURE_ENABLED" { "1" } else { "of this run.gputrace" }.into());
    let backend = MetalBackend::new(recorder, DeviceKind::Metal).with_capture(environment).unwrap();
    assert_eq!((state.captured.lock().unwrap().clone(), state.live()), (Some("of this run.gputrace".into()), 1));
    drop(backend);
    assert_eq!(state.live(), 0);
    assert!(MetalBackend::new(Recorder(state.clone()), DeviceKind::Metal).with_capture(|_| Some("0".into())).err().unwrap().is_invalid_argument());
}
