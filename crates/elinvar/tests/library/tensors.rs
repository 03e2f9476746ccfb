//! What a tensor offers beside operators: arithmetic by operators, constructors, axes, indices, values as text.

use std::num::NonZeroUsize;

use elinvar::{DType, Executor, Tensor};

fn cpu() -> Executor {
    Executor::new_cpu(NonZeroUsize::MIN).unwrap()
}

#[test]
fn operators_are_the_methods() {
    let executor = cpu();
    let a = executor.tensor(&[3], &[7f32, -2.0, 0.5]).unwrap();
    let b = executor.tensor(&[3], &[2f32, 4.0, -1.0]).unwrap();
    let values = |tensor: elinvar::Result<Tensor>| tensor.unwrap().to_vec::<f32>().unwrap();
    assert_eq!(values(&a + &b), [9.0, 2.0, -0.5]);
    assert_eq!(values(a.clone() - &b), [5.0, -6.0, 1.5]);
    assert_eq!(values(&a * b.clone()), [14.0, -8.0, -0.5]);
    assert_eq!(values(a.clone() / b.clone()), [3.5, -0.5, -0.5]);
    assert_eq!(values(&a % &b), [1.0, -2.0, 0.5]);
    assert_eq!(values(-&a), [-7.0, 2.0, -0.5]);
    assert_eq!([values(&a * 2.0), values(2 * &a)], [[14.0, -4.0, 1.0]; 2]);
    assert_eq!([values(1.0 - &a), values(1.0 / &a)], [[-6.0, 3.0, 0.5], [1.0 / 7.0, -0.5, 2.0]]);
    assert!((&a + executor.tensor(&[2], &[1f32; 2]).unwrap()).is_err());
}

#[test]
fn numbers_take_the_type_of_the_tensor() {
    let executor = cpu();
    let x = executor.tensor(&[3], &[1i32, -5, 9]).unwrap();
    assert_eq!((&x * 3).unwrap().to_vec::<i32>().unwrap(), [3, -15, 27]);
    assert_eq!((100 - &x).unwrap().to_vec::<i32>().unwrap(), [99, 105, 91]);
    assert!((&x + 0.5).unwrap_err().to_string().contains("0.5 is no value of i32"));
    // One rounding, of a product with the f32 nearest to the number.
    let x = executor.tensor(&[2], &[3f32, 1000.0]).unwrap().cast(DType::BF16).unwrap();
    let exact = executor.tensor(&[2], &[3f32 * 0.1, 1000.0 * 0.1]).unwrap().cast(DType::BF16).unwrap();
    assert_eq!((&x * 0.1).unwrap().to_bytes().unwrap(), exact.to_bytes().unwrap());
}

#[test]
fn tensors_are_made_of_nothing() {
    let executor = cpu();
    assert_eq!(executor.eye(DType::U8, 3).unwrap().to_vec::<u8>().unwrap(), [1, 0, 0, 0, 1, 0, 0, 0, 1]);
    assert_eq!(executor.arange(DType::I64, 5, -1, -2).unwrap().to_vec::<i64>().unwrap(), [5, 3, 1]);
    assert!(executor.full(DType::U8, &[1], -1).is_err() && executor.arange(DType::F32, 0, 1, 0).is_err());
    let n = 100_000;
    let statistics = |x: Tensor| {
        let values = x.to_vec::<f32>().unwrap();
        let mean = values.iter().map(|&v| f64::from(v)).sum::<f64>() / n as f64;
        (mean, values.iter().map(|&v| (f64::from(v) - mean).powi(2)).sum::<f64>() / n as f64)
    };
    let (mean, variance) = statistics(executor.rand(&[n], 1).unwrap());
    assert!((mean - 0.5).abs() < 0.005 && (variance - 1.0 / 12.0).abs() < 0.002, "{mean} {variance}");
    let (mean, variance) = statistics(executor.randn(&[n], 2).unwrap());
    assert!(mean.abs() < 0.02 && (variance - 1.0).abs() < 0.02, "{mean} {variance}");
    assert_eq!(executor.randn(&[4], 7).unwrap().to_vec::<f32>().unwrap(), executor.randn(&[4], 7).unwrap().to_vec::<f32>().unwrap());
}

