//! Ranks of a group: what they are given, exchange and report.

use std::{net::TcpListener, sync::Arc, thread, time::Duration};

use elinvar::{BackendType, DType, Executor, HostMemory, Place, World};

fn two() -> Executor {
    Executor::group(&[BackendType::Cpu; 2]).unwrap()
}

/// What each of two processes, which are threads here, does with a rank for each of so many devices; the number of its first rank comes with the executor.
fn two_processes<T: Send + 'static>(devices: usize, work: impl Fn(Executor, usize) -> T + Clone + Send + 'static) -> Vec<T> {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let process = |rank| {
        let work = work.clone();
        let (patience, silence) = (Duration::from_secs(60), Duration::from_secs(8));
        let place = Place { rank, world_size: 2, local_rank: rank, local_world_size: 2, address: "127.0.0.1".into(), port, patience, silence };
        thread::spawn(move || work(Executor::among(World::join(place).unwrap(), &vec![BackendType::Cpu; devices]).unwrap(), rank * devices))
    };
    [0, 1].map(process).into_iter().map(|thread| thread.join().unwrap()).collect()
}

/// Parts of three rows of five elements a rank, no power of two, that are gathered; `first` is the rank that is read from.
fn gather(executor: &Executor, first: usize) {
    let ranks = executor.ranks();
    let part = |rank: usize| (0..15).map(|i| (50 * rank + i) as u8).collect::<Vec<u8>>();
    let parts = (0..ranks).map(|rank| HostMemory::new(Arc::new(part(rank)))).collect();
    let own = executor.adopt_parts(DType::U8, &[3, 5], parts).unwrap();
    let whole = own.all_gather().unwrap();
    let expected: Vec<u8> = (0..3).flat_map(|row| (0..ranks).flat_map(move |rank| part(rank)[5 * row..5 * row + 5].to_vec())).collect();
    assert_eq!((whole.shape().to_vec(), whole.to_vec::<u8>().unwrap()), (vec![3, 5 * ranks], expected));
    assert_eq!(whole.own_part().unwrap().to_vec::<u8>().unwrap(), part(first));
    let sum = own.cast(DType::F32).unwrap().all_gather().unwrap().sum(&[], false).unwrap().item::<f32>().unwrap();
    assert_eq!(sum, (0..ranks).flat_map(part).map(f32::from).sum::<f32>());
}

#[test]
fn parts_of_rows_are_put_side_by_side() {
    for ranks in [1, 2, 3] {
        gather(&Executor::group(&vec![BackendType::Cpu; ranks]).unwrap(), 0);
    }
}

#[test]
fn processes_gather_as_devices_of_one_do() {
    for devices in [1, 2] {
        two_processes(devices, move |executor, first| {
            assert_eq!((executor.ranks(), executor.world().unwrap().is_first()), (2 * devices, first == 0));
            gather(&executor, first);
            // A recording, in which a row is gathered where it is wanted, and rows are put into place.
            let parts = (0..2 * devices).map(|rank| HostMemory::new(Arc::new([rank as f32; 4].map(f32::to_le_bytes).concat()))).collect();
            let x = executor.adopt_parts(DType::F32, &[1, 4], parts).unwrap();
            let (recording, y) = executor
                .record(|recorder| {
                    let whole = x.on(recorder)?.all_gather()?;
                    let twice = whole.add(&whole)?.own_part()?;
                    twice.reshape(&[2, 2])?.all_gather()
                })
                .unwrap();
            for _ in 0..3 {
                executor.replay(&recording).unwrap().wait().unwrap();
                let row: Vec<f32> = (0..2 * devices).flat_map(|rank| [2.0 * rank as f32; 2]).collect();
                assert_eq!(y.to_vec::<f32>().unwrap(), [row.clone(), row].concat());
            }
            // Replicas.
            let replicas = executor.replicated();
            let rows: Vec<f32> = (0..2 * devices).map(|replica| replica as f32).collect();
            let own = replicas.tensor(&[2 * devices, 1], &rows).unwrap().own_replica().unwrap().exp().unwrap();
            assert_eq!(own.item::<f32>().unwrap(), (first as f32).exp());
            let all = own.all_replicas().unwrap().iter().map(|one| one.item::<f32>().unwrap()).collect::<Vec<_>>();
            assert_eq!(all, rows.iter().map(|row| row.exp()).collect::<Vec<_>>());
        });
    }
}

