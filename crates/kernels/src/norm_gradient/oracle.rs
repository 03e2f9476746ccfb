//! The naive reference, in f64.

use elinvar_core::DType;

use super::NormGradient;
use crate::conformance::case::{Bound, Case, HostTensor, for_rows};

/// `dx`, the inverse deviations and the means, of rows of `n` elements; an empty weight counts as ones.
pub(crate) fn gradient(x: &[f64], weight: &[f64], dy: &[f64], n: usize, epsilon: f64, centred: bool) -> [Vec<f64>; 3] {
    let mut out = [vec![], vec![], vec![]];
    for (x, dy) in x.chunks(n.max(1)).zip(dy.chunks(n.max(1))) {
        let average = |values: &mut dyn Iterator<Item = f64>| values.sum::<f64>() / n as f64;
        let mean = if centred { average(&mut x.iter().copied()) } else { 0.0 };
        let scale = 1.0 / (average(&mut x.iter().map(|x| (x - mean) * (x - mean))) + epsilon).sqrt();
        let h: Vec<f64> = dy.iter().enumerate().map(|(k, dy)| dy * weight.get(k).unwrap_or(&1.0)).collect();
        let shift = if centred { average(&mut h.iter().copied()) } else { 0.0 };
        let slope = average(&mut x.iter().zip(&h).map(|(x, h)| (x - mean) * scale * h));
        out[0].extend(x.iter().zip(&h).map(|(x, h)| (h - shift - (x - mean) * scale * slope) * scale));
        out[1].push(scale);
        out[2].push(mean);
    }
    out
}

fn case(operator: NormGradient, [x_type, weight]: [DType; 2], dims: &[usize], from: usize, [weighted, added]: [bool; 2]) -> Case {
    let n: usize = dims[from..].iter().product();
    let x = HostTensor::random(x_type, dims, -3.0, 5.0, n as u64);
    let weight = weighted.then(|| HostTensor::random(weight, &dims[from..], -2.0, 2.0, 1));
    let dy = HostTensor::random(x_type, dims, -1.0, 1.0, 2);
    let addend = added.then(|| HostTensor::random(x_type, dims, -1.0, 1.0, 3));
    // The gradient is rounded before the addend comes.
    let rounding = match (added, x_type) {
        (false, _) | (true, DType::F32) => 0.0,
        (true, DType::F16) => 2f64.powi(-11),
        (true, _) => 2f64.powi(-8),
    };
    let bound = Bound::relative(4e-6).with_absolute(2e-5 + 4.0 * rounding);
    Case::new(operator, [Some(x), weight, Some(dy), addend], bound, move |i| {
        let mut all = gradient(&i[0], &i[1], &i[2], n, operator.epsilon.into(), operator.centred);
        all[0].iter_mut().zip(&i[3]).for_each(|(dx, addend)| *dx += addend);
        all[..if operator.centred { 3 } else { 2 }].to_vec()
    })
}

pub(crate) fn cases() -> Vec<Case> {
    let operator = |centred: bool| NormGradient { axis: -1, epsilon: 0.01, centred };
    let mut cases = for_rows(|dtype, n| {
        [false, true].map(|centred| case(operator(centred), [dtype; 2], &[if n == 0 { 0 } else { 3 }, n], 1, [n % 3 > 0, n % 4 == 0]))
    });
    for centred in [false, true] {
        for weight in DType::FLOATS {
            cases.push(case(NormGradient { axis: 2, ..operator(centred) }, [DType::F32, *weight], &[2, 7, 5, 100], 2, [true; 2]));
        }
        cases.push(case(operator(centred), [DType::BF16, DType::F32], &[1, 33_001], 1, [true; 2]));
        cases.push(case(operator(centred), [DType::F16; 2], &[300, 70], 1, [true, false]));
    }
    cases
}