#[test]
fn axes_come_and_go() {
    let executor = cpu();
    let x = executor.arange(DType::I32, 0, 24, 1).unwrap().reshape(&[2, 3, 4]).unwrap();
    assert_eq!(x.unsqueeze(-1).unwrap().shape().to_vec(), [2, 3, 4, 1]);
    assert_eq!(x.unsqueeze(1).unwrap().squeeze(1).unwrap().shape().to_vec(), [2, 3, 4]);
    assert!(x.squeeze(0).is_err() && x.unsqueeze(4).is_err() && x.unsqueeze(-5).is_err());
    let parts = x.split(&[1, 2], 1).unwrap();
    assert_eq!(parts.iter().map(|part| part.shape().to_vec()).collect::<Vec<_>>(), [[2, 1, 4], [2, 2, 4]]);
    assert_eq!(parts[0].flatten().unwrap().to_vec::<i32>().unwrap(), [0, 1, 2, 3, 12, 13, 14, 15]);
    assert!(x.split(&[1, 1], 1).is_err() && x.split(&[usize::MAX, 4], 1).is_err());
    let rows = [x.i(0).unwrap(), x.i(1).unwrap()];
    assert_eq!(Tensor::stack(&[&rows[0], &rows[1]], 0).unwrap().to_vec::<i32>().unwrap(), x.to_vec::<i32>().unwrap());
    assert!(Tensor::stack(&[&x, &rows[0]], 0).is_err() && Tensor::stack(&[], 0).is_err());
}

#[test]
fn indices_are_numpy_s() {
    let executor = cpu();
    let x = executor.arange(DType::I32, 0, 24, 1).unwrap().reshape(&[2, 3, 4]).unwrap();
    assert_eq!(x.i((1, .., 2)).unwrap().to_vec::<i32>().unwrap(), [14, 18, 22]);
    assert_eq!(x.i((.., 1..=1, ..2)).unwrap().shape().to_vec(), [2, 1, 2]);
    assert_eq!(x.i((1, 2, 3)).unwrap().item::<i32>().unwrap(), 23);
    assert_eq!(x.i((.., 2..2)).unwrap().shape().to_vec(), [2, 0, 4]);
    for wrong in [x.i(2), x.i((0, 0, 0, 0)), x.i((.., 2..5)), x.i((.., .., 5..))] {
        assert!(wrong.unwrap_err().is_invalid_argument());
    }
    assert!(x.item::<i32>().is_err() && x.i((0, 0, 0)).unwrap().item::<f32>().is_err());
}

#[test]
fn comparisons_and_logic_have_methods() {
    let executor = cpu();
    let (a, b) = (executor.tensor(&[3], &[1f32, 2.0, 3.0]).unwrap(), executor.tensor(&[1], &[2f32]).unwrap());
    let bits = |tensor: elinvar::Result<Tensor>| tensor.unwrap().to_bytes().unwrap();
    let found = [a.eq(&b), a.ne(&b), a.lt(&b), a.le(&b), a.gt(&b), a.ge(&b)].map(bits);
    assert_eq!(found, [[0, 1, 0], [1, 0, 1], [1, 0, 0], [1, 1, 0], [0, 0, 1], [0, 1, 1]]);
    let (x, y) = (a.le(&b).unwrap(), a.ge(&b).unwrap());
    let found = [x.logical_and(&y), x.logical_or(&y), x.logical_xor(&y), x.logical_not()].map(bits);
    assert_eq!(found, [[0, 1, 0], [1, 1, 1], [1, 0, 1], [0, 0, 1]]);
    // They fuse.
    let chain = |x: &Tensor| x.logical_xor(&y)?.logical_or(&a.gt(&b)?)?.logical_not()?.logical_and(x);
    let (recording, fused) = executor.record(|recorded| chain(&x.on(recorded)?)).unwrap();
    assert_eq!(recording.len(), 1);
    executor.replay(&recording).unwrap().wait().unwrap();
    assert_eq!(bits(Ok(fused)), bits(chain(&x)));
}

