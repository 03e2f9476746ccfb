//! Ranks of a group: what they are given, exchange and report.

use std::sync::Arc;

use elinvar::{BackendType, DType, Executor, HostMemory};

fn two() -> Executor {
    Executor::group(&[BackendType::Cpu; 2]).unwrap()
}

#[test]
fn parts_of_rows_are_put_side_by_side() {
    for ranks in [1, 2, 3] {
        let executor = Executor::group(&vec![BackendType::Cpu; ranks]).unwrap();
        // Three rows of five elements a rank: no power of two.
        let part = |rank: usize| (0..15).map(|i| (100 * rank + i) as u8).collect::<Vec<u8>>();
        let parts = (0..ranks).map(|rank| HostMemory::new(Arc::new(part(rank)))).collect();
        let own = executor.adopt_parts(DType::U8, &[3, 5], parts).unwrap();
        let whole = own.all_gather().unwrap();
        let expected: Vec<u8> = (0..3).flat_map(|row| (0..ranks).flat_map(move |rank| part(rank)[5 * row..5 * row + 5].to_vec())).collect();
        assert_eq!((whole.shape().to_vec(), whole.to_vec::<u8>().unwrap()), (vec![3, 5 * ranks], expected));
        assert_eq!(whole.own_part().unwrap().to_vec::<u8>().unwrap(), part(0));
        let sum = own.cast(DType::F32).unwrap().all_gather().unwrap().sum(&[], false).unwrap().item::<f32>().unwrap();
        assert_eq!(sum, (0..ranks).flat_map(part).map(f32::from).sum::<f32>());
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
