//! Softmax and normalisations of rows.

use candle_core::{DType as CandleType, Device, Tensor as CandleTensor};
use elinvar::{DType, Tensor, kernels::registry};
use half::bf16;

use crate::harness::{Bench, Result, Side, deviation};

const OPERATORS: [&str; 3] = ["softmax", "rms_norm", "layer_norm"];

const EPSILON: f64 = 1e-5;

/// Bytes of inputs that each side rotates through.
const INPUTS: usize = 1 << 29;

/// Rows that are compared with f64.
const CHECKED: usize = 64;

/// Each operator over the rows of `[1024, 1024]` and `[4096, 4096]`.
pub fn rows(bench: &Bench) -> Result<()> {
    for name in OPERATORS {
        for dtype in [DType::F32, DType::BF16] {
            for n in [1024, 4096] {
                let title = format!("{name} {dtype} [{n}, {n}]");
                if bench.wants(&title) {
                    line(bench, &title, name, dtype, n)?;
                }
            }
        }
    }
    Ok(())
}

fn line(bench: &Bench, title: &str, name: &str, dtype: DType, n: usize) -> Result<()> {
    let executor = &bench.executor;
    let rounded = |v: f32| if dtype == DType::BF16 { bf16::from_f32(v).to_f32() } else { v };
    let values: Vec<f32> = (0..n * n).map(|i| rounded((i * 7919 % 10_007) as f32 / 2500.0 - 2.0)).collect();
    let scales: Vec<f32> = (0..n).map(|i| rounded(0.5 + (i % 97) as f32 / 97.0)).collect();
    let own = |values: &[f32], dims: &[usize]| executor.tensor(dims, values)?.cast(dtype);
    let candle = if dtype == DType::BF16 { CandleType::BF16 } else { CandleType::F32 };
    let other = |values: &[f32], dims: &[usize]| CandleTensor::from_slice(values, dims, &Device::Cpu)?.to_dtype(candle);
    let sets = INPUTS / (n * n * dtype.size());

    let (weight, bias) = (own(&scales, &[n])?, own(&vec![0.0; n], &[n])?);
    let inputs = (0..sets).map(|_| own(&values, &[n, n])).collect::<elinvar::Result<Vec<_>>>()?;
    let description = registry::find(name)?;
    let operator = description.operator::<&str, &str>([])?;
    let apply = |x: &Tensor| executor.apply(&*operator, &[Some(x), Some(&weight), Some(&bias)][..description.inputs.len()]);
    let (recording, outputs) = executor.record(|| inputs.iter().map(apply).collect::<elinvar::Result<Vec<_>>>())?;

    let (their_weight, their_bias) = (other(&scales, &[n])?, other(&vec![0.0; n], &[n])?);
    let theirs = (0..sets).map(|_| other(&values, &[n, n])).collect::<candle_core::Result<Vec<_>>>()?;
    let run = |x: &CandleTensor| match name {
        "softmax" => candle_nn::ops::softmax_last_dim(x),
        "rms_norm" => candle_nn::ops::rms_norm(x, &their_weight, EPSILON as f32),
        _ => candle_nn::ops::layer_norm(x, &their_weight, &their_bias, EPSILON as f32),
    };

    executor.replay(&recording)?.wait()?;
    let found = outputs[0][0].slice(0, 0, CHECKED, 1)?.cast(DType::F32)?.to_vec()?;
    let their = run(&theirs[0])?.narrow(0, 0, CHECKED)?.to_dtype(CandleType::F32)?.flatten_all()?.to_vec1()?;
    check(title, dtype, &found, &their, &reference(name, &values[..CHECKED * n], &scales))?;

    // What is read and written once.
    let bytes = 2.0 * (sets * n * n * dtype.size()) as f64;
    let sides = vec![
        Side::new("elinvar", bytes, || Ok(executor.replay(&recording)?.wait()?)),
        Side::new("candle", bytes, || theirs.iter().try_for_each(|x| Ok(drop(run(x)?)))),
        bench.read(INPUTS)?,
    ];
    bench.compare(title, "GB/s", sides)
}

/// Compares both sides with f64. Ours has to be within its bound; theirs is timed in any case, with a word if it is not.
fn check(title: &str, dtype: DType, ours: &[f32], theirs: &[f32], reference: &[f64]) -> Result<()> {
    // Of the largest element: sums of thousands of f32, and one rounding (ours) or one after each of a few operations (theirs) to bf16.
    let (bound, their_bound) = if dtype == DType::BF16 { (0.004, 0.016) } else { (5e-6, 5e-5) };
    let [own, other] = [ours, theirs].map(|found| deviation(found, reference.iter().copied()));
    if own > bound {
        return Err(format!("{title}: Elinvar is off by {own:.1e} of the largest element, {bound:.1e} allowed").into());
    }
    if other > their_bound {
        println!(
            "{title}: candle is off by {other:.1e} of the largest element ({their_bound:.1e} would be fine, Elinvar: {own:.1e}); timed all the same"
        );
    }
    Ok(())
}

fn reference(name: &str, values: &[f32], scales: &[f32]) -> Vec<f64> {
    let n = scales.len();
    let mean = |row: &[f64]| row.iter().sum::<f64>() / n as f64;
    let row = |row: &[f32]| -> Vec<f64> {
        let row: Vec<f64> = row.iter().map(|&v| f64::from(v)).collect();
        if name == "softmax" {
            let largest = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let powers: Vec<f64> = row.iter().map(|v| (v - largest).exp()).collect();
            let sum: f64 = powers.iter().sum();
            return powers.into_iter().map(|v| v / sum).collect();
        }
        let centre = if name == "layer_norm" { mean(&row) } else { 0.0 };
        let squares: Vec<f64> = row.iter().map(|v| (v - centre).powi(2)).collect();
        let scale = 1.0 / (mean(&squares) + EPSILON).sqrt();
        row.iter().zip(scales).map(|(v, w)| (v - centre) * scale * f64::from(*w)).collect()
    };
    values.chunks_exact(n).flat_map(row).collect()
}
