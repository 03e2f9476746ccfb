//! Softmax and normalisations of rows.

use candle_core::{DType as CandleType, Device, Tensor as CandleTensor};
use elinvar::{DType, Executor, kernels::registry};
use half::bf16;

use crate::harness::{Result, Side, compare, verify};

const OPERATORS: [&str; 3] = ["softmax", "rms_norm", "layer_norm"];

/// Each operator over the rows of `[1024, 1024]` and `[4096, 4096]`.
pub fn rows(executor: &Executor, rounds: usize, wanted: impl Fn(&str) -> bool) -> Result<()> {
    for name in OPERATORS {
        for dtype in [DType::F32, DType::BF16] {
            for n in [1024, 4096] {
                let title = format!("{name} {dtype} [{n}, {n}]");
                if wanted(&title) {
                    line(executor, rounds, &title, name, dtype, n)?;
                }
            }
        }
    }
    Ok(())
}

fn line(executor: &Executor, rounds: usize, title: &str, name: &str, dtype: DType, n: usize) -> Result<()> {
    let values: Vec<f32> = (0..n * n).map(|i| (i * 7919 % 10_007) as f32 / 2500.0 - 2.0).collect();
    let scales: Vec<f32> = (0..n).map(|i| 0.5 + (i % 97) as f32 / 97.0).collect();
    let own = |values: &[f32], dims: &[usize]| match dtype {
        DType::BF16 => executor.tensor(dims, &values.iter().map(|&v| bf16::from_f32(v)).collect::<Vec<_>>()),
        _ => executor.tensor(dims, values),
    };
    let candle = if dtype == DType::BF16 { CandleType::BF16 } else { CandleType::F32 };
    let other = |values: &[f32], dims: &[usize]| CandleTensor::from_slice(values, dims, &Device::Cpu)?.to_dtype(candle);
    let (x, weight, bias) = (own(&values, &[n, n])?, own(&scales, &[n])?, own(&vec![0.0; n], &[n])?);
    let (theirs, their_weight, their_bias) = (other(&values, &[n, n])?, other(&scales, &[n])?, other(&vec![0.0; n], &[n])?);
    let operator = registry::find(name)?.operator::<&str, &str>([])?;
    let inputs = [Some(&x), Some(&weight), Some(&bias)];
    let inputs = &inputs[..registry::find(name)?.inputs.len()];
    let (recording, outputs) = executor.record(|| executor.apply(&*operator, inputs))?;
    let run = || match name {
        "softmax" => candle_nn::ops::softmax_last_dim(&theirs),
        "rms_norm" => candle_nn::ops::rms_norm(&theirs, &their_weight, 1e-5),
        _ => candle_nn::ops::layer_norm(&theirs, &their_weight, &their_bias, 1e-5),
    };
    executor.replay(&recording)?.wait()?;
    let ours: Vec<f32> = match dtype {
        DType::BF16 => outputs[0].to_vec::<bf16>()?.into_iter().map(bf16::to_f32).collect(),
        _ => outputs[0].to_vec()?,
    };
    verify(title, &ours, &run()?.to_dtype(CandleType::F32)?.flatten_all()?.to_vec1()?, 1e-2)?;
    // What is read and written once.
    let bytes = 2.0 * (n * n * dtype.size()) as f64;
    let sides = vec![Side::new("elinvar", bytes, || Ok(executor.replay(&recording)?.wait()?)), Side::new("candle", bytes, || Ok(drop(run()?)))];
    compare(title, "GB/s", rounds, sides)
}
