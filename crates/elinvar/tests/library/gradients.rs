//! Gradients on the tape: against differences, in training, recorded, and where there are none.

use std::num::NonZero;

use elinvar::{BackendType, DType, Executor, Precision, Result, SplitMix64, Tensor, grad};

fn cpu() -> Executor {
    Executor::new_with_backend(BackendType::Cpu).unwrap().with_precision(Precision::Strict)
}

fn uniform(executor: &Executor, dims: &[usize], seed: u64) -> Tensor {
    let mut random = SplitMix64::new(seed);
    let mut next = || (random.next_u64() >> 40) as f32 / (1u32 << 23) as f32 - 1.0;
    let values: Vec<f32> = (0..dims.iter().product()).map(|_| next()).collect();
    executor.tensor(dims, &values).unwrap()
}

/// Compares gradients with differences, whose error is that of f32 sums.
fn check(executor: &Executor, dims: &[usize], loss: impl Fn(&Tensor) -> Result<Tensor>) {
    let x = uniform(executor, dims, 3);
    let found = grad(&loss)(&x).unwrap();
    assert_eq!((found.dtype(), found.shape()), (x.dtype(), x.shape()));
    let (found, values) = (found.to_vec::<f32>().unwrap(), x.to_vec::<f32>().unwrap());
    let at = |values: &[f32]| f64::from(loss(&executor.tensor(dims, values).unwrap()).unwrap().item::<f32>().unwrap());
    for index in 0..values.len() {
        let moved = |step: f32| {
            let mut values = values.clone();
            values[index] += step;
            at(&values)
        };
        let expected = (moved(0.01) - moved(-0.01)) / 0.02;
        assert!((f64::from(found[index]) - expected).abs() < 2e-3 * (1.0 + expected.abs()), "element {index}: {}, {expected}", found[index]);
    }
}

#[test]
fn gradients_are_the_slopes_of_the_loss() {
    let executor = cpu();
    let other = uniform(&executor, &[3, 4], 5);
    check(&executor, &[3, 4], |x| x.mul(&other)?.add(x)?.tanh()?.sum(&[], false));
    check(&executor, &[4], |x| other.mul(x)?.sigmoid()?.mean(&[], false));
    check(&executor, &[3, 4], |x| x.matmul(&other.transpose(0, 1)?)?.sum_square(&[], false));
    check(&executor, &[3, 4], |x| x.log_softmax(-1)?.mul(&other)?.sum(&[], false));
    check(&executor, &[3, 4], |x| x.rms_norm(Some(&other.i(0)?), 1e-5)?.mul(&other)?.sum(&[], false));
    check(&executor, &[3, 4], |x| x.max(&[1], true)?.sub(x)?.exp()?.sum(&[], false));
    check(&executor, &[2, 3, 4], |x| x.linear(&other, None)?.silu()?.sum(&[], false));
}

#[test]
fn gradients_flow_through_views() {
    let executor = cpu();
    let other = uniform(&executor, &[5, 2], 5);
    check(&executor, &[2, 5], |x| x.transpose(0, 1)?.mul(&other)?.sum_square(&[], false));
    check(&executor, &[2, 5], |x| x.slice(1, 4, 3, -2)?.exp()?.sum(&[], false));
    check(&executor, &[5, 1], |x| x.broadcast_to(&[3, 5, 2])?.mul(&other)?.exp()?.sum(&[], false));
    check(&executor, &[2, 5], |x| x.reshape(&[5, 2])?.mul(&other)?.i(1..)?.exp()?.sum(&[], false));
    check(&executor, &[2, 5], |x| x.transpose(0, 1)?.reshape(&[10])?.i(3)?.exp());
    check(&executor, &[2, 5], |x| Tensor::concat(&[&x.transpose(0, 1)?, &other], 1)?.sum_square(&[], false));
    check(&executor, &[2, 5], |x| x.gather(&executor.tensor(&[3], &[1i32, 1, 0])?, 0)?.exp()?.sum(&[], false));
}

/// Two layers, taught the sum of two sines: the losses, and the weights at the end.
struct Mlp {
    x: Tensor,
    y: Tensor,
    weights: [Tensor; 4],
}

impl Mlp {
    fn new(executor: &Executor) -> Self {
        let x = uniform(executor, &[32, 2], 1);
        let y = (x.i((.., 0)).unwrap() * 3.0).unwrap().sin().unwrap().add(&x.i((.., 1)).unwrap().sin().unwrap()).unwrap().unsqueeze(1).unwrap();
        let weights =
            [(&[16, 2][..], 2), (&[16], 3), (&[1, 16], 4), (&[1], 5)].map(|(dims, seed)| uniform(executor, dims, seed).requires_grad().unwrap());
        Self { x, y, weights }
    }

