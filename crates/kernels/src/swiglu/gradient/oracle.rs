//! The naive reference, in f64.

use elinvar_core::DType;

use super::SwiGluGradient;
use crate::conformance::case::{Bound, Case, HostTensor};

/// By both inputs, or by the rows of one that has `n` elements of each.
pub(crate) fn gradient(a: &[f64], b: &[f64], dy: &[f64], n: usize, alpha: f64) -> Vec<Vec<f64>> {
    let of = |((&a, &b), &dy): ((&f64, &f64), &f64)| {
        let (s, rest) = (1.0 / (1.0 + (-alpha * a).exp()), 1.0 / (1.0 + (alpha * a).exp()));
        (dy * b * (s + alpha * a * s * rest), dy * a * s)
    };
    let of_row = |a: &[f64], b: &[f64], dy: &[f64]| -> [Vec<f64>; 2] {
        let (da, db) = a.iter().zip(b).zip(dy).map(of).unzip();
        [da, db]
    };
    if !b.is_empty() {
        return of_row(a, b, dy).into();
    }
    let rows = a.chunks(2 * n.max(1)).zip(dy.chunks(n.max(1)));
    vec![rows.flat_map(|(row, dy)| of_row(&row[..n], &row[n..], dy).concat()).collect()]
}

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for &dtype in DType::FLOATS {
        let bound = Bound::relative(2e-6).with_absolute(2e-5);
        for (dims, alpha) in [(&[1][..], 1.0f32), (&[5, 77], 1.0), (&[3, 40, 211], 1.0), (&[600], 1.702)] {
            let [a, b, dy] = [(20.0, 1), (8.0, 2), (1.0, 3)].map(|(high, seed)| Some(HostTensor::random(dtype, dims, -high, high, seed)));
            cases.push(Case::new(SwiGluGradient { alpha }, [a, b, dy], bound, move |i| gradient(&i[0], &i[1], &i[2], 0, alpha.into())));
        }
        for (rows, n) in [(0, 3), (3, 0), (1, 5000), (301, 33), (5, 24), (40, 3)] {
            let [both, dy] = [(2 * n, 20.0, 4), (n, 1.0, 5)].map(|(n, high, seed)| Some(HostTensor::random(dtype, &[rows, n], -high, high, seed)));
            cases.push(Case::new(SwiGluGradient { alpha: 1.0 }, [both, None, dy], bound, move |i| gradient(&i[0], &[], &i[2], n, 1.0)));
        }
    }
    let none = [1, 2, 3].map(|seed| Some(HostTensor::random(DType::F32, &[0], 0.0, 1.0, seed)));
    cases.push(Case::new(SwiGluGradient { alpha: 1.0 }, none, Bound::relative(0.0), |_| vec![Vec::new(); 2]));
    cases
}
