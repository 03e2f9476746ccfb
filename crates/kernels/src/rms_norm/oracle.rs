//! The naive reference, in f64.

use elinvar_core::DType;

use super::{AddRmsNorm, RmsNorm};
use crate::conformance::case::{Bound, Case, HostTensor, KEPT, for_rows};

/// Normalises rows of `n` elements; an empty `weight` counts as ones.
pub(crate) fn rms_norm(x: &[f64], weight: &[f64], n: usize, epsilon: f64) -> Vec<f64> {
    let row = |x: &[f64]| {
        let scale = 1.0 / (x.iter().map(|x| x * x).sum::<f64>() / n as f64 + epsilon).sqrt();
        x.iter().enumerate().map(|(k, x)| x * scale * weight.get(k).unwrap_or(&1.0)).collect::<Vec<_>>()
    };
    x.chunks(n.max(1)).flat_map(row).collect()
}

const BOUND: Bound = Bound::relative(2e-6);

pub(crate) fn cases() -> Vec<Case> {
    let epsilon = 1e-5f32;
    let mut cases = for_rows(|dtype, n| {
        let x = HostTensor::random(dtype, &[3, n], -4.0, 4.0, n as u64);
        let weight = (n % 3 > 0).then(|| HostTensor::random(dtype, &[n], -2.0, 2.0, 1));
        [Case::new(RmsNorm { epsilon, ..RmsNorm::default() }, [Some(x), weight], BOUND, move |i| vec![rms_norm(&i[0], &i[1], n, epsilon.into())])]
    });
    // Longer than a threadgroup keeps, and many short ones.
    for (dtype, dims) in [(DType::F32, [1, 33_001]), (DType::F16, [300, 70])] {
        let (x, weight) = (HostTensor::random(dtype, &dims, -4.0, 4.0, 7), HostTensor::random(DType::BF16, &dims[1..], -2.0, 2.0, 8));
        let operator = RmsNorm { epsilon, ..RmsNorm::default() };
        cases.push(Case::new(operator, [Some(x), Some(weight)], BOUND, move |i| vec![rms_norm(&i[0], &i[1], dims[1], epsilon.into())]));
    }
    // Results of another type.
    for (number, output) in DType::FLOATS.iter().enumerate() {
        for n in [70, 4096] {
            let dtype = DType::FLOATS[(number + 1) % 3];
            let (x, weight) = (HostTensor::random(dtype, &[3, n], -4.0, 4.0, 7), HostTensor::random(DType::BF16, &[n], -2.0, 2.0, 8));
            let operator = RmsNorm { epsilon, output: Some(*output), ..RmsNorm::default() };
            cases.push(Case::new(operator, [Some(x), Some(weight)], BOUND, move |i| vec![rms_norm(&i[0], &i[1], n, epsilon.into())]));
        }
    }
    for weight in DType::FLOATS {
        let x = HostTensor::random(DType::F32, &[2, 70, 5, 100], -3.0, 3.0, 5);
        let weight = HostTensor::random(*weight, &[5, 100], -1.0, 1.0, 6);
        let operator = RmsNorm { axis: 2, epsilon: 0.5, output: None };
        cases.push(Case::new(operator, [Some(x), Some(weight)], BOUND, |i| vec![rms_norm(&i[0], &i[1], 500, 0.5)]));
    }
    let sums = [(DType::F32, 33, 40), (DType::F16, 33, 1000), (DType::BF16, 33, 2049), (DType::BF16, 2, 33_001)];
    for (dtype, rows, n) in sums.into_iter().chain(KEPT.map(|(dtype, n)| (dtype, 3, n))) {
        let [a, b] = [1, 2].map(|seed| HostTensor::random(dtype, &[rows, n], -4.0, 4.0, seed));
        let weight = HostTensor::random(DType::F32, &[n], -2.0, 2.0, 3);
        // The sum is rounded before it is normalised: half a unit in its last place goes through.
        let unit = if dtype == DType::F32 {
            1.2e-7
        } else if dtype == DType::F16 {
            5e-4
        } else {
            4e-3
        };
        let bound = Bound::relative(2e-6 + unit).with_absolute(1e-30);
        cases.push(Case::new(AddRmsNorm { axis: -1, epsilon }, [Some(a), Some(b), Some(weight)], bound, move |i| {
            let sum: Vec<f64> = i[0].iter().zip(&i[1]).map(|(a, b)| a + b).collect();
            let y = rms_norm(&sum, &i[2], n, epsilon.into());
            vec![sum, y]
        }));
    }
    cases
}
