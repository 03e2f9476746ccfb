//! The naive reference, in f64.

use elinvar_core::DType;

use super::NormGradient;
use crate::conformance::case::{Bound, Case, HostTensor, for_rows};

/// The outputs, for an `x` of these extents; an empty weight counts as ones.
pub(crate) fn gradient(operator: &NormGradient, dims: &[usize], x: &[f64], weight: &[f64], dy: &[f64]) -> Vec<Vec<f64>> {
    let from = if operator.axis < 0 { dims.len().wrapping_add_signed(operator.axis) } else { operator.axis as usize };
    let n = dims[from..].iter().product();
    let (mut dx, mut dweight, mut dbias) = (Vec::new(), vec![0.0; n], vec![0.0; n]);
    for (x, dy) in x.chunks(n.max(1)).zip(dy.chunks(n.max(1))) {
        let average = |values: &mut dyn Iterator<Item = f64>| values.sum::<f64>() / n as f64;
        let mean = if operator.centred { average(&mut x.iter().copied()) } else { 0.0 };
        let scale = 1.0 / (average(&mut x.iter().map(|x| (x - mean) * (x - mean))) + f64::from(operator.epsilon)).sqrt();
        let h: Vec<f64> = dy.iter().enumerate().map(|(k, dy)| dy * weight.get(k).unwrap_or(&1.0)).collect();
        let shift = if operator.centred { average(&mut h.iter().copied()) } else { 0.0 };
        let slope = average(&mut x.iter().zip(&h).map(|(x, h)| (x - mean) * scale * h));
        dx.extend(x.iter().zip(&h).map(|(x, h)| (h - shift - (x - mean) * scale * slope) * scale));
        for k in 0..n {
            dweight[k] += dy[k] * (x[k] - mean) * scale;
            dbias[k] += dy[k];
        }
    }
    let mut outputs = vec![dx, dweight, dbias];
    outputs.truncate(if !operator.parameters { 1 } else { 2 + usize::from(operator.centred) });
    outputs
}

fn case(operator: NormGradient, [x_type, weight]: [DType; 2], dims: &[usize], [weighted, added]: [bool; 2]) -> Case {
    let from = if operator.axis < 0 { dims.len() - 1 } else { operator.axis as usize };
    let (n, rows) = (dims[from..].iter().product::<usize>(), dims[..from].iter().product::<usize>());
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
    // Sums over rows are of terms of both signs.
    let sums = if operator.parameters { 2e-6 * (rows as f64).sqrt() } else { 0.0 };
    let bound = Bound::relative(4e-6).with_absolute(2e-5 + 4.0 * rounding + sums);
    let dims = dims.to_vec();
    Case::new(operator, [Some(x), weight, Some(dy), addend], bound, move |i| {
        let mut all = gradient(&operator, &dims, &i[0], &i[1], &i[2]);
        all[0].iter_mut().zip(&i[3]).for_each(|(dx, addend)| *dx += addend);
        all
    })
}

pub(crate) fn cases() -> Vec<Case> {
    let both = |parameters: bool| [false, true].map(|centred| NormGradient { axis: -1, epsilon: 0.01, parameters, centred });
    let all = || [false, true].into_iter().flat_map(both);
    let mut cases =
        for_rows(|dtype, n| all().map(move |operator| case(operator, [dtype; 2], &[if n == 0 { 0 } else { 3 }, n], [n % 3 > 0, n % 4 == 0])));
    for operator in all() {
        for weight in DType::FLOATS {
            cases.push(case(NormGradient { axis: 2, ..operator }, [DType::F32, *weight], &[2, 7, 5, 100], [true; 2]));
        }
        cases.push(case(operator, [DType::BF16, DType::F32], &[1, 33_001], [true; 2]));
        cases.push(case(operator, [DType::F16; 2], &[300, 70], [true, false]));
        cases.push(case(operator, [DType::F32; 2], &[0, 1000], [true, false]));
        cases.push(case(operator, [DType::F32; 2], &[3, 0], [true, false]));
    }
    // Several shares: of one walker and of several, of rows that are kept in registers and not.
    for operator in both(true) {
        cases.push(case(operator, [DType::F16; 2], &[2100, 8], [true, false]));
        cases.push(case(operator, [DType::BF16; 2], &[70, 136], [true, true]));
        cases.push(case(operator, [DType::F32; 2], &[9, 1032], [true, false]));
        cases.push(case(operator, [DType::F32, DType::BF16], &[13, 1031], [false, true]));
        // More than one for each accumulator.
        cases.push(case(operator, [DType::BF16; 2], &[2500, 7], [true, false]));
    }
    // More of them than a simdgroup has accumulators for in four steps.
    cases.push(case(both(true)[0], [DType::F32; 2], &[262_400, 1], [false, false]));
    cases
}
