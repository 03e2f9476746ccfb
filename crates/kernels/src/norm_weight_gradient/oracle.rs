//! The naive reference, in f64.

use elinvar_core::DType;

use super::NormWeightGradient;
use crate::conformance::case::{Bound, Case, HostTensor, for_lengths};

/// The sums over rows of `n` elements for weight and bias; no means count as zeros.
pub(crate) fn gradient(x: &[f64], dy: &[f64], scale: &[f64], mean: &[f64], n: usize) -> [Vec<f64>; 2] {
    let mut out = [vec![0.0; n], vec![0.0; n]];
    for (row, (x, dy)) in x.chunks(n.max(1)).zip(dy.chunks(n.max(1))).enumerate() {
        for k in 0..n {
            out[0][k] += dy[k] * (x[k] - mean.get(row).unwrap_or(&0.0)) * scale[row];
            out[1][k] += dy[k];
        }
    }
    out
}

fn case(centred: bool, dtype: DType, dims: &[usize], axis: usize) -> Case {
    let n: usize = dims[axis..].iter().product();
    let rows: Vec<_> = dims.iter().enumerate().map(|(at, extent)| if at < axis { *extent } else { 1 }).collect();
    let [x, dy] = [1, 2].map(|seed| HostTensor::random(dtype, dims, -2.0, 2.0, seed));
    let scale = HostTensor::random(DType::F32, &rows, 0.5, 1.5, 3);
    let mean = centred.then(|| HostTensor::random(DType::F32, &rows, -1.0, 1.0, 4));
    // Sums of as many terms of both signs as there are rows.
    let terms = rows.iter().product::<usize>() as f64;
    let bound = Bound::relative(1e-6).with_absolute(1e-6 * (1.0 + terms.sqrt()));
    Case::new(NormWeightGradient { axis: axis as isize, centred }, [Some(x), Some(dy), Some(scale), mean], bound, move |i| {
        let all = gradient(&i[0], &i[1], &i[2], &i[3], n);
        all[..if centred { 2 } else { 1 }].to_vec()
    })
}

pub(crate) fn cases() -> Vec<Case> {
    // As many rows as there are lengths.
    let mut cases =
        for_lengths(DType::FLOATS, |dtype, rows| [false, true].map(|centred| case(centred, dtype, &[rows, if rows % 2 == 0 { 40 } else { 13 }], 1)));
    for dtype in DType::FLOATS {
        cases.push(case(true, *dtype, &[3, 0], 1));
        cases.push(case(true, *dtype, &[2, 3, 5, 103], 2));
        cases.push(case(false, *dtype, &[5, 7, 1032], 2));
    }
    cases.push(case(true, DType::BF16, &[33_001, 8], 1));
    cases
}
