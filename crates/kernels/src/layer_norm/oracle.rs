//! The naive reference, in f64.

use elinvar_core::DType;

use super::LayerNorm;
use crate::conformance::case::{Bound, Case, HostTensor, for_rows};

/// Rows of `n` elements; an empty weight counts as ones, an empty bias as zeros. Gives `[y, means, inverse deviations]`.
pub(crate) fn layer_norm(x: &[f64], weight: &[f64], bias: &[f64], n: usize, epsilon: f64) -> [Vec<f64>; 3] {
    let mut out = [vec![], vec![], vec![]];
    for row in x.chunks(n.max(1)) {
        let mean = row.iter().sum::<f64>() / n as f64;
        let scale = 1.0 / (row.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / n as f64 + epsilon).sqrt();
        let value = |(k, x): (usize, &f64)| (x - mean) * scale * weight.get(k).unwrap_or(&1.0) + bias.get(k).unwrap_or(&0.0);
        out[0].extend(row.iter().enumerate().map(value));
        out[1].push(mean);
        out[2].push(scale);
    }
    out
}

pub(crate) fn cases() -> Vec<Case> {
    let epsilon = 1e-5f32;
    let bound = Bound::relative(4e-6).with_absolute(2e-5);
    let mut cases = for_rows(|dtype, n| {
        let x = HostTensor::random(dtype, &[3, n], -3.0, 5.0, n as u64);
        let vector = |wanted: bool, seed| wanted.then(|| HostTensor::random(dtype, &[n], -2.0, 2.0, seed));
        let inputs = [Some(x), vector(n % 3 > 0, 1), vector(n % 5 > 0, 2)];
        // A row of one element has no variance: its scale is 1 / sqrt(epsilon).
        let operator = LayerNorm { axis: -1, epsilon: if n == 1 { 0.5 } else { epsilon }, statistics: false };
        [Case::new(operator, inputs, bound, move |i| {
            let [y, ..] = layer_norm(&i[0], &i[1], &i[2], n, operator.epsilon.into());
            vec![y]
        })]
    });
    // Longer than a threadgroup keeps; many short ones; fewer than a simdgroup has room for; more than there are threadgroups at once.
    for (dtype, dims) in [(DType::F32, [1, 33_001]), (DType::F16, [300, 70]), (DType::F16, [3, 32]), (DType::BF16, [1100, 1032])] {
        let x = HostTensor::random(dtype, &dims, -3.0, 5.0, 8);
        let [w, b] = [9, 10].map(|seed| HostTensor::random(DType::F32, &dims[1..], -1.0, 1.0, seed));
        let operator = LayerNorm { axis: -1, epsilon, statistics: true };
        let inputs = [Some(x), Some(w), Some(b)];
        cases.push(Case::new(operator, inputs, bound, move |i| layer_norm(&i[0], &i[1], &i[2], dims[1], epsilon.into()).into()));
    }
    for weight in DType::FLOATS {
        let x = HostTensor::random(DType::BF16, &[3, 41, 5, 100], -3.0, 5.0, 5);
        let [w, b] = [6, 7].map(|seed| HostTensor::random(*weight, &[5, 100], -1.0, 1.0, seed));
        let operator = LayerNorm { axis: 2, epsilon, statistics: true };
        cases.push(Case::new(operator, [Some(x), Some(w), Some(b)], bound, move |i| layer_norm(&i[0], &i[1], &i[2], 500, epsilon.into()).into()));
    }
    let empty = HostTensor::random(DType::F32, &[2, 0], 0.0, 1.0, 1);
    cases.push(Case::new(LayerNorm { axis: 1, epsilon, statistics: true }, [Some(empty), None, None], bound, |_| {
        vec![vec![], vec![f64::NAN; 2], vec![f64::NAN; 2]]
    }));
    cases
}
