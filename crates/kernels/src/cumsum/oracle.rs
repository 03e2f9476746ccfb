//! The naive reference, in f64.

use elinvar_core::DType;

use super::CumSum;
use crate::conformance::case::{Bound, Case, HostTensor, for_lengths};

pub(crate) fn cumsum(row: &[f64], exclusive: bool, reverse: bool) -> Vec<f64> {
    let sum = |k: usize| {
        let range = match (exclusive, reverse) {
            (false, false) => 0..k + 1,
            (true, false) => 0..k,
            (false, true) => k..row.len(),
            (true, true) => k + 1..row.len(),
        };
        row[range].iter().sum()
    };
    (0..row.len()).map(sum).collect()
}

/// Along the middle axis of `[outer, n, inner]`.
fn along(x: &[f64], [outer, n, inner]: [usize; 3], exclusive: bool, reverse: bool) -> Vec<f64> {
    let mut out = vec![0.0; x.len()];
    for (o, i) in (0..outer).flat_map(|o| (0..inner).map(move |i| (o, i))) {
        let at = |k: usize| (o * n + k) * inner + i;
        let row: Vec<f64> = (0..n).map(|k| x[at(k)]).collect();
        cumsum(&row, exclusive, reverse).into_iter().enumerate().for_each(|(k, y)| out[at(k)] = y);
    }
    out
}

fn case(dtype: DType, dims: [usize; 3], exclusive: bool, reverse: bool) -> Case {
    let high = if dtype.is_float() { 4.0 } else { 1.5 };
    let x = HostTensor::random(dtype, &dims, if dtype.is_float() { -4.0 } else { 0.0 }, high, 1);
    let bound = if dtype.is_float() { Bound::relative(1e-7).with_absolute(32.0 * 6e-8 * 4.0 * dims[1] as f64) } else { Bound::EXACT };
    Case::new(CumSum { axis: 1, exclusive, reverse }, [Some(x)], bound, move |i| vec![along(&i[0], dims, exclusive, reverse)])
}

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = for_lengths(DType::FLOATS, |dtype, n| [case(dtype, [3, n, 1], n % 2 == 0, n % 3 == 0)]);
    // Short rows that share a threadgroup, and not all of its simdgroups.
    for n in [100, 200, 400] {
        cases.push(case(DType::F16, [21, n, 1], true, false));
    }
    for (exclusive, reverse) in [(false, false), (false, true), (true, false), (true, true)] {
        cases.push(case(DType::F32, [2, 300, 70], exclusive, reverse));
        cases.push(case(DType::I64, [40, 500, 1], exclusive, reverse));
        cases.push(case(DType::U8, [2, 100, 3], exclusive, reverse));
    }
    cases
}
