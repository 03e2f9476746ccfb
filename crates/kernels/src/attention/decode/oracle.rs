//! The naive reference, in f64, and the cases.

use elinvar_core::{DType, Result};

use super::{DecodeAttention, operands::AT};
use crate::{
    Precision,
    attention::oracle::{Dims, PACKED, PAIRS, bound, cache as stored, elements, probabilities, scores, weighted_sum},
    conformance::case::{Bound, Case, HostTensor, made},
    rope::{RopeScaling, frequencies, oracle::rotate},
};

/// The error of an element of this type, relative to 1: packed rows have steps of a 127th, and a scale of f16.
pub(in crate::attention) fn unit(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 2f64.powi(-11),
        DType::BF16 => 2f64.powi(-8),
        DType::U8 => 2f64.powi(-24) + 0.5 / 127.0 + 2f64.powi(-11),
        DType::F32 | DType::F64 | DType::Bool | DType::I8 | DType::I16 | DType::I32 | DType::I64 | DType::U16 | DType::U32 | DType::U64 => {
            2f64.powi(-24)
        }
    }
}

/// A token at `position` of a cache of `d.keys`, of which `rotary` elements rotation.
#[derive(Clone, Copy)]
struct Token {
    d: Dims,
    rotary: usize,
    position: i32,
    types: [DType; 2],
}

impl Token {
    fn inputs(self) -> Result<Vec<HostTensor>> {
        let Self { d, types: [rows, cache], .. } = self;
        let random = |dtype, dims: [usize; 3], seed: u64| HostTensor::random(dtype, &dims, -1.0, 1.0, seed + d.keys as u64);
        // What lies after the token must not matter.
        let filled = |width: usize, seed: u64| {
            let filled = stored(cache, &[d.kv_heads, d.keys, width], seed + d.keys as u64);
            let (extent, mut values) = (filled.dims()[2], filled.to_f64());
            // A scale of such bytes is no number.
            let unknown = if cache == DType::U8 { 255.0 } else { f64::NAN };
            values.chunks_mut((d.keys * extent).max(1)).for_each(|head| head[self.position as usize * extent..].fill(unknown));
            HostTensor::from_f64(cache, filled.dims(), &values)
        };
        let mut inputs = vec![filled(d.width, 1), random(rows, [1, d.kv_heads, d.width], 2), HostTensor::new(&[1], &[self.position])];
        inputs.push(HostTensor::new(&[self.rotary / 2], &frequencies(&RopeScaling::None, 10_000.0, self.rotary)?));
        inputs.extend([filled(d.value_width, 3), random(rows, [1, d.kv_heads, d.value_width], 4), random(rows, [1, d.heads, d.width], 5)]);
        Ok(inputs)
    }

    fn case(self, operator: DecodeAttention) -> Result<Case> {
        Ok(self.of(operator, self.inputs()?))
    }

    fn of(self, operator: DecodeAttention, inputs: Vec<HostTensor>) -> Case {
        let Self { d, types: [rows, cache], position, .. } = self;
        let scoring = operator.attention().scoring;
        // Rotated elements, up to 1.5, are rounded to the rows' type and to the cache's: what that makes of scores and values.
        let rounding = 1.5 * (unit(rows) + unit(cache)) + 1e-6 * f64::from(position);
        // Unless strict: queries and weights are rounded to the cache's type too.
        let twice = if operator.precision == Precision::Strict { 1.0 } else { 2.0 };
        let bound = Bound::EXACT.with_absolute(bound(d, &scoring) + 4.0 * twice * rounding);
        let dims = [AT.cache, AT.value_cache].map(|index| inputs[index].dims().to_vec());
        let inputs: Vec<_> = inputs.into_iter().map(Some).collect();
        let case = Case::new(operator, inputs, bound, move |inputs| {
            let rotated = |rows: &[f64]| -> Vec<f64> {
                let angles: Vec<f64> = inputs[AT.frequencies].iter().map(|&f| f64::from(position as f32 * f as f32)).collect();
                rows.chunks(d.width).flat_map(|row| rotate(row, &angles, operator.interleaved)).collect()
            };
            let append = |index: usize, rows: &[f64], width: usize| {
                let mut cache = elements(cache, &dims[usize::from(index == AT.value_cache)], &inputs[index]);
                for (head, row) in rows.chunks(width).enumerate() {
                    cache[(head * d.keys + position as usize) * width..][..width].copy_from_slice(row);
                }
                cache
            };
            let keys = append(AT.cache, &rotated(&inputs[AT.rows]), d.width);
            let values = append(AT.value_cache, &inputs[AT.values], d.value_width);
            let rest = [vec![], inputs[AT.positions].clone(), vec![]];
            let scores = scores(&scoring, d, &[], &rotated(&inputs[AT.queries]), &keys, &rest);
            vec![weighted_sum(d, &probabilities(&scores, d.keys), &values), keys, values]
        });
        case.updating(AT.cache).updating(AT.value_cache).with_packed_caches()
    }
}

