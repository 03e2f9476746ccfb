//! The naive reference, and the cases.

use elinvar_core::DType;

use super::KvAppend;
use crate::{
    attention::oracle::{PACKED, PAIRS, cache},
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
    for (batch, width, positions) in [(None, 64, HostTensor::new(&[3], single)), (Some(2), 96, HostTensor::new(&[2, 3], batched))] {
        cases.push(packed(HostTensor::random(DType::F32, &[batch.as_slice(), &[3, 2, width]].concat(), -3.0, 3.0, 1), positions));
    }
    cases.push(packed(HostTensor::new(&[1, 2, 288], &odd_blocks()), HostTensor::new(&[1], &[5])));
    cases
}

/// Blocks of zeros, of one number, of halves between integers, of numbers that need the least scale and less, of one too great for a scale, and with no numbers.
fn odd_blocks() -> Vec<f32> {
    let mut row = vec![0f32; 2 * 288];
    row[33] = -3.0;
    row[64..96].iter_mut().enumerate().for_each(|(i, x)| *x = i as f32 - 15.5);
    row[64] = 127.0;
    row[96..128].iter_mut().enumerate().for_each(|(i, x)| *x = 1e-5 * (i as f32 - 9.0));
    row[128..160].iter_mut().enumerate().for_each(|(i, x)| *x = 1e-30 * (i as f32 - 9.0));
    row[160] = 9e6;
    row[161] = -1e6;
    (row[193], row[194]) = (f32::NAN, 2.0);
    (row[230], row[231]) = (1.0, f32::NEG_INFINITY);
    row[256..288].iter_mut().enumerate().for_each(|(i, x)| *x = -(i as f32) / 7.0);
    let (first, second) = row.split_at_mut(288);
    second.iter_mut().zip(first.iter().rev()).for_each(|(to, from)| *to = 0.3 * from);
    row
}

/// The bytes that ggml's rule gives, number by number.
fn quantised(row: &[f64]) -> Vec<f64> {
    let (mut integers, mut scales) = (Vec::new(), Vec::new());
    for block in row.chunks_exact(32) {
        let block: Vec<f32> = block.iter().map(|&x| x as f32).collect();
        let is_finite = block.iter().all(|x| x.is_finite());
        let greatest = block.iter().map(|x| x.abs()).fold(0f32, f32::max);
        let (scale, inverse) = if greatest == 0.0 { (0.0, 0.0) } else { (greatest / 127.0, 1.0 / (greatest / 127.0)) };
        integers.extend(block.iter().map(|x| if is_finite { (x * inverse).round() as i8 } else { 0 }.cast_unsigned()));
        let has_nan = block.iter().any(|x| x.is_nan());
        scales.extend(if has_nan { half::f16::NAN } else { half::f16::from_f32(scale) }.to_le_bytes());
    }
    integers.into_iter().chain(scales).map(f64::from).collect()
}

/// Two heads, eight positions; what the rows are filled up with stays.
fn packed(rows: HostTensor, positions: HostTensor) -> Case {
    let (lead, [tokens, _, width]) = (rows.dims()[..rows.dims().len() - 3].to_vec(), [3, 2, 1].map(|i| rows.dims()[rows.dims().len() - i]));
    let [_, dtype] = PACKED;
    let before = cache(dtype, &[&lead[..], &[2, 8, width]].concat(), 2);
    let extent = before.dims()[before.dims().len() - 1];
    Case::new(KvAppend, [Some(before), Some(rows), Some(positions)], Bound::EXACT, move |inputs| {
        let mut cache = inputs[0].clone();
        for (i, row) in inputs[1].chunks(width).enumerate() {
            let (sequence, t, h) = (i / (2 * tokens), i / 2 % tokens, i % 2);
            let position = inputs[2][if inputs[2].len() == tokens { t } else { sequence * tokens + t }] as usize;
            let row = quantised(row);
            cache[((sequence * 2 + h) * 8 + position) * extent..][..row.len()].copy_from_slice(&row);
        }
        vec![cache]
    })
    .updating(0)
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
