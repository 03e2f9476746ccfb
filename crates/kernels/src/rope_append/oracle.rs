//! The naive reference, and the cases.

use elinvar_core::DType;

use super::RopeAppend;
use crate::{
    attention::oracle::PAIRS,
    conformance::{Bound, Case, HostTensor},
    rope::{RopeScaling, frequencies, oracle::rotate},
};

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (i, types) in PAIRS.into_iter().enumerate() {
        for interleaved in [false, true] {
            cases.extend(case(types, interleaved, None, [3, 2, 64], 64, HostTensor::new(&[3], &[7i32, 0, 3])));
            cases.extend(case(types, interleaved, Some(2), [2, 3, 33 + i], 20, HostTensor::new(&[2, 2], &[1i32, 5, 7, 6])));
        }
    }
    cases.extend(case(PAIRS[0], false, Some(2), [1, 1, 600], 600, HostTensor::new(&[1], &[4i32])));
    cases.extend(case(PAIRS[0], false, None, [0, 2, 8], 8, HostTensor::new::<i32>(&[0], &[])));
    cases
}

/// Rows `[tokens, heads, width]` into a cache of eight positions.
fn case(
    [rows, cache]: [DType; 2],
    interleaved: bool,
    batch: Option<usize>,
    [tokens, heads, width]: [usize; 3],
    rotary: usize,
    positions: HostTensor,
) -> Option<Case> {
    let lead: Vec<usize> = batch.into_iter().collect();
    let table = frequencies(&RopeScaling::None, 10_000.0, rotary).ok()?;
    let values = HostTensor::random(rows, &[&lead[..], &[tokens, heads, width]].concat(), -3.0, 3.0, 1);
    let filled = HostTensor::random(cache, &[&lead[..], &[heads, 8, width]].concat(), -3.0, 3.0, 2);
    let inputs = [filled, values, positions, HostTensor::new(&[rotary / 2], &table)].map(Some);
    // Rounded to the rows' type first, if that is not f32.
    let twice = if rows == DType::F32 { 0.0 } else { 2f64.powi(if rows == DType::F16 { -11 } else { -8 }) };
    let case = Case::new(RopeAppend { interleaved }, inputs, Bound::relative(twice * 1.01).with_absolute(2e-6), move |inputs| {
        let mut cache = inputs[0].clone();
        for (i, row) in inputs[1].chunks(width).enumerate() {
            let (sequence, t, h) = (i / (heads * tokens), i / heads % tokens, i % heads);
            let position = inputs[2][if inputs[2].len() == tokens { t } else { sequence * tokens + t }];
            let angles: Vec<f64> = inputs[3].iter().map(|&f| f64::from(position as f32 * f as f32)).collect();
            let at = ((sequence * heads + h) * 8 + position as usize) * width;
            cache[at..][..width].copy_from_slice(&rotate(row, &angles, interleaved));
        }
        vec![cache]
    });
    Some(case.updating(0))
}