pub(crate) fn cases() -> Vec<Case> {
    let plain = DecodeAttention::default();
    let token = |d: Dims, position: i32, types| Token { d, rotary: d.width, position, types };
    let mut cases = Vec::new();
    for (i, types) in PAIRS.into_iter().enumerate() {
        // The first token, the last of a group of keys and of a block, the first of another, the last of the cache.
        for position in [0, 31, 255, 256, 300, 599] {
            cases.push(token(Dims::new(8, 2, 1, 600, 64), position, types).case(plain));
        }
        // Heads of odd widths, of which a part rotates; several tiles of heads for one of keys; a cache of one block, and of one key.
        let ragged = Dims { value_width: 37 + i, ..Dims::new(6, 2, 1, 280, 70 + i) };
        cases.push(Token { rotary: 64, ..token(ragged, 270, types) }.case(DecodeAttention { interleaved: i % 2 == 1, ..plain }));
        cases.push(token(Dims::new(24, 2, 1, 270, 16), 263, types).case(plain));
        cases.push(token(Dims::new(4, 1, 1, 40, 128), 33, types).case(DecodeAttention { interleaved: true, ..plain }));
        cases.push(token(Dims::new(2, 2, 1, 1, 8), 0, types).case(plain));
    }
    for position in [0, 255, 256, 300, 599] {
        cases.push(token(Dims::new(8, 2, 1, 600, 64), position, PACKED).case(plain));
    }
    for (i, (width, value_width)) in [(32, 96), (96, 32), (128, 128), (256, 160)].into_iter().enumerate() {
        let partly = Token { rotary: 32, ..token(Dims { value_width, ..Dims::new(6, 2, 1, 280, width) }, 270, PACKED) };
        cases.push(partly.case(DecodeAttention { interleaved: i % 2 == 1, ..plain }));
    }
    // As many blocks as the largest cluster takes, and more: of the first only, of some, of all.
    for (i, (keys, position)) in [(1000, 999), (1700, 200), (2048, 700), (2048, 2047), (2049, 2048)].into_iter().enumerate() {
        cases.push(token(Dims::new(8, 2, 1, keys, 128), position, PAIRS[i % 5]).case(plain));
    }
    // Several tiles of heads for one of keys; keys too long for the kernel; and what matrix units do not take.
    cases.push(token(Dims::new(24, 2, 1, 270, 32), 263, PACKED).case(plain));
    cases.push(token(Dims::new(2, 1, 1, 20, 320), 7, PACKED).case(plain));
    cases.push(token(Dims::new(8, 2, 1, 600, 64), 300, PACKED).case(DecodeAttention { precision: Precision::Fast, ..plain }));
    let wide = Dims { value_width: 200, ..Dims::new(4, 2, 1, 300, 256) };
    cases.push(token(wide, 299, PAIRS[2]).case(plain));
    cases.push(token(Dims::new(2, 1, 1, 20, 300), 7, PAIRS[1]).case(plain));
    let window = DecodeAttention { left_window: Some(40), softcap: 0.7, scale: Some(0.5), ..plain };
    cases.push(token(Dims::new(4, 2, 1, 600, 32), 260, PAIRS[1]).case(window));
    cases.push(token(Dims::new(4, 2, 1, 600, 32), 530, PAIRS[4]).case(DecodeAttention { left_window: Some(0), ..plain }));
    cases.push(token(Dims::new(2, 1, 1, 2300, 8), 2299, PAIRS[3]).case(plain));
    // What a device may compute on matrix units: the first token, tokens at the start and the end of a step of keys, the last of the cache.
    let fast = DecodeAttention { precision: Precision::Fast, ..plain };
    for (i, types) in PAIRS.into_iter().enumerate() {
        for (keys, positions) in [(250, &[0, 17, 249][..]), (600, &[0, 15, 16, 300, 599]), (2600, &[16, 2599])] {
            cases.extend(positions.iter().map(|&position| token(Dims::new(8, 2, 1, keys, 64), position, types).case(fast)));
        }
        // So many heads that there are few parts of each one's keys, of which a warp takes several steps, or none.
        for (width, position) in [(64, 0), (64, 3999), (128, 16), (128, 3600)] {
            cases.push(token(Dims::new(8, 8, 1, 4000, width), position, types).case(fast));
        }
        // In blocks, by a cluster of thread blocks: of one block, of one each, of several each; other numbers of heads for one of keys; a window.
        let invariant = DecodeAttention { precision: Precision::Invariant, ..plain };
        for (dims, positions) in [
            (Dims::new(8, 2, 1, 600, 64), &[0, 127, 128, 300, 599][..]),
            (Dims::new(8, 8, 1, 2600, 128), &[16, 1100, 2599]),
            (Dims::new(24, 2, 1, 400, 128), &[390]),
        ] {
            let rotary = dims.width / (1 + dims.heads / 24);
            cases.extend(positions.iter().map(|&position| Token { rotary, ..token(dims, position, types) }.case(invariant)));
        }
        let window = DecodeAttention { left_window: Some(300), scale: Some(0.5), interleaved: true, ..invariant };
        cases.push(token(Dims::new(4, 1, 1, 2100, 64), 1900, types).case(window));
        cases.push(token(Dims::new(8, 2, 1, 600, 128), 450, types).case(DecodeAttention { output: Some(DType::BF16), ..invariant }));
        cases.push(token(Dims::new(8, 1, 1, 256, 128), 200, types).case(fast));
        // Several tiles of heads for one of keys, of which a part rotates; a window.
        let many = token(Dims::new(24, 2, 1, 400, 128), 390, types);
        cases.push(Token { rotary: 64, ..many }.case(DecodeAttention { interleaved: i % 2 == 1, ..fast }));
        cases.push(token(Dims::new(4, 1, 1, 5000, 128), 4100, types).case(DecodeAttention { left_window: Some(40), scale: Some(0.5), ..fast }));
    }
    cases.into_iter().chain([plain, fast, DecodeAttention { precision: Precision::Invariant, ..plain }].map(strided)).map(made).collect()
}

/// New rows between others.
fn strided(operator: DecodeAttention) -> Result<Case> {
    let token = Token { d: Dims::new(4, 2, 1, 300, 64), rotary: 16, position: 280, types: PAIRS[2] };
    let between = |rows: HostTensor| {
        let (heads, width) = (rows.dims()[1], rows.dims()[2]);
        let twice: Vec<f64> = rows.to_f64().chunks(width).flat_map(|row| [row, row].concat()).collect();
        let stored = HostTensor::from_f64(rows.dtype(), &[1, 2 * heads, width], &twice);
        stored.viewed(|layout| layout.slice(1, 0, heads, 2))
    };
    let mut inputs = token.inputs()?;
    for index in [AT.rows, AT.values, AT.queries] {
        inputs[index] = between(inputs[index].clone())?;
    }
    Ok(token.of(operator, inputs))
}
