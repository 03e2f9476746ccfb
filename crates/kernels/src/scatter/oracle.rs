//! The naive reference: one update at a time. Values are small whole numbers, so that every type holds all results exactly.

use elinvar_core::DType;

use super::{Reduction, ScatterElements, ScatterNd};
use crate::conformance::case::{Bound, Case, HostTensor};

pub(crate) fn combine(reduction: Reduction, y: f64, update: f64) -> f64 {
    match reduction {
        Reduction::None => update,
        Reduction::Add => y + update,
        Reduction::Mul => y * update,
        Reduction::Min => y.min(update),
        Reduction::Max => y.max(update),
    }
}

fn wrap(index: f64, extent: usize) -> usize {
    (index as i64).rem_euclid(extent as i64) as usize
}

fn whole(dtype: DType, dims: &[usize], seed: u64) -> HostTensor {
    let values: Vec<f64> = HostTensor::random(DType::U8, dims, 0.0, 2.0, seed).to_f64();
    HostTensor::from_f64(dtype, dims, &values)
}

fn indices(dtype: DType, dims: &[usize], extent: usize) -> HostTensor {
    let low = if dtype == DType::U32 { 0.0 } else { -(extent as f64) + 0.01 };
    HostTensor::random(dtype, dims, low, extent as f64, 9)
}

/// Along the middle axis, many updates meeting.
fn elements(dtype: DType, by: DType, reduction: Reduction, x: [usize; 3], shape: [usize; 3]) -> Case {
    let inputs = [Some(whole(dtype, &x, 1)), Some(indices(by, &shape, x[1])), Some(whole(dtype, &shape, 2))];
    Case::new(ScatterElements { axis: 1, reduction }, inputs, Bound::EXACT, move |inputs| {
        let mut y = inputs[0].clone();
        for (at, (&index, &update)) in inputs[1].iter().zip(&inputs[2]).enumerate() {
            let (outer, inner) = (at / (shape[1] * shape[2]), at % shape[2]);
            let place = &mut y[(outer * x[1] + wrap(index, x[1])) * x[2] + inner];
            *place = combine(reduction, *place, update);
        }
        vec![y]
    })
}

fn slices(dtype: DType, by: DType, reduction: Reduction, inner: usize) -> Case {
    let count = 40;
    let inputs = [Some(whole(dtype, &[6, 6, inner], 3)), Some(indices(by, &[count, 2], 6)), Some(whole(dtype, &[count, inner], 4))];
    Case::new(ScatterNd { reduction }, inputs, Bound::EXACT, move |inputs| {
        let mut y = inputs[0].clone();
        for (number, pair) in inputs[1].chunks_exact(2).enumerate() {
            let slice = (wrap(pair[0], 6) * 6 + wrap(pair[1], 6)) * inner;
            for i in 0..inner {
                y[slice + i] = combine(reduction, y[slice + i], inputs[2][number * inner + i]);
            }
        }
        vec![y]
    })
}

pub(crate) fn cases() -> Vec<Case> {
    let types = || DType::ALL.iter().zip([DType::I64, DType::I32, DType::U32].into_iter().cycle());
    let mut cases = Vec::new();
    for (&dtype, by) in types() {
        for &reduction in Reduction::ALL.iter().filter(|&&r| dtype != DType::Bool || r == Reduction::None) {
            cases.push(elements(dtype, by, reduction, [5, 30, 7], [4, 33, 7]));
            cases.push(slices(dtype, by, reduction, 9));
        }
    }
    cases.push(slices(DType::F32, DType::I64, Reduction::Add, 0));
    cases.push(slices(DType::F32, DType::I64, Reduction::Add, 1000));
    cases.push(slices(DType::BF16, DType::I64, Reduction::Add, 1));
    for (x, shape) in [([1, 50, 1], [1, 1000, 1]), ([3, 40, 50], [3, 20, 50]), ([2, 9, 3], [2, 600, 2])] {
        cases.push(elements(DType::F16, DType::I64, Reduction::Add, x, shape));
        cases.push(elements(DType::U8, DType::I64, Reduction::None, x, shape));
    }
    cases
}
