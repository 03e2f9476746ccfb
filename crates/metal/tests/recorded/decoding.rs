//! A decode step: what it costs the host, and that nothing is left behind.

use std::{
    fs,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use elinvar_core::{Access, Buffer, CommandList, Device, ListBuilder, Pipeline, Result};
use elinvar_metal::BatchLimits;

use crate::{dispatch, open, recorder::Event, source, whole};

/// A step as a language model of 32 layers takes it: `layers` times eleven launches of two to six buffers, most of which wait for the one before.
fn decode_step(device: &Device, layers: usize) -> Result<Arc<CommandList>> {
    use Access::{Read, ReadWrite, Write};
    let prepare = |name: &str, accesses: &[Access]| device.prepare(&source(name, accesses)).unwrap();
    let (matvec, norm, mix) = (prepare("matvec", &[Read, Read, Write]), prepare("norm", &[Read, Read, Write]), prepare("mix", &[Read, Read, Write]));
    let attention = prepare("attention", &[Read, Read, Read, Read, Write]);
    let rope_append = prepare("rope_append", &[Read, Read, Read, Read, ReadWrite, Write]);
    let activations = (0..10).map(|_| device.allocate(64)).collect::<Result<Vec<_>>>()?;
    let [x, h, q, k, v, out, gate, up, act, position] = activations.as_slice() else { panic!("ten buffers") };
    let mut list = ListBuilder::new();
    let mut add = |pipeline: &Pipeline, buffers: &[&Buffer]| {
        let bindings: Vec<_> = buffers.iter().copied().map(whole).collect();
        list.dispatch(dispatch(pipeline, &bindings, 256), device.properties()).unwrap();
    };
    for _ in 0..layers {
        let kept = (0..3).map(|_| device.allocate_dedicated(64)).collect::<Result<Vec<_>>>()?;
        let [weights, keys, values] = kept.as_slice() else { panic!("three buffers") };
        add(&norm, &[x, weights, h]);
        [q, k, v].into_iter().for_each(|to| add(&matvec, &[h, weights, to]));
        add(&rope_append, &[q, k, v, position, keys, out]);
        add(&attention, &[out, keys, values, position, act]);
        add(&matvec, &[act, weights, h]);
        add(&norm, &[h, weights, x]);
        [gate, up].into_iter().for_each(|to| add(&matvec, &[x, weights, to]));
        add(&mix, &[gate, up, act]);
    }
    Ok(list.finish())
}

fn resident_bytes() -> usize {
    let pages = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    4096 * pages.split_whitespace().nth(1).and_then(|n| n.parse().ok()).unwrap_or(0)
}

#[test]
fn a_hundred_thousand_submissions_leave_nothing_behind() {
    let (device, state) = open(BatchLimits { commands: 4, bytes: usize::MAX });
    state.writes.store(false, Relaxed);
    let list = decode_step(&device, 1).unwrap();
    let submit = |count: usize| (0..count).for_each(|_| device.submit(&list).unwrap().wait().unwrap());
    submit(1000);
    let (live, resident) = (state.live(), resident_bytes());
    submit(100_000);
    assert_eq!(state.live(), live);
    assert!(state.created.load(Relaxed) > 300_000, "three command buffers a submission");
    let grown = resident_bytes().saturating_sub(resident);
    assert!(grown < 4 << 20, "grew by {grown} bytes");
    drop((list, device));
    assert_eq!(state.live(), 0, "created and released are equal");
}

#[test]
fn encoding_a_decode_step_asks_for_nothing_but_its_launches_and_what_orders_them() {
    let (device, state) = open(BatchLimits::default());
    let list = decode_step(&device, 32).unwrap();
    let created = state.created.load(Relaxed);
    device.submit(&list).unwrap().wait().unwrap();
    let committed = state.take();
    assert_eq!(state.created.load(Relaxed) - created, committed.len(), "an object for each command buffer");
    let count = |wanted: fn(&Event) -> bool| committed.iter().flatten().filter(|event| wanted(event)).count();
    let (launches, barriers) = (count(|event| matches!(event, Event::Launch(_))), count(|event| *event == Event::Barrier));
    assert_eq!((launches, barriers + launches), (list.commands().len(), committed.iter().flatten().count()));
    // A layer has eight stages, of which the last runs beside the first of the next; a command buffer begins without a barrier.
    assert!(barriers <= 7 * 32, "{barriers} barriers in {} command buffers", committed.len());
}

#[test]
fn memory_may_run_out_at_any_allocation_of_a_step() {
    let (device, state) = open(BatchLimits { commands: 4, bytes: usize::MAX });
    state.writes.store(false, Relaxed);
    let mut failures = 0;
    for counter in [&state.buffers, &state.command_buffers] {
        for allocations in 0.. {
            counter.store(allocations, Relaxed);
            let step = decode_step(&device, 2);
            let done = step.and_then(|list| device.submit(&list)?.wait());
            counter.store(usize::MAX, Relaxed);
            device.pool().clear();
            assert_eq!(state.live(), 0, "after allocation {allocations}");
            match done {
                Ok(()) => break,
                Err(error) => assert!(error.is_out_of_memory(), "{error}"),
            }
            failures += 1;
        }
    }
    // Ten activations and six buffers of weights; and a command buffer for each four of 22 launches.
    assert_eq!(failures, 16 + 6);
}
