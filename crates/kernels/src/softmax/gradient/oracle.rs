//! The naive reference, in f64.

use elinvar_core::DType;

use super::SoftmaxGradient;
use crate::{
    conformance::case::{Bound, Case, HostTensor, for_rows},
    softmax::oracle::softmax,
};

/// Of a row of the output and its gradient.
pub(crate) fn gradient(y: &[f64], dy: &[f64], log: bool) -> Vec<f64> {
    let sum: f64 = y.iter().zip(dy).map(|(y, g)| if log { *g } else { y * g }).sum();
    y.iter().zip(dy).map(|(y, g)| if log { g - y.exp() * sum } else { y * (g - sum) }).collect()
}

pub(crate) fn cases() -> Vec<Case> {
    let case = |dtype: DType, dims: &[usize], axis: isize, log: bool| {
        let (n, inner) = (dims[axis as usize], dims[axis as usize + 1..].iter().product::<usize>());
        // Any row that is one of a softmax.
        let x = HostTensor::random(DType::F32, dims, -6.0, 6.0, n as u64).to_f64();
        let y: Vec<f64> = x.chunks(n.max(1)).flat_map(|row| softmax(row, log)).collect();
        let [y, dy] = [HostTensor::from_f64(dtype, dims, &y), HostTensor::random(dtype, dims, -1.0, 1.0, 2)];
        let bound = Bound::relative(1e-6).with_absolute(if log { 1e-5 } else { 3e-6 });
        Case::new(SoftmaxGradient { axis, log }, [Some(y), Some(dy)], bound, move |i| {
            let mut dx = vec![0.0; i[0].len()];
            for start in (0..dx.len()).filter(|at| at / inner % n == 0) {
                let row = |values: &[f64]| (0..n).map(|k| values[start + k * inner]).collect::<Vec<_>>();
                gradient(&row(&i[0]), &row(&i[1]), log).into_iter().enumerate().for_each(|(k, value)| dx[start + k * inner] = value);
            }
            vec![dx]
        })
    };
    let mut cases = for_rows(|dtype, n| [false, true].map(|log| case(dtype, &[3, n], 1, log)));
    for log in [false, true] {
        cases.push(case(DType::BF16, &[1, 33_001], 1, log));
        cases.push(case(DType::F16, &[300, 70], 1, log));
        cases.push(case(DType::F32, &[2, 33, 5], 1, log));
    }
    cases
}