    /// A step of gradient descent; gives the loss before.
    fn step(&self, executor: &Executor) -> Result<Tensor> {
        let [w1, b1, w2, b2] = &self.weights;
        let hidden = self.x.on(executor)?.linear(w1, Some(b1))?.tanh()?;
        let loss = hidden.linear(w2, Some(b2))?.sub(&self.y)?.square()?.mean(&[], false)?;
        let gradients = loss.backward()?;
        for weight in &self.weights {
            weight.detach().sub_(&(gradients.of(weight)? * 0.1)?)?;
        }
        Ok(loss.detach())
    }
}

#[test]
fn training_lowers_the_loss_to_the_same_bits_with_any_number_of_threads_and_recorded() {
    let run = |threads: usize, recorded: bool| {
        let executor = Executor::new_cpu(NonZero::new(threads).unwrap()).unwrap().with_precision(Precision::Strict);
        let mlp = Mlp::new(&executor);
        let mut losses = Vec::new();
        if recorded {
            let (step, loss) = executor.record(|recorder| mlp.step(recorder)).unwrap();
            for _ in 0..200 {
                executor.replay(&step).unwrap();
                losses.push(loss.item::<f32>().unwrap());
            }
        } else {
            losses.extend((0..200).map(|_| mlp.step(&executor).unwrap().item::<f32>().unwrap()));
        }
        let weights: Vec<_> = mlp.weights.iter().flat_map(|weight| weight.to_vec::<f32>().unwrap()).map(f32::to_bits).collect();
        (losses, weights)
    };
    let (losses, weights) = run(1, false);
    assert!(losses[199] < 0.1 * losses[0], "{} to {}", losses[0], losses[199]);
    assert_eq!(run(3, false), (losses.clone(), weights.clone()));
    assert_eq!(run(2, true), (losses, weights));
}

#[test]
fn what_a_gradient_needs_may_not_change_before_it_is_taken() {
    let executor = cpu();
    let x = executor.tensor(&[2], &[1f32, 2.0]).unwrap().requires_grad().unwrap();
    let factor = executor.tensor(&[2], &[3f32, 4.0]).unwrap();
    let loss = x.mul(&factor).unwrap().sum(&[], false).unwrap();
    factor.write(&[5f32, 6.0]).unwrap();
    let error = loss.backward().unwrap_err().to_string();
    assert_eq!(
        error,
        "the gradient of mul needs Tensor(f32[2] on cpu) as it was, and it was changed in place, or by a replay: change a copy, or change it after the backward pass"
    );
    // A sum needs nothing.
    let loss = x.add(&factor).unwrap().sum(&[], false).unwrap();
    factor.fill_(1.0).unwrap();
    assert_eq!(loss.backward().unwrap().of(&x).unwrap().to_vec::<f32>().unwrap(), [1.0, 1.0]);
}

#[test]
fn what_a_replay_overwrites_is_not_as_it_was() {
    let executor = cpu();
    let given = executor.tensor(&[2], &[1f32, 2.0]).unwrap();
    let (recording, factor) = executor.record(|recorded| given.on(recorded)?.exp()).unwrap();
    executor.replay(&recording).unwrap();
    let x = executor.tensor(&[2], &[1f32, 2.0]).unwrap().requires_grad().unwrap();
    let loss = x.mul(&factor).unwrap().sum(&[], false).unwrap();
    assert!(loss.backward().is_ok());
    given.write(&[3f32, 4.0]).unwrap();
    executor.replay(&recording).unwrap();
    assert!(loss.backward().unwrap_err().to_string().contains("changed in place, or by a replay"));
    // A tape that was recorded goes with the replay.
    let (recording, loss) = executor.record(|recorded| x.on(recorded)?.exp()?.sum(&[], false)).unwrap();
    for value in [0f32, 1.0] {
        x.write(&[value; 2]).unwrap();
        executor.replay(&recording).unwrap();
        assert_eq!(loss.backward().unwrap().of(&x).unwrap().to_vec::<f32>().unwrap(), x.detach().exp().unwrap().to_vec::<f32>().unwrap());
    }
}

