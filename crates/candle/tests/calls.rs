//! What the operators reject, what they cost, and calls from several threads.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a helper that fails fails its test")]

use std::thread;

use candle_core::{D, DType, Device, Result, Tensor, Var};
use elinvar::{BackendType, Executor, Precision};
use elinvar_candle::{FusedOps, Ops, Scoring, cross_entropy_fused, fallbacks, rms_norm_fused, softmax_fused};

const CPU: Device = Device::Cpu;

fn ones(dims: &[usize]) -> Tensor {
    Tensor::ones(dims, DType::F32, &CPU).unwrap()
}

#[test]
fn errors_are_one_line_that_names_operator_and_operands() {
    let x = ones(&[2, 4]);
    let scoring = Scoring::default();
    let half = x.to_dtype(DType::F16).unwrap();
    let classes = Tensor::new(&[0u32, 9], &CPU).unwrap();
    let var = Var::from_tensor(&ones(&[1, 1])).unwrap();
    let q = ones(&[1, 3, 2, 4]);
    let trained = |dims: &[usize], dtype| Var::from_tensor(&ones(dims).to_dtype(dtype).unwrap()).unwrap();
    let layer = [trained(&[2, 4], DType::F32), trained(&[3, 4], DType::F32), trained(&[1, 4], DType::F64), trained(&[3, 1], DType::F32)];
    let cases: Vec<(Result<Tensor>, &[&str])> = vec![
        (x.softmax_fused(2), &["softmax", "out of range"]),
        (x.rms_norm_fused(&ones(&[5]), 1e-5), &["rms_norm", "weight has shape [5], x has shape [2, 4]", "expected [4]"]),
        (x.layer_norm_fused(&ones(&[4]), Some(&ones(&[3])), 1e-5), &["layer_norm", "bias has shape [3]"]),
        (x.silu_mul_fused(&half), &["swiglu", "f16"]),
        (x.silu_mul_fused(&ones(&[2, 5])), &["swiglu", "[2, 5]"]),
        (x.to_dtype(DType::F64).unwrap().softmax_fused(0), &["softmax", "f64"]),
        (x.to_dtype(DType::U32).unwrap().softmax_fused(0), &["softmax", "u32"]),
        (x.rope_fused(&x, &x), &["rope", "[batch, heads, tokens, width]"]),
        (q.rope_fused(&ones(&[1, 2]), &ones(&[1, 2])), &["rope", "[1, 2]", "2 tokens"]),
        (q.rope_fused(&ones(&[2, 3]), &ones(&[2, 3])), &["rotary_embedding", "[2, 3]"]),
        (q.attention_fused(&ones(&[1, 2, 2, 4]), &ones(&[1, 2, 2, 4]), None, &scoring), &["attention", "multiple"]),
        (q.attention_fused(&q, &q, Some(&var), &scoring), &["attention", "mask", "detach"]),
        (x.lora_forward_fused(&ones(&[3, 5]), &ones(&[1, 4]), &ones(&[3, 1]), None, 1.0), &["lora_linear", "[3, 5]", "[3, 4]"]),
        (layer[0].lora_forward_fused(&layer[1], &layer[2], &layer[3], None, 1.0), &["F64", "cast"]),
        (x.cross_entropy_fused(&ones(&[2])), &["cross_entropy", "targets"]),
        (x.cross_entropy_fused(&classes), &["cross_entropy", "9"]),
    ];
    for (result, words) in cases {
        let error = result.expect_err(words[0]).to_string();
        // Candle adds a backtrace where the environment asks for one.
        let error = error.lines().next().unwrap();
        assert!(words.iter().all(|word| error.contains(word)), "{error:?} should have {words:?}");
    }
    // A class that was rejected is not reported by the next call.
    assert!(cross_entropy_fused(&x, &Tensor::new(&[0u32, 1], &CPU).unwrap()).is_ok());
}

#[test]
fn a_gradient_that_there_is_not_is_an_error() {
    let (x, table) = (ones(&[1, 1, 2, 4]), Var::from_tensor(&ones(&[2, 2])).unwrap());
    let error = x.rope_fused(&table, &ones(&[2, 2])).unwrap_err().to_string();
    assert!(error.contains("require a gradient"), "{error}");
    // What no gradient flows to leaves no tape behind.
    assert!(!x.softmax_fused(3).unwrap().track_op());
}