#[test]
fn values_are_printed_as_numpy_does() {
    let executor = cpu();
    let shown = |dims: &[usize]| executor.arange(DType::I32, 0, dims.iter().product::<usize>() as i64, 1).unwrap().reshape(dims).unwrap().to_string();
    assert_eq!(shown(&[]), "0");
    assert_eq!(shown(&[0]), "[]");
    assert_eq!(shown(&[2, 2, 2]), "[[[0, 1],\n  [2, 3]],\n\n [[4, 5],\n  [6, 7]]]");
    assert_eq!(shown(&[2000]), "[   0,    1,    2, ..., 1997, 1998, 1999]");
    let large = "[[   0,    1,    2, ...,  997,  998,  999],\n [1000, 1001, 1002, ..., 1997, 1998, 1999]]";
    assert_eq!(shown(&[2, 1000]), large);
    assert!(shown(&[1000, 2]).starts_with("[[   0,    1],\n [   2,    3],\n [   4,    5],\n ...,\n [1994, 1995],"), "{}", shown(&[1000, 2]));
    let half = executor.tensor(&[2], &[0.1f32, f32::NAN]).unwrap().cast(DType::F16).unwrap();
    assert_eq!(half.to_string(), "[0.099975586,         NaN]");
}

#[test]
fn results_go_into_tensors_and_back_in_place() {
    let executor = cpu();
    let x = executor.tensor(&[2, 3], &[1f32, -2.0, 3.0, -4.0, 5.0, -6.0]).unwrap();
    let y = executor.zeros(DType::F32, &[2, 3]).unwrap();
    let values = |tensor: &Tensor| tensor.to_vec::<f32>().unwrap();
    x.softmax_into(-1, &y).unwrap();
    assert_eq!(values(&y), values(&x.softmax(-1).unwrap()));
    // A row of another tensor takes a result too, and a row changes in place.
    x.i(0).unwrap().abs_into(&y.i(1).unwrap()).unwrap();
    y.i(0).unwrap().fill_(-1.0).unwrap();
    y.i(0).unwrap().add_(&x.i(0).unwrap()).unwrap();
    assert_eq!(values(&y), [0.0, -3.0, 2.0, 1.0, 2.0, 3.0]);
    x.add_(&x).unwrap();
    assert_eq!(values(&x), [2.0, -4.0, 6.0, -8.0, 10.0, -12.0]);
    // What cannot take the result is rejected and stays as it was.
    let row = executor.tensor(&[3], &[1f32, 2.0, 3.0]).unwrap();
    assert!(row.add_(&x).unwrap_err().to_string().contains("the result is f32[2, 3]"));
    assert!(x.transpose(0, 1).unwrap().relu_().unwrap_err().to_string().contains("a view with gaps"));
    assert!(x.relu_into(&x).unwrap_err().to_string().contains("shares memory"));
    assert!(x.eq_into(&x, &y).unwrap_err().to_string().contains("the result is bool"));
    assert_eq!((values(&row), values(&x)[0]), (vec![1.0, 2.0, 3.0], 2.0));
    let adopted = executor.adopt(DType::U8, &[2], elinvar::HostMemory::new(std::sync::Arc::new(vec![1u8, 2]))).unwrap();
    assert!(adopted.add_(&adopted).unwrap_err().to_string().contains("read-only"));
    assert_eq!(adopted.to_bytes().unwrap(), [1, 2]);
}