#[test]
fn no_gradient_is_dropped_without_a_word() {
    let executor = cpu();
    let x = executor.tensor(&[2], &[1f32, 2.0]).unwrap();
    let error = |result: Result<elinvar::Gradients>| result.err().unwrap().to_string();
    let is_required = "backward of Tensor(f32[1] on cpu): nothing that it was computed from requires a gradient";
    assert_eq!(error(x.i(..1).unwrap().backward()), is_required);
    let x = x.requires_grad().unwrap();
    assert!(error(x.backward()).contains("which has 2 elements: one is expected"));
    assert!(x.argmax(0, false).unwrap().requires_grad().is_err());
    let in_place = "no gradient flows through a change in place";
    assert!(x.fill_(0.0).unwrap_err().to_string().contains(in_place));
    assert!(x.exp_().unwrap_err().to_string().contains(in_place));
    assert!(x.exp_into(&executor.zeros(DType::F32, &[2]).unwrap()).unwrap_err().to_string().contains(in_place));
    assert_eq!(x.to_vec::<f32>().unwrap(), [1.0, 2.0]);
    // Operators of an executor without a tape may change it.
    x.on(&executor.no_grad()).unwrap().exp_().unwrap();
    let other = executor.tensor(&[], &[1f32]).unwrap().requires_grad().unwrap();
    let gradients = other.exp().unwrap().backward().unwrap();
    let expected = "there is no gradient of Tensor(f32[2] on cpu): the result was not computed from it";
    assert_eq!(gradients.of(&x).unwrap_err().to_string(), expected);
    assert!(gradients.of(&x.detach()).unwrap_err().to_string().contains("requires_grad"));
}

#[test]
fn a_tensor_that_is_used_twice_gets_both_gradients_and_a_detached_one_none() {
    let executor = cpu();
    let x = executor.tensor(&[], &[3f32]).unwrap().requires_grad().unwrap();
    let y = x.mul(&x).unwrap().add(&x).unwrap();
    let y = y.mul(&y.detach()).unwrap();
    assert_eq!(y.backward().unwrap().of(&x).unwrap().item::<f32>().unwrap(), 12.0 * 7.0);
}

#[test]
fn long_chains_do_not_need_the_stack() {
    let executor = cpu();
    let x = executor.tensor(&[], &[1f32]).unwrap().requires_grad().unwrap();
    let mut y = x.clone();
    for _ in 0..20_000 {
        y = y.reshape(&[]).unwrap();
    }
    assert_eq!(y.backward().unwrap().of(&x).unwrap().item::<f32>().unwrap(), 1.0);
}

#[test]
fn narrow_numbers_have_gradients_of_their_type_rounded_once() {
    let executor = cpu();
    let x = uniform(&executor, &[4, 8], 1);
    let slope = grad(|x: &Tensor| x.silu()?.mul(&x.cast(x.dtype())?)?.sum(&[], false));
    let exact = slope(&x.cast(DType::BF16).unwrap().cast(DType::F32).unwrap()).unwrap().to_vec::<f32>().unwrap();
    let found = slope(&x.cast(DType::BF16).unwrap()).unwrap();
    assert_eq!(found.dtype(), DType::BF16);
    for (found, exact) in found.cast(DType::F32).unwrap().to_vec::<f32>().unwrap().iter().zip(exact) {
        assert!((found - exact).abs() <= 0.02 * exact.abs() + 1e-2, "{found}, {exact}");
    }
}

