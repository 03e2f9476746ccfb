//! The naive reference, in f64.

use elinvar_core::DType;

use super::LoraLinear;
use crate::{
    Precision,
    conformance::case::{Bound, Case, HostTensor},
    matmul::oracle::{error, product},
};

fn case([x, weight, adapter]: [DType; 3], [m, n, k, r]: [usize; 4], precision: Precision) -> Case {
    let uniform = |dtype, dims: &[usize], seed| Some(HostTensor::random(dtype, dims, -1.0, 1.0, seed));
    let bias = if n % 2 == 1 { uniform(DType::F32, &[n], 5) } else { None };
    let inputs = [uniform(x, &[m, k], 1), uniform(weight, &[n, k], 2), uniform(adapter, &[r, k], 3), uniform(adapter, &[n, r], 4), bias];
    let scale = 0.25f32;
    // The adapter sums r products with elements of size √k.
    let size = (k as f64).sqrt() * (1.0 + f64::from(scale) * (r as f64).sqrt());
    // Of many rows, fast, the adapter may be rounded to y's type by itself.
    let rounding = match (precision, x) {
        (Precision::Strict | Precision::Invariant, _) | (_, DType::F32) => 0.0,
        (_, DType::F16) => 2f64.powi(-11),
        _ => 2f64.powi(-8),
    };
    let most = [[x, weight], [x, adapter], [DType::F32, adapter]].map(|types| error(precision, types, k)).into_iter().fold(0.0, f64::max);
    let bound = Bound::relative(3e-7).with_absolute((most + rounding) * size);
    Case::new(LoraLinear { scale, precision }, inputs, bound, move |i| {
        let plain = product([m, n, k], |row, l| i[0][row * k + l], |column, l| i[1][column * k + l]);
        let projected = product([m, r, k], |row, l| i[0][row * k + l], |column, l| i[2][column * k + l]);
        let delta = product([m, n, r], |row, l| projected[row * r + l], |column, l| i[3][column * r + l]);
        let sum = |at: usize| plain[at] + f64::from(scale) * delta[at] + i[4].get(at % n).unwrap_or(&0.0);
        vec![(0..m * n).map(sum).collect()]
    })
}

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for &dtype in DType::FLOATS {
        for extents in [[1, 257, 512, 8], [3, 33, 100, 16], [70, 40, 300, 4], [0, 5, 8, 2], [2, 7, 31, 0]] {
            for precision in [Precision::Strict, Precision::Fast] {
                cases.push(case([dtype; 3], extents, precision));
            }
        }
    }
    // Fewer rows in the adapter than a threadgroup of the fused kernel has simdgroups, and more.
    cases.push(case([DType::F32; 3], [1, 9, 40, 5], Precision::Strict));
    cases.push(case([DType::F32; 3], [1, 65, 300, 13], Precision::Strict));
    cases.push(case([DType::BF16, DType::F16, DType::F32], [3, 20, 64, 300], Precision::Strict));
    cases.push(case([DType::BF16, DType::BF16, DType::F32], [20, 70, 64, 40], Precision::Fast));
    cases.push(case([DType::F32, DType::BF16, DType::F32], [5, 129, 1024, 32], Precision::Strict));
    cases.push(case([DType::F32, DType::F32, DType::BF16], [600, 65, 520, 20], Precision::Fast));
    // Of 16 bits the weight alone, the adapter alone, and both beside an x of f32.
    cases.push(case([DType::F32, DType::BF16, DType::F32], [20, 33, 140, 8], Precision::Strict));
    cases.push(case([DType::F32, DType::F32, DType::F16], [20, 33, 140, 8], Precision::Strict));
    cases.push(case([DType::F32, DType::BF16, DType::BF16], [1, 20, 300, 5], Precision::Strict));
    cases
}