#[test]
fn changes_in_place_are_recorded_in_order() {
    let executor = cpu();
    let x = executor.tensor(&[3], &[-1f32, 2.0, 3.0]).unwrap();
    let out = executor.zeros(DType::F32, &[3]).unwrap();
    let (recording, (before, after)) = executor
        .record(|recorded| {
            let x = x.on(recorded)?;
            let before = x.mul(&x)?;
            x.relu_()?;
            x.add_into(&before, &out)?;
            Ok((before, x.neg()?))
        })
        .unwrap();
    for input in [[-1f32, 2.0, 3.0], [4.0, -5.0, -0.5]] {
        x.write(&input).unwrap();
        executor.replay(&recording).unwrap();
        let relu = input.map(|v| v.max(0.0));
        let values = [&before, &x, &after, &out].map(|tensor| tensor.to_vec::<f32>().unwrap());
        let sum: [f32; 3] = std::array::from_fn(|i| relu[i] + input[i] * input[i]);
        assert_eq!(values, [input.map(|v| v * v), relu, relu.map(|v| -v), sum]);
    }
    // A result that is changed in place, whether or not anything looks at it afterwards.
    for is_used in [true, false] {
        let run = |recorded: &Executor| {
            let y = x.on(recorded)?.add(&x)?;
            let z = y.exp()?;
            y.cumsum_(0)?;
            if is_used { y.neg() } else { Ok(z) }
        };
        let found = executor.fuse(run).unwrap();
        assert_eq!(found.to_vec::<f32>().unwrap(), run(&executor).unwrap().to_vec::<f32>().unwrap());
    }
}

#[test]
fn the_host_changes_values_where_they_lie_or_in_a_copy() {
    for executor in [Some(cpu()), metal_sim()].into_iter().flatten() {
        let x = executor.tensor(&[2, 2], &[1f32, 2.0, 3.0, 4.0]).unwrap();
        let private = executor.empty(DType::F32, &[2, 2], elinvar::Storage::Private).unwrap();
        private.copy_from(&x).unwrap();
        for tensor in [&x, &private] {
            // What was submitted before comes before, what is submitted afterwards sees the change.
            tensor.add_(&x).unwrap();
            let sum = tensor.with_values_mut(|values: &mut [f32]| std::mem::replace(&mut values[3], 0.5) + values[0]).unwrap();
            assert_eq!((sum, tensor.neg().unwrap().i((1, 1)).unwrap().item::<f32>().unwrap()), (10.0, -0.5));
            assert_eq!(tensor.i(0).unwrap().with_values_mut(|row: &mut [f32]| row.len()).unwrap(), 2);
            tensor.copy_from(&executor.tensor(&[4], &[1f32, 2.0, 3.0, 4.0]).unwrap()).unwrap();
        }
        let rejected = |result: elinvar::Result<()>| result.unwrap_err().to_string();
        assert!(rejected(x.with_values_mut(|_: &mut [i32]| ())).contains("cannot change values of i32"));
        assert!(rejected(x.transpose(0, 1).unwrap().with_values_mut(|_: &mut [f32]| ())).contains("row-major"));
        let adopted = executor.adopt(DType::U8, &[2], elinvar::HostMemory::new(std::sync::Arc::new(vec![1u8, 2]))).unwrap();
        assert!(rejected(adopted.with_values_mut(|_: &mut [u8]| ())).contains("read-only"));
        let recorded = executor.record(|recorded| x.on(recorded)?.with_values_mut(|_: &mut [f32]| ())).map(drop);
        assert!(rejected(recorded).contains("while recording"));
    }
}

/// The simulator, on systems that have one.
fn metal_sim() -> Option<Executor> {
    cfg!(target_os = "linux").then(|| Executor::new_with_backend(elinvar::BackendType::MetalSim).unwrap())
}

#[test]
fn tensors_move_between_devices() {
    let (executor, other) = (cpu(), cpu());
    let x = executor.tensor(&[2, 2], &[1i32, 2, 3, 4]).unwrap().transpose(0, 1).unwrap();
    let y = x.to(&other).unwrap();
    assert!(y.add(&x).is_err());
    assert_eq!(y.add(&y).unwrap().to_vec::<i32>().unwrap(), [2, 6, 4, 8]);
    let same = x.to(&executor.with_precision(elinvar::Precision::Strict)).unwrap();
    x.transpose(0, 1).unwrap().neg_().unwrap();
    assert_eq!(same.to_vec::<i32>().unwrap(), [-1, -3, -2, -4], "the same memory");
}
