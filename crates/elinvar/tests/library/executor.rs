//! Executors, tensors and recordings as a user meets them.

use std::num::NonZeroUsize;

use elinvar::{BackendType, DType, DeviceKind, Executor, Precision, Tensor, kernels::projection::Projection};

fn cpu() -> Executor {
    Executor::new_cpu(NonZeroUsize::new(2).unwrap()).unwrap()
}

#[test]
fn an_absent_device_is_an_error_that_lists_those_that_are() {
    let error = "abacus".parse::<BackendType>().unwrap_err();
    assert!(error.is_device_unavailable());
    let message = error.to_string();
    assert!(message.starts_with("device 'abacus' is not available: this build has metal, cuda, cpu, metal-sim, null"), "{message}");
    assert_eq!("cuda:1".parse::<BackendType>().unwrap(), BackendType::Cuda(1));
    let error = Executor::new_with_backend(BackendType::Cuda(999)).map(|_| ()).unwrap_err();
    assert!(error.is_device_unavailable(), "{error}");
}

#[test]
fn calls_alike_take_the_tensors_of_each() {
    let executor = cpu();
    let x = executor.tensor(&[2, 3], &[1f32, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
    let y = executor.tensor(&[2, 3], &[10f32, 20.0, 30.0, 40.0, 50.0, 60.0]).unwrap();
    let backwards = x.slice(1, 2, 3, -1).unwrap();
    let across = executor.tensor(&[3, 2], &[1f32, 4.0, 2.0, 5.0, 3.0, 6.0]).unwrap().transpose(0, 1).unwrap();
    // Twice each: the first is planned, or is like one before it.
    for _ in 0..2 {
        let sum = |a: &Tensor, b: &Tensor| a.add(b).unwrap().to_vec::<f32>().unwrap();
        assert_eq!(sum(&x, &x), [2.0, 4.0, 6.0, 8.0, 10.0, 12.0]);
        assert_eq!(sum(&x, &y), [11.0, 22.0, 33.0, 44.0, 55.0, 66.0]);
        assert_eq!(sum(&y, &across), [11.0, 22.0, 33.0, 44.0, 55.0, 66.0]);
        assert_eq!(sum(&y, &backwards), [13.0, 22.0, 31.0, 46.0, 55.0, 64.0]);
        let errors = [x.add(&y.reshape(&[3, 2]).unwrap()), x.matmul(&y)].map(|made| made.unwrap_err().to_string());
        assert!(errors.iter().all(|error| error.contains("[2, 3]")), "{errors:?}");
        let shared = x.add_into(&y, &y).unwrap_err().to_string();
        assert!(shared.contains("shares memory with another operand"), "{shared}");
    }
}

#[test]
fn calls_of_several_threads_and_of_more_shapes_than_are_kept_are_right() {
    let executor = cpu();
    let check = |thread: usize| {
        for n in 1..600 {
            let x = executor.full(DType::I32, &[n], (thread + n) as f64).unwrap();
            assert_eq!(x.add(&x).unwrap().to_vec::<i32>().unwrap(), vec![2 * (thread + n) as i32; n]);
        }
    };
    std::thread::scope(|scope| {
        (0..3).for_each(|thread| {
            drop(scope.spawn({
                let check = &check;
                move || check(thread)
            }))
        })
    });
}

#[test]
fn work_that_fits_no_other_device_goes_to_the_cpu() {
    let (executor, why) = Executor::new_auto_for(u64::MAX).unwrap();
    let chosen = std::env::var("ELINVAR_DEVICE").is_ok_and(|name| !name.is_empty() && name != "auto");
    assert!(chosen || executor.properties().kind == DeviceKind::Cpu);
    assert!(chosen || why.is_none() || why.is_some_and(|why| why.contains("computing on the cpu")));
}

#[test]
fn views_share_memory_and_are_made_row_major_when_an_operator_needs_it() {
    let x = cpu().tensor(&[2, 3], &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
    let t = x.transpose(0, 1).unwrap();
    assert_eq!(t.to_vec::<f32>().unwrap(), [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
    assert_eq!(t.reshape(&[6]).unwrap().to_vec::<f32>().unwrap(), t.to_vec::<f32>().unwrap());
    let backwards = x.slice(1, 2, 2, -2).unwrap();
    assert_eq!(backwards.to_vec::<f32>().unwrap(), [3.0, 1.0, 6.0, 4.0]);
    assert_eq!(backwards.add(&x.slice(1, 0, 2, 1).unwrap()).unwrap().to_vec::<f32>().unwrap(), [4.0, 3.0, 10.0, 9.0]);
    let row = x.slice(0, 0, 1, 1).unwrap().broadcast_to(&[2, 3]).unwrap();
    assert_eq!(x.sub(&row).unwrap().to_vec::<f32>().unwrap(), [0.0, 0.0, 0.0, 3.0, 3.0, 3.0]);
    assert_eq!(t.softmax(0).unwrap().sum(&[0], false).unwrap().to_vec::<f32>().unwrap(), [1.0, 1.0]);
}

#[test]
fn a_recording_replays_on_new_inputs() {
    let executor = cpu();
    let x = executor.tensor(&[3], &[1.0f32, 2.0, 3.0]).unwrap();
    let (recording, y) = executor.record(|recorded| x.on(recorded)?.mul(&x)?.add(&x)?.neg()).unwrap();
    assert_eq!(recording.len(), 1);
    for input in [[1.0f32, 2.0, 3.0], [-1.0, 0.5, 10.0]] {
        x.write(&input).unwrap();
        executor.replay(&recording).unwrap().wait().unwrap();
        assert_eq!(y.to_vec::<f32>().unwrap(), input.map(|v| -(v * v + v)));
    }
}

#[test]
fn a_tensor_takes_over_another_s_elements() {
    let executor = Executor::new_auto().unwrap();
    let (from, to) = (executor.tensor(&[3], &[1i32, 2, 3]).unwrap(), executor.tensor(&[3, 1], &[0i32; 3]).unwrap());
    let (recording, ()) = executor.record(|recorded| to.on(recorded)?.copy_from(&from)).unwrap();
    assert_eq!(to.to_vec::<i32>().unwrap(), [0, 0, 0]);
    executor.replay(&recording).unwrap();
    assert_eq!(to.to_vec::<i32>().unwrap(), [1, 2, 3]);
    to.slice(0, 1, 2, 1).unwrap().copy_from(&from.slice(0, 0, 2, 1).unwrap()).unwrap();
    assert_eq!(to.to_vec::<i32>().unwrap(), [1, 1, 2]);
    assert!(to.copy_from(&from.slice(0, 0, 2, 1).unwrap()).is_err() && from.copy_from(&from).is_err());
}

#[test]
fn results_dropped_inside_a_recording_share_memory() {
    let executor = cpu();
    let x = executor.tensor(&[1 << 16], &vec![1.0f32; 1 << 16]).unwrap();
    let before = executor.pool().statistics();
    let (recording, y) = executor
        .record(|recorded| {
            let mut y = x.on(recorded)?;
            for _ in 0..50 {
                y = y.add(&x)?.cumsum(0)?.clamp(0.0, 51.0)?;
            }
            Ok(y)
        })
        .unwrap();
    let after = executor.pool().statistics();
    assert!(after.live_bytes - before.live_bytes <= 3 * (4 << 16), "{after:?}");
    executor.replay(&recording).unwrap().wait().unwrap();
    assert!(y.to_vec::<f32>().unwrap().iter().skip(1).all(|&v| v == 51.0));
}

#[test]
fn reading_while_recording_is_rejected_and_leaves_nothing_behind() {
    let executor = cpu();
    let x = executor.tensor(&[1], &[1.0f32]).unwrap();
    let error = executor.record(|recorded| x.on(recorded)?.exp()?.to_vec::<f32>()).map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("cannot be read while recording"), "{error}");
    assert_eq!(x.add(&x).unwrap().to_vec::<f32>().unwrap(), [2.0]);
}

#[test]
fn errors_are_one_line() {
    let executor = cpu();
    let (x, y) = (executor.tensor(&[2, 3], &[0.0f32; 6]).unwrap(), executor.tensor(&[4], &[0i64; 4]).unwrap());
    let messages = [
        executor.tensor(&[2, 2], &[1.0f32]).map(|_| ()).unwrap_err(),
        x.add(&y).map(|_| ()).unwrap_err(),
        x.reshape(&[5]).map(|_| ()).unwrap_err(),
        x.to_vec::<i64>().map(|_| ()).unwrap_err(),
        x.softmax(2).map(|_| ()).unwrap_err(),
        x.matmul(&x).map(|_| ()).unwrap_err(),
        x.write(&[1.0f32]).map(|_| ()).unwrap_err(),
        Tensor::concat(&[], 0).map(|_| ()).unwrap_err(),
        cpu().apply(std::sync::Arc::new(elinvar::kernels::softmax::Softmax { axis: 0, log: false }), &[Some(&x)]).map(|_| ()).unwrap_err(),
    ];
    for error in &messages {
        let text = error.to_string();
        assert!(error.is_invalid_argument() && !text.contains('\n') && text.len() > 20, "{text}");
    }
}

#[test]
fn an_index_outside_a_table_is_reported_when_the_result_is_read() {
    let executor = cpu();
    let table = executor.tensor(&[2, 2], &[1.0f32, 2.0, 3.0, 4.0]).unwrap();
    let indices = executor.tensor(&[2], &[1i32, 7]).unwrap();
    let error = table.gather(&indices, 0).and_then(|y| y.to_vec::<f32>()).unwrap_err();
    assert!(error.is_invalid_argument() && error.to_string().contains('7'), "{error}");
    assert_eq!(table.to_vec::<f32>().unwrap().len(), 4, "the device goes on");
}

#[test]
fn strict_products_have_the_same_bits_alone_and_in_a_batch_and_fast_ones_are_close() {
    let executor = cpu();
    let random = |dims: &[usize], seed: u32| {
        let value = |i: usize| ((i as u32).wrapping_mul(2_654_435_761).wrapping_add(seed) >> 8) as f32 / (1 << 23) as f32 - 1.0;
        executor.tensor(dims, &(0..dims.iter().product()).map(value).collect::<Vec<_>>()).unwrap()
    };
    let (x, w) = (random(&[64, 300], 1), random(&[50, 300], 2).cast(DType::BF16).unwrap());
    let rows = x.on(&executor.with_precision(Precision::Strict)).unwrap();
    let all = rows.linear(&w, None).unwrap().to_vec::<f32>().unwrap();
    for row in 0..64 {
        let alone = rows.slice(0, row, 1, 1).unwrap().linear(&w, None).unwrap().to_vec::<f32>().unwrap();
        assert!(alone.iter().zip(&all[row * 50..]).all(|(a, b)| a.to_bits() == b.to_bits()), "row {row}");
    }
    let fast = x.on(&executor.with_precision(Precision::Fast)).unwrap().linear(&w, None).unwrap().to_vec::<f32>().unwrap();
    assert!(fast.iter().zip(&all).all(|(a, b)| (a - b).abs() < 1e-3));
}

#[test]
fn the_null_device_checks_and_executes_nothing() {
    let executor = Executor::new_with_backend(BackendType::Null).unwrap();
    let x = executor.tensor(&[4, 4], &[1.0f32; 16]).unwrap();
    assert_eq!(x.softmax(-1).unwrap().to_vec::<f32>().unwrap(), [0.0; 16]);
    assert!(x.softmax(9).is_err());
}

#[test]
fn a_projection_has_the_bits_of_its_parts() {
    let executor = cpu().with_precision(Precision::Strict);
    let random = |dtype: DType, dims: &[usize], seed: u32| {
        let value = |i: u32| ((i.wrapping_mul(2_654_435_761).wrapping_add(seed) >> 8) as f32 / (1 << 23) as f32) - 1.0;
        let values: Vec<f32> = (0..dims.iter().product::<usize>() as u32).map(value).collect();
        executor.tensor(dims, &values).unwrap().cast(dtype).unwrap()
    };
    let bits = |tensor: &Tensor| tensor.to_vec::<f32>().unwrap().into_iter().map(f32::to_bits).collect::<Vec<_>>();
    for rows in [1, 5] {
        let (x, norm, residual) = (random(DType::F32, &[rows, 300], 1), random(DType::BF16, &[300], 2), random(DType::F32, &[rows, 40], 3));
        let (a, b) = (random(DType::BF16, &[40, 300], 4), random(DType::BF16, &[40, 300], 5));
        let bias = random(DType::F16, &[40], 6);
        let normed = x.rms_norm(Some(&norm), 1e-5).unwrap();
        let separate = [normed.linear(&a, Some(&bias)).unwrap(), normed.linear(&b, None).unwrap()];

        let operator = Projection { epsilon: Some(1e-5), ..Projection::default() };
        let together = x.project(&operator, Some(&norm), &[(&a, Some(&bias)), (&b, None)], None).unwrap();
        assert!(together.iter().map(bits).eq(separate.iter().map(bits)));
        let gated = x.project(&Projection { gated: true, ..operator }, Some(&norm), &[(&a, Some(&bias)), (&b, None)], None).unwrap();
        assert!(gated.len() == 1 && bits(&gated[0]) == bits(&separate[0].swiglu(&separate[1]).unwrap()));
        let added = x.project(&Projection::default(), None, &[(&a, None)], Some(&residual)).unwrap();
        assert_eq!(bits(&added[0]), bits(&residual.add(&x.linear(&a, None).unwrap()).unwrap()));
        let four = x.project(&operator, None, &[(&a, None); 4], None).unwrap_err().to_string();
        assert!(four.contains("at most 3"), "{four}");
    }
}

#[test]
fn caches_take_what_rope_and_append_would_write() {
    let executor = cpu();
    let row =
        |seed: f32, heads: usize| executor.tensor(&[2, heads, 8], &(0..16 * heads).map(|i| (i as f32 * seed).sin()).collect::<Vec<_>>()).unwrap();
    let (positions, frequencies) = (executor.tensor(&[2], &[3i32, 1]).unwrap(), executor.tensor(&[4], &[1.0f32, 0.5, 0.25, 0.125]).unwrap());
    let cache = || executor.zeros(DType::F16, &[2, 5, 8]).unwrap();
    let (keys, values, queries) = (row(0.7, 2), row(1.3, 2), row(2.1, 6));
    let [k, v, k_apart, v_apart] = [cache(), cache(), cache(), cache()];
    let rotated = queries.rope(&positions, &frequencies).unwrap().to_bytes().unwrap();
    k_apart.kv_append(&keys.rope(&positions, &frequencies).unwrap(), &positions).unwrap();
    v_apart.kv_append(&values, &positions).unwrap();
    k.rope_append(&keys, &positions, &frequencies, Some((&v, &values)), Some(&queries)).unwrap();
    for (found, expected) in [(&k, &k_apart), (&v, &v_apart)] {
        assert_eq!(found.to_bytes().unwrap(), expected.to_bytes().unwrap());
    }
    assert_eq!(queries.to_bytes().unwrap(), rotated);
}

#[test]
fn greedy_steps_follow_each_other_on_the_device() {
    let executor = cpu();
    let state = executor.tensor(&[2], &[9i32, 4]).unwrap();
    let logits = executor.tensor(&[1, 5], &[0.5f32, 2.0, -1.0, 2.0, 1.0]).unwrap();
    let (recording, ()) = executor.record(|recorded| state.on(recorded)?.sample_argmax(&logits)).unwrap();
    executor.replay(&recording).unwrap();
    let first = state.read_later().unwrap();
    executor.replay(&recording).unwrap();
    assert_eq!(first.wait().unwrap(), [1i32, 5].map(i32::to_ne_bytes).concat());
    assert_eq!(state.to_vec::<i32>().unwrap(), [1, 6]);
    logits.write(&[f32::NAN; 5]).unwrap();
    assert!(executor.replay(&recording).unwrap().wait().unwrap_err().to_string().contains("logit of token 0 is NaN"));
}
