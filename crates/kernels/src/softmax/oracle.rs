//! The naive reference, in f64.

use super::Softmax;
use crate::conformance::case::{Bound, Case, HostTensor, for_rows};
use elinvar_core::DType;

pub(crate) fn softmax(x: &[f64], log: bool) -> Vec<f64> {
    let max = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = x.iter().map(|x| (x - max).exp()).sum();
    x.iter().map(|x| if log { (x - max) - sum.ln() } else { (x - max).exp() / sum }).collect()
}

pub(crate) fn cases() -> Vec<Case> {
    let along_rows = |x: HostTensor, log: bool| {
        let n = x.dims()[1];
        // x − m rounds once: 20 · 2^-24 relative in exp; the rest is the sum and three functions.
        let bound = Bound::relative(2e-6).with_absolute(if log { 4e-6 } else { 1e-30 });
        Case::new(Softmax { axis: -1, log }, [Some(x)], bound, move |inputs| {
            vec![inputs[0].chunks(n.max(1)).flat_map(|row| softmax(row, log)).collect()]
        })
    };
    let mut cases = for_rows(|dtype, n| [false, true].map(|log| along_rows(HostTensor::random(dtype, &[3, n], -10.0, 10.0, n as u64), log)));
    let (inf, nan) = (f64::INFINITY, f64::NAN);
    let special = [1.0, nan, 2.0, -inf, -inf, -inf, inf, 0.0, 1.0, -inf, 1.0, 0.0];
    for log in [false, true] {
        // Longer than a threadgroup keeps, many short ones, and what is not finite.
        let mut long = HostTensor::random(DType::BF16, &[1, 33_001], -10.0, 10.0, 3).to_f64();
        long[33_000] = 11.0;
        for dtype in [DType::F32, DType::BF16] {
            cases.push(along_rows(HostTensor::from_f64(dtype, &[1, 33_001], &long), log));
        }
        cases.push(along_rows(HostTensor::random(DType::F16, &[300, 70], -10.0, 10.0, 4), log));
        cases.push(along_rows(HostTensor::from_f64(DType::F32, &[4, 3], &special), log));
    }
    let strided = HostTensor::random(DType::F32, &[2, 33, 5], -50.0, 50.0, 7);
    cases.push(Case::new(Softmax { axis: 1, log: false }, [Some(strided)], Bound::relative(8e-6).with_absolute(1e-30), |inputs| {
        let mut out = vec![0.0; inputs[0].len()];
        for (o, i) in (0..2).flat_map(|o| (0..5).map(move |i| (o, i))) {
            let at = |k: usize| (o * 33 + k) * 5 + i;
            let row: Vec<f64> = (0..33).map(|k| inputs[0][at(k)]).collect();
            softmax(&row, false).into_iter().enumerate().for_each(|(k, y)| out[at(k)] = y);
        }
        vec![out]
    }));
    cases
}
