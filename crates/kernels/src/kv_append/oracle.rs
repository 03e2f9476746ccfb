//! The naive reference, and the cases.

use elinvar_core::DType;

use super::KvAppend;
use crate::{
    attention::oracle::PAIRS,
    conformance::case::{Bound, Case, HostTensor},
};

pub(crate) fn cases() -> Vec<Case> {
    let single: &[i32] = &[7, 0, 3];
    let batched: &[i32] = &[1, 2, 3, 5, 7, 6];
    let dims = |[rows, cache]: [DType; 2]| {
        [(None, single, &[3][..]), (Some(2), single, &[3]), (Some(2), batched, &[2, 3])]
            .map(|(batch, positions, shape)| case(rows, cache, batch, 5, HostTensor::new(shape, positions)))
    };
    let mut cases: Vec<_> = PAIRS.into_iter().flat_map(dims).collect();
    cases.push(case(DType::F32, DType::F32, None, 5, HostTensor::new::<i32>(&[0], &[])));
    for (dtype, width) in [(DType::BF16, 64), (DType::F16, 300), (DType::F32, 2100)] {
        cases.push(case(DType::F32, dtype, Some(2), width, HostTensor::new(&[3], single)));
    }
    cases
}

/// Two heads, eight positions.
fn case(rows: DType, cache: DType, batch: Option<usize>, width: usize, positions: HostTensor) -> Case {
    let (b, tokens) = (batch.unwrap_or(1), positions.dims()[positions.dims().len() - 1]);
    let lead: Vec<usize> = batch.into_iter().collect();
    let values = HostTensor::random(rows, &[&lead[..], &[tokens, 2, width]].concat(), -3.0, 3.0, 1);
    let inputs = [Some(HostTensor::random(cache, &[&lead[..], &[2, 8, width]].concat(), -3.0, 3.0, 2)), Some(values), Some(positions)];
    Case::new(KvAppend, inputs, Bound::EXACT, move |inputs| {
        let mut cache = inputs[0].clone();
        for (i, row) in inputs[1].chunks(width).enumerate() {
            let (sequence, t, h) = (i / (2 * tokens), i / 2 % tokens, i % 2);
            let position = inputs[2][if inputs[2].len() == tokens { t } else { sequence * tokens + t }] as usize;
            cache[((sequence * 2 + h) * 8 + position) * width..][..width].copy_from_slice(row);
        }
        assert!(cache.len() == b * 16 * width);
        vec![cache]
    })
    .updating(0)
}
