//! The naive reference: one index at a time.

use elinvar_core::DType;

use super::{Gather, GatherElements, GatherNd, index};
use crate::conformance::case::{Bound, Case, HostTensor};

fn wrap(index: f64, extent: usize) -> usize {
    (index as i64).rem_euclid(extent as i64) as usize
}

fn indices(dtype: DType, dims: &[usize], extent: usize) -> HostTensor {
    let low = if dtype == DType::U32 { 0.0 } else { -(extent as f64) + 0.01 };
    HostTensor::random(dtype, dims, low, extent as f64, 9)
}

fn gather(dtype: DType, [outer, extent, inner]: [usize; 3], by: DType, count: &[usize]) -> Case {
    let x = HostTensor::random(dtype, &[outer, extent, inner], 0.0, 100.0, 3);
    Case::new(Gather { axis: 1 }, [Some(x), Some(indices(by, count, extent))], Bound::EXACT, move |inputs| {
        let rows = (0..outer).flat_map(|o| inputs[1].iter().map(move |&i| (o * extent + wrap(i, extent)) * inner));
        vec![rows.flat_map(|at| inputs[0][at..at + inner].to_vec()).collect()]
    })
}

/// Along the middle axis.
fn elements(dtype: DType, by: DType, [extent, count]: [usize; 2]) -> Case {
    let (x, shape) = ([9, extent, 12], [3, count, 11]);
    let tensor = HostTensor::random(dtype, &x, 0.0, 100.0, 4);
    Case::new(GatherElements { axis: -2 }, [Some(tensor), Some(indices(by, &shape, x[1]))], Bound::EXACT, move |inputs| {
        let place = |at: usize| (at / (shape[1] * shape[2]), at % shape[2]);
        let read = |(at, &index): (usize, &f64)| inputs[0][(place(at).0 * x[1] + wrap(index, x[1])) * x[2] + place(at).1];
        vec![inputs[1].iter().enumerate().map(read).collect()]
    })
}

/// Pairs of coordinates into the two axes after the batch.
fn tuples(dtype: DType, batch: usize, inner: usize) -> Case {
    let (x, count) = (HostTensor::random(dtype, &[batch, 6, 6, inner], 0.0, 100.0, 5), 49);
    Case::new(GatherNd { batch_dims: 1 }, [Some(x), Some(indices(DType::I64, &[batch, count, 2], 6))], Bound::EXACT, move |inputs| {
        let slice = |(number, pair): (usize, &[f64])| ((number / count * 6 + wrap(pair[0], 6)) * 6 + wrap(pair[1], 6)) * inner;
        let starts = inputs[1].chunks_exact(2).enumerate().map(slice);
        vec![starts.flat_map(|at| inputs[0][at..at + inner].to_vec()).collect()]
    })
}

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (&dtype, &by) in DType::ALL.iter().zip(index::TYPES.iter().cycle()) {
        cases.push(gather(dtype, [2, 7, 5], by, &[3, 2]));
        cases.push(elements(dtype, by, [300, 401]));
    }
    cases.push(elements(DType::F32, DType::I32, [6, 5]));
    cases.push(gather(DType::BF16, [1, 50, 576], DType::U32, &[80]));
    cases.push(gather(DType::F32, [300, 9, 1], DType::I32, &[11]));
    cases.push(gather(DType::F32, [3, 9, 1], DType::I32, &[11]));
    // Rows of one element less than a thread takes.
    cases.push(gather(DType::F32, [1, 5, 7], DType::I64, &[6]));
    cases.push(gather(DType::F32, [1, 5, 4], DType::I64, &[0]));
    cases.push(gather(DType::F32, [1, 5, 4], DType::I64, &[]));
    cases.push(tuples(DType::F32, 1, 1));
    cases.push(tuples(DType::I64, 3, 1000));
    cases.push(tuples(DType::U8, 2, 0));
    cases
}
