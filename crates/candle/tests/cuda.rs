//! The operators on a GPU of NVIDIA's beside those on the CPU, with the same bits.

#![cfg(feature = "cuda")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a helper that fails fails its test")]

mod device;

use std::thread;

use candle_core::{DType, Device, Result, Tensor, Var};
use elinvar::{Precision, SplitMix64};
use elinvar_candle::{Ops, Scoring, cross_entropy_fused, fallbacks, rms_norm_fused};

/// The GPU, unless the tests are to run on the CPU.
fn gpu() -> Option<&'static Device> {
    let device = device::device();
    if device.is_cuda() {
        return Some(device);
    }
    eprintln!("skipped: ELINVAR_CANDLE_DEVICE=cuda asks for a GPU");
    None
}

/// Applies an operator, and differentiates the sum of its result's squares.
type Case<'a> = (&'a str, Vec<Vec<usize>>, &'a dyn Fn(&Ops, &[Tensor]) -> Result<Tensor>);

/// Bits of the result and of the gradients of all inputs.
fn bits(device: &Device, (name, shapes, apply): &Case, dtype: DType) -> Vec<Vec<u32>> {
    let ops = Ops::shared().unwrap().with_precision(Precision::Strict);
    let mut random = SplitMix64::new(name.len() as u64);
    let vars: Vec<_> = shapes
        .iter()
        .map(|dims| {
            let values: Vec<_> = (0..dims.iter().product()).map(|_| (random.next_u64() >> 40) as f32 * 2f32.powi(-23) - 1.0).collect();
            Var::from_tensor(&Tensor::from_vec(values, &dims[..], device).unwrap().to_dtype(dtype).unwrap()).unwrap()
        })
        .collect();
    let taken: Vec<_> = vars.iter().map(|var| var.as_tensor().clone()).collect();
    let y = apply(&ops, &taken).unwrap();
    // Sums of Candle's own would have the order of the device: the gradient of a sum of squares has none.
    let loss = y.to_dtype(DType::F32).unwrap().sqr().unwrap().sum_all().unwrap();
    let gradients = loss.backward().unwrap();
    let all = [y].into_iter().chain(vars.iter().map(|var| gradients.get(var).unwrap().clone()));
    all.map(|tensor| tensor.to_dtype(DType::F32).unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap().into_iter().map(f32::to_bits).collect())
        .collect()
}

fn causal() -> Scoring {
    Scoring { causal: true, ..Default::default() }
}

#[test]
fn strict_results_and_gradients_have_the_cpu_s_bits() {
    let Some(gpu) = gpu() else { return };
    let cases: Vec<Case> = vec![
        ("softmax", vec![vec![37, 130]], &|ops, x| ops.softmax(&x[0], 1)),
        ("softmax of columns", vec![vec![37, 130]], &|ops, x| ops.softmax(&x[0], 0)),
        ("log-softmax", vec![vec![5, 1030]], &|ops, x| ops.log_softmax(&x[0], 1)),
        ("rms_norm", vec![vec![9, 256], vec![256]], &|ops, x| ops.rms_norm(&x[0], &x[1], 1e-5)),
        ("layer_norm", vec![vec![9, 200], vec![200], vec![200]], &|ops, x| ops.layer_norm(&x[0], &x[1], Some(&x[2]), 1e-5)),
        ("silu_mul", vec![vec![31, 77], vec![31, 77]], &|ops, x| ops.silu_mul(&x[0], &x[1])),
        ("lora", vec![vec![13, 96], vec![64, 96], vec![8, 96], vec![64, 8]], &|ops, x| ops.lora_forward(&x[0], &x[1], &x[2], &x[3], None, 0.5)),
        ("attention", vec![vec![2, 4, 33, 64], vec![2, 2, 33, 64], vec![2, 2, 33, 64]], &|ops, x| {
            ops.attention(&x[0], &x[1], &x[2], None, &causal())
        }),
        ("attention of exchanged axes", vec![vec![2, 17, 4, 32], vec![2, 17, 4, 32]], &|ops, x| {
            let (q, k) = (x[0].transpose(1, 2)?, x[1].transpose(1, 2)?);
            ops.attention(&q, &k, &k, None, &causal())
        }),
    ];
    for case in &cases {
        for dtype in [DType::F32, DType::BF16, DType::F16] {
            assert!(bits(gpu, case, dtype) == bits(&Device::Cpu, case, dtype), "{} {dtype:?}", case.0);
        }
    }
    assert_eq!(fallbacks(), 0);
}

#[test]
fn a_class_that_there_is_not_is_rejected() {
    let Some(gpu) = gpu() else { return };
    let logits = Tensor::zeros((2, 4), DType::F32, gpu).unwrap();
    let error = cross_entropy_fused(&logits, &Tensor::new(&[0u32, 9], gpu).unwrap()).unwrap_err().to_string();
    assert!(error.contains("cross_entropy") && error.contains("outside its axis"), "{error}");
    assert!(cross_entropy_fused(&logits, &Tensor::new(&[0u32, 3], gpu).unwrap()).is_ok());
}

/// Candle's stream is another one in each thread, and results go from one to the other.
#[test]
fn threads_have_streams_of_their_own() {
    let Some(gpu) = gpu() else { return };
    let weight = Tensor::ones(512, DType::F32, gpu).unwrap();
    let mut x = Tensor::ones((256, 512), DType::F32, gpu).unwrap();
    for round in 0..20 {
        x = thread::scope(|scope| {
            let made = scope.spawn(|| rms_norm_fused(&(&x * 2.0).unwrap(), &weight, 0.0).unwrap()).join().unwrap();
            (rms_norm_fused(&made, &weight, 0.0).unwrap() * f64::from(round + 1)).unwrap()
        });
        let values = x.flatten_all().unwrap().to_vec1::<f32>().unwrap();
        assert!(values.iter().all(|value| (value - (round + 1) as f32).abs() < 1e-4), "round {round}");
    }
}

/// Memory of results is Candle's, and goes back to it.
#[test]
fn calls_leave_memory_as_it_was() {
    let Some(gpu) = gpu() else { return };
    let x = Var::from_tensor(&Tensor::ones((64, 4096), DType::BF16, gpu).unwrap()).unwrap();
    let weight = Tensor::ones(4096, DType::BF16, gpu).unwrap();
    let free = || {
        gpu.synchronize().unwrap();
        candle_core::cuda_backend::cudarc::driver::result::mem_get_info().unwrap().0
    };
    let step = || {
        let loss = rms_norm_fused(&x, &weight, 1e-5).unwrap().to_dtype(DType::F32).unwrap().sum_all().unwrap();
        loss.backward().unwrap().get(&x).unwrap().clone()
    };
    (0..50).for_each(|_| drop(step()));
    let before = free();
    (0..500).for_each(|_| drop(step()));
    let after = free();
    assert!(before.abs_diff(after) <= 64 << 20, "{before} bytes were free, then {after}");
}