#[test]
fn processes_that_write_something_else_are_noticed() {
    let found = two_processes(1, |executor, first| {
        let x = executor.tensor(&[1, 1], &[first as f32]).unwrap();
        x.all_gather().and_then(|whole| whole.to_vec::<f32>()).unwrap_err().to_string()
    });
    assert!(found.iter().any(|error| error.contains("does something else than this one")), "{found:?}");
    assert!(found.iter().all(|error| error.contains("does something else") || error.contains("ended before this one")), "{found:?}");
}

#[test]
fn processes_with_other_devices_are_named() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let process = |rank: usize| {
        let (patience, silence) = (Duration::from_secs(60), Duration::from_secs(8));
        let place = Place { rank, world_size: 2, local_rank: 0, local_world_size: 1, address: "127.0.0.1".into(), port, patience, silence };
        thread::spawn(move || Executor::among(World::join(place).unwrap(), &vec![BackendType::Cpu; rank + 1]).err().unwrap().to_string())
    };
    for thread in [0, 1].map(process) {
        assert_eq!(thread.join().unwrap(), "process 1 has another device than process 0: give all processes the same");
    }
}

#[test]
fn what_was_gathered_and_taken_apart_again_is_left_out_of_a_recording() {
    let executor = two();
    let x = executor.tensor(&[1, 4], &[1f32, 2.0, 3.0, 4.0]).unwrap().own_part().unwrap();
    let (recording, y) = executor.record(|recorder| x.on(recorder)?.exp()?.all_gather()?.own_part()?.add(&x)).unwrap();
    // The exponentials and the sum in one program, and what gathers them.
    assert_eq!(recording.len(), 2);
    executor.replay(&recording).unwrap().wait().unwrap();
    assert_eq!(y.to_vec::<f32>().unwrap(), [1f32, 2.0].map(|x| x.exp() + x));
}

#[test]
fn what_the_host_writes_every_rank_has() {
    let x = two().zeros(DType::F32, &[2]).unwrap();
    x.write(&[1f32, 2.0]).unwrap();
    assert_eq!(x.all_gather().unwrap().to_vec::<f32>().unwrap(), [1.0, 2.0, 1.0, 2.0]);
}

#[test]
fn what_cannot_be_a_group_or_shared_is_one_line() {
    let message = |error: elinvar::Error| error.to_string();
    assert_eq!(message(Executor::group(&[]).err().unwrap()), "a group of no devices: name at least one");
    let unlike = message(Executor::group(&[BackendType::Cpu, BackendType::Null]).err().unwrap());
    assert!(unlike.starts_with("a group of unlike devices: rank 0 is on ") && unlike.contains("rank 1 on null device"), "{unlike}");
    let executor = two();
    let odd = executor.tensor(&[3], &[1f32; 3]).unwrap();
    assert_eq!(message(odd.own_part().unwrap_err()), "own_part: x has shape [3]: its last axis cannot be cut into so many parts");
    assert!(message(odd.own_rows().unwrap_err()).ends_with("cannot be cut into 2 parts along its first axis"));
    let memory = |bytes: usize| HostMemory::new(Arc::new(vec![0u8; bytes]));
    let uneven = executor.adopt_parts(DType::U8, &[2], vec![memory(2), memory(3)]).unwrap_err();
    assert_eq!(message(uneven), "2 parts for 2 ranks: one for each expected, all of one size");
    let tracked = executor.tensor(&[2], &[1f32; 2]).unwrap().requires_grad().unwrap();
    assert!(message(tracked.all_gather().unwrap().sum(&[], false).unwrap().backward().unwrap_err()).contains("all_gather"));
}