/// A caller with a tape of its own: its memory is read in any layout, and results and gradients go where it says.
#[test]
fn gradients_of_one_operator_go_to_the_caller_s_memory() {
    use std::{ptr::NonNull, sync::Arc};

    use elinvar::{HostMemory, HostMemoryMut, Layout, Operator, Shape, kernels::layer_norm::LayerNorm};

    let executor = cpu();
    let norm: Arc<dyn Operator> = Arc::new(LayerNorm { axis: -1, epsilon: 0.1, statistics: false });
    let (weight, bias, dy) = (uniform(&executor, &[3], 1), uniform(&executor, &[3], 2), uniform(&executor, &[4, 3], 3));
    // Columns of memory, whose rows are those of x.
    let held: Vec<u8> = (0..12).flat_map(|i| (i as f32 * 0.7).sin().to_ne_bytes()).collect();
    let columns = Layout::strided(Shape::new(&[4, 3]).unwrap(), &[1, 4], 0).unwrap();
    let x = executor.adopt_strided(DType::F32, &columns, HostMemory::new(Arc::new(held.clone()))).unwrap();
    let y = executor.apply(norm.clone(), &[Some(&x), Some(&weight), Some(&bias)]).unwrap();

    let leaves = [&x, &weight, &bias].map(|tensor| tensor.requires_grad().unwrap());
    let on_tape = executor.apply(norm.clone(), &[Some(&leaves[0]), Some(&leaves[1]), Some(&leaves[2])]).unwrap();
    let expected = on_tape[0].backward_from(&dy).unwrap();

    let mut vectors = [vec![0f32; 12], vec![0f32; 3], vec![0f32; 3]];
    let shapes = [&[4, 3][..], &[3], &[3]];
    let into = vectors.iter_mut().zip(shapes).map(|(values, dims)| {
        // SAFETY: the vectors outlive the tensors, and are looked at when those are gone.
        let memory = unsafe { HostMemoryMut::new(NonNull::from(&mut values[..]).cast(), 4 * values.len(), Arc::new(())) };
        executor.adopt_mut(DType::F32, &Shape::new(dims).unwrap(), memory).unwrap()
    });
    let into: Vec<_> = into.collect();
    let given = [Some(&x), Some(&weight), Some(&bias)];
    let gradient = |outputs: &[&Tensor], into: &[&Tensor]| executor.gradient(&*norm, &given, outputs, &[Some(&dy)], &[true; 3], into);
    gradient(&[&y[0]], &into.iter().collect::<Vec<_>>()).unwrap();
    for (into, leaf) in into.iter().zip(&leaves) {
        assert_eq!(into.to_vec::<f32>().unwrap(), expected.of(leaf).unwrap().to_vec::<f32>().unwrap());
    }
    let rejected = |result: Result<Vec<Tensor>>| result.unwrap_err().to_string();
    assert!(rejected(gradient(&[&weight], &[])).contains("the gradient of layer_norm"));
    assert!(rejected(gradient(&[&y[0]], &[&into[0]])).contains("those of its call are expected"));
    drop(into);
    assert_eq!(vectors[1], expected.of(&leaves[1]).unwrap().to_vec::<f32>().unwrap());

    let outside = Layout::strided(Shape::new(&[4, 3]).unwrap(), &[1, 4], 1).unwrap();
    assert!(
        executor.adopt_strided(DType::F32, &outside, HostMemory::new(Arc::new(held))).unwrap_err().to_string().contains("leave memory of 48 bytes")
    );
    // A device that reaches no host memory.
    let null = Executor::new_with_backend(BackendType::Null).unwrap();
    let mut one = 0f32;
    // SAFETY: the number outlives the call, which keeps nothing.
    let memory = unsafe { HostMemoryMut::new(NonNull::from(&mut one).cast(), 4, Arc::new(())) };
    assert!(null.adopt_mut(DType::F32, &Shape::new(&[1]).unwrap(), memory).is_err_and(|error| error.is_unsupported()));
}

#[test]
fn a_fast_adapter_of_16_bit_rows_has_the_gradients_of_a_strict_one_in_f32() {
    let gradients = |precision: Precision, dtype: DType| {
        let executor = cpu().with_precision(precision);
        let of = |dims: &[usize], seed| uniform(&executor, dims, seed).cast(DType::BF16).unwrap();
        let [x, weight] = [of(&[2, 20, 64], 1), of(&[24, 64], 2)].map(|tensor| tensor.cast(dtype).unwrap());
        let [a, b] = [of(&[4, 64], 3), of(&[24, 4], 4)].map(|tensor| tensor.cast(DType::F32).unwrap().requires_grad().unwrap());
        let (x, upstream) = (x.requires_grad().unwrap(), of(&[2, 20, 24], 5).cast(dtype).unwrap());
        let found = x.lora_linear(&weight, &a, &b, 0.5).unwrap().backward_from(&upstream).unwrap();
        [&x, &a, &b].map(|leaf| {
            let gradient = found.of(leaf).unwrap();
            assert_eq!((gradient.dtype(), gradient.shape()), (leaf.dtype(), leaf.shape()));
            gradient.cast(DType::F32).unwrap().to_vec::<f32>().unwrap()
        })
    };
    let (fast, exact) = (gradients(Precision::Fast, DType::BF16), gradients(Precision::Strict, DType::F32));
    for (fast, exact) in fast.iter().zip(&exact) {
        let norm = |values: &mut dyn Iterator<Item = f32>| values.map(|value| f64::from(value).powi(2)).sum::<f64>().sqrt();
        let (error, size) = (norm(&mut fast.iter().zip(exact).map(|(a, b)| a - b)), norm(&mut exact.iter().copied()));
        assert!(error < 6e-3 * size, "{error:e} of {size:e}");
        assert!(error > 0.0, "the same path twice");
    }
}