#[test]
fn empty_tensors_give_empty_ones() {
    for dims in [[0, 4], [3, 0]] {
        let x = Var::from_tensor(&ones(&dims)).unwrap();
        let y = softmax_fused(&x, D::Minus1).unwrap();
        assert_eq!(y.dims(), dims);
        assert_eq!(y.sum_all().unwrap().backward().unwrap().get(&x).unwrap().dims(), dims);
    }
}

/// Inputs are read and results written where Candle has them: the executor allocates nothing.
#[test]
fn nothing_is_copied() {
    let executor = Executor::new_with_backend(BackendType::Cpu).unwrap();
    let ops = Ops::with_executor(executor.clone()).unwrap();
    let x = ones(&[300, 200]).narrow(0, 7, 200).unwrap();
    ops.rms_norm(&x, &ones(&[200]), 1e-5).unwrap();
    ops.softmax(&x, 1).unwrap();
    let q = ones(&[1, 4, 20, 8]).transpose(1, 2).unwrap();
    ops.attention(&q, &q, &q, None, &Scoring::default()).unwrap();
    let (var, other) = (Var::from_tensor(&x.contiguous().unwrap()).unwrap(), ones(&[200, 200]));
    let loss = (ops.softmax(&var, 1).unwrap() * &other).unwrap().sum_all().unwrap();
    assert!(loss.backward().unwrap().get(&var).is_some());
    assert_eq!(executor.pool().statistics().peak_bytes, 0);
    // What an operator does not take with strides is made row-major by a step of the executor's.
    ops.rms_norm(&ones(&[200, 300]).t().unwrap(), &ones(&[200]), 1e-5).unwrap();
    assert!(executor.pool().statistics().peak_bytes >= 4 * 200 * 300);
    assert_eq!(fallbacks(), 0);
}

/// Strict results do not depend on the number of threads.
#[test]
fn strict_results_have_the_same_bits() {
    let bits = |threads: usize| {
        let ops = Ops::with_executor(Executor::new_cpu(threads.try_into().unwrap()).unwrap()).unwrap().with_precision(Precision::Strict);
        let of = |dims: &[usize], step: f32| {
            let count = dims.iter().product::<usize>();
            Var::from_vec((0..count).map(|i| (i as f32 * step).sin()).collect(), dims, &CPU).unwrap()
        };
        let (x, weight, a, b) = (of(&[9, 33], 0.7), of(&[21, 33], 0.3), of(&[4, 33], 1.1), of(&[21, 4], 0.9));
        let y = ops.lora_forward(&x, &weight, &a, &b, None, 0.5).unwrap();
        let gradients = y.sqr().unwrap().sum_all().unwrap().backward().unwrap();
        let mut found = vec![y];
        found.extend([&x, &weight, &a, &b].map(|var| gradients.get(var).unwrap().clone()));
        found.iter().flat_map(|t| t.flatten_all().unwrap().to_vec1::<f32>().unwrap()).map(f32::to_bits).collect::<Vec<_>>()
    };
    assert_eq!(bits(1), bits(3));
}

#[test]
fn calls_from_several_threads_share_an_executor() {
    let weight = Var::from_tensor(&ones(&[64])).unwrap();
    thread::scope(|scope| {
        for thread in 0..4 {
            let weight = &weight;
            scope.spawn(move || {
                for step in 1..20 {
                    let x = (ones(&[step, 64]) * f64::from(thread + 1)).unwrap();
                    let loss = rms_norm_fused(&x, weight, 0.0).unwrap().sum_all().unwrap();
                    let gradient = loss.backward().unwrap().get(weight).unwrap().to_vec1::<f32>().unwrap();
                    assert!(gradient.iter().all(|g| (g - step as f32).abs() < 1e-3));
                    // What one thread's call rejects is reported to that thread.
                    assert!(cross_entropy_fused(&x, &Tensor::full(64u32, step, &CPU).unwrap()).is_err());
                }
            });
        }
    });
}
