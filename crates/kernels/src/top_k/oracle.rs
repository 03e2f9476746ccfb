//! The naive reference: a stable sort.

use std::cmp::Ordering;

use elinvar_core::DType;

use super::TopK;
use crate::conformance::case::{Bound, Case, HostTensor};

pub(crate) fn top_k(row: &[f64], k: usize, largest: bool, sorted: bool) -> Vec<(f64, f64)> {
    let mut order: Vec<usize> = (0..row.len()).collect();
    let compare = |a: f64, b: f64| a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()));
    order.sort_by(|&a, &b| {
        let ascending: Ordering = compare(row[a], row[b]);
        if largest { ascending.reverse() } else { ascending }
    });
    order.truncate(k);
    if !sorted {
        order.sort_unstable();
    }
    order.into_iter().map(|i| (row[i], i as f64)).collect()
}

/// Along the middle axis of `[outer, n, inner]`.
fn case(x: HostTensor, operator: TopK) -> Case {
    let (outer, n, inner) = (x.dims()[0], x.dims()[1], x.dims()[2]);
    let TopK { k, largest, sorted, .. } = operator;
    Case::new(operator, [Some(x)], Bound::EXACT, move |inputs| {
        let mut out = vec![vec![0.0; outer * k * inner]; 2];
        for (o, i) in (0..outer).flat_map(|o| (0..inner).map(move |i| (o, i))) {
            let row: Vec<f64> = (0..n).map(|j| inputs[0][(o * n + j) * inner + i]).collect();
            for (place, (value, index)) in top_k(&row, k, largest, sorted).into_iter().enumerate() {
                let at = (o * k + place) * inner + i;
                (out[0][at], out[1][at]) = (value, index);
            }
        }
        out
    })
}

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for &dtype in DType::ALL.iter().filter(|&&d| d != DType::Bool) {
        for (largest, sorted) in [(true, true), (false, true), (true, false)] {
            // Few values, so that there are ties.
            let x = HostTensor::random(dtype, &[2, 3000, 1], 0.0, 90.0, 1);
            cases.push(case(x, TopK { k: 70, axis: 1, largest, sorted }));
        }
    }
    // More than are sorted in threadgroup memory, in several rows; and by index.
    for (dtype, dims, sorted) in [(DType::I64, [2, 1500, 2], true), (DType::I8, [1, 1500, 1], true), (DType::U16, [3, 2000, 1], false)] {
        cases.push(case(HostTensor::random(dtype, &dims, -90.0, 90.0, 3), TopK { k: 1200, axis: 1, largest: true, sorted }));
    }
    for &dtype in DType::FLOATS {
        for (dims, k) in [([3, 40, 5], 7), ([1, 9000, 1], 4000), ([2, 6, 1], 6), ([2, 6, 1], 0), ([0, 6, 2], 3), ([300, 70, 1], 1)] {
            cases.push(case(HostTensor::random(dtype, &dims, -9.0, 9.0, 2), TopK { k, axis: 1, largest: k % 2 == 1, sorted: true }));
        }
        let special = [0.0, f64::NAN, -0.0, f64::INFINITY, -1.0, f64::NEG_INFINITY, f64::NAN, 0.0];
        for largest in [true, false] {
            cases.push(case(HostTensor::from_f64(dtype, &[1, 8, 1], &special), TopK { k: 8, axis: -2, largest, sorted: true }));
        }
    }
    cases
}
