//! The naive reference, and the cases.

use elinvar_core::DType;

use super::RopeAppend;
use crate::{
    attention::oracle::{PACKED, PAIRS, cache as stored, elements},
    conformance::case::{Bound, Case, HostTensor, made},
    rope::{RopeScaling, frequencies, oracle::rotate},
};

/// Positions of the caches.
const CAPACITY: usize = 8;

/// Keys `[tokens, heads, width]`, and perhaps values and queries, of as many sequences as `batch` says.
struct Step {
    types: [DType; 2],
    interleaved: bool,
    batch: Option<usize>,
    dims: [usize; 3],
    rotary: usize,
    positions: HostTensor,
    /// Heads and width of the values, and heads of the queries.
    others: Option<[usize; 3]>,
    /// Where tokens go.
    slots: Option<HostTensor>,
}

impl Step {
    fn case(self) -> Case {
        let Self { types: [rows, cache], interleaved, dims: [tokens, heads, width], .. } = self;
        let lead: Vec<usize> = self.batch.into_iter().collect();
        let table = made(frequencies(&RopeScaling::None, 10_000.0, self.rotary));
        let random = |dtype, dims: [usize; 3], seed| Some(HostTensor::random(dtype, &[&lead[..], &dims].concat(), -3.0, 3.0, seed));
        let filled = |width: usize, heads: usize, seed| Some(stored(cache, &[&lead[..], &[heads, CAPACITY, width]].concat(), seed));
        let mut inputs = vec![
            filled(width, heads, 2),
            random(rows, [tokens, heads, width], 1),
            Some(self.positions),
            Some(HostTensor::new(&[self.rotary / 2], &table)),
        ];
        match self.others {
            Some([heads, width, _]) => inputs.extend([filled(width, heads, 3), random(rows, [tokens, heads, width], 4)]),
            None => inputs.extend([None, None]),
        }
        inputs.push(self.others.and_then(|[.., heads]| random(rows, [tokens, heads, width], 5)));
        let places = if self.slots.is_some() { 7 } else { 2 };
        inputs.push(self.slots);
        // Rounded to the rows' type first, if that is not f32.
        let twice = if rows == DType::F32 { 0.0 } else { 2f64.powi(if rows == DType::F16 { -11 } else { -8 }) };
        // Rotated elements are up to 4.3; a packed one is half a 127th of its block's greatest off at most, and the scale's rounding.
        let steps = if cache == DType::U8 { 4.3 * (0.5 / 127.0 + 2f64.powi(-11)) } else { 0.0 };
        let bound = Bound::relative(twice * 1.01).with_absolute(2e-6 + steps);
        let dims = [0, 4].map(|index| inputs.get(index).and_then(Option::as_ref).map_or_else(Vec::new, |cache| cache.dims().to_vec()));
        let case = Case::new(RopeAppend { interleaved }, inputs, bound, move |inputs| {
            let of =
                |index: usize, row: usize, heads: usize| inputs[index][if inputs[2].len() == tokens { row / heads % tokens } else { row / heads }];
            let position = |row: usize, heads: usize| of(2, row, heads);
            let rotated = |row: &[f64], position: f64| {
                let angles: Vec<f64> = inputs[3].iter().map(|&f| f64::from(position as f32 * f as f32)).collect();
                rotate(row, &angles, interleaved)
            };
            let append = |index: usize, rows: &[f64], heads: usize, width: usize, rotates: bool| {
                let mut cache = elements(cache, &dims[index / 4], &inputs[index]);
                for (i, row) in rows.chunks(width).enumerate() {
                    let (sequence, h, position, place) = (i / (heads * tokens), i % heads, position(i, heads), of(places, i, heads));
                    let at = ((sequence * heads + h) * CAPACITY + place as usize) * width;
                    cache[at..][..width].copy_from_slice(&if rotates { rotated(row, position) } else { row.to_vec() });
                }
                cache
            };
            let mut results = vec![append(0, &inputs[1], heads, width, true)];
            if let Some([value_heads, value_width, query_heads]) = self.others {
                results.push(append(4, &inputs[5], value_heads, value_width, false));
                results.push(inputs[6].chunks(width).enumerate().flat_map(|(i, row)| rotated(row, position(i, query_heads))).collect());
            }
            results
        });
        let case = case.updating(0).with_packed_caches();
        if self.others.is_some() { case.updating(4).updating(6) } else { case }
    }
}

pub(crate) fn cases() -> Vec<Case> {
    let shared = || HostTensor::new(&[3], &[7i32, 0, 3]);
    let own = || HostTensor::new(&[2, 2], &[1i32, 5, 7, 6]);
    let keys =
        |types, interleaved, batch, dims, rotary, positions| Step { types, interleaved, batch, dims, rotary, positions, others: None, slots: None };
    let mut steps = Vec::new();
    for (i, types) in PAIRS.into_iter().enumerate() {
        for interleaved in [false, true] {
            steps.push(keys(types, interleaved, None, [3, 2, 64], 64, shared()));
            steps.push(keys(types, interleaved, Some(2), [2, 3, 33 + i], 20, own()));
            steps.push(Step { others: Some([6, 37, 5]), ..keys(types, interleaved, None, [3, 2, 70], 64, shared()) });
        }
    }
    // So many tokens that queries share what is made of an angle; not all have as many of them.
    let positions: Vec<i32> = (0..16).map(|i| i * 5 % 8).collect();
    for interleaved in [false, true] {
        steps.push(Step { others: Some([1, 9, 11]), ..keys(PAIRS[1], interleaved, Some(8), [2, 1, 40], 32, HostTensor::new(&[8, 2], &positions)) });
    }
    steps.push(Step { others: Some([3, 300, 6]), ..keys(PAIRS[0], false, Some(2), [2, 3, 40], 40, own()) });
    steps.push(keys(PAIRS[0], false, Some(2), [1, 1, 600], 600, HostTensor::new(&[1], &[4i32])));
    steps.push(keys(PAIRS[0], false, None, [0, 2, 8], 8, HostTensor::new::<i32>(&[0], &[])));
    for interleaved in [false, true] {
        steps.push(keys(PACKED, interleaved, Some(2), [2, 3, 96], 20, own()));
        steps.push(Step { others: Some([6, 32, 5]), ..keys(PACKED, interleaved, None, [3, 2, 64], 64, shared()) });
    }
    // Positions beyond the capacity, of tokens that go elsewhere.
    for (types, batch) in [(PAIRS[0], None), (PAIRS[2], Some(2)), (PACKED, None)] {
        let (dims, positions, slots) = match batch {
            None => (vec![3], vec![900i32, 901, 902], vec![5i32, 6, 1]),
            _ => (vec![2, 3], vec![40, 41, 42, 7, 8, 9], vec![7, 0, 4, 1, 2, 3]),
        };
        let slots = Some(HostTensor::new(&dims, &slots));
        steps.push(Step { others: Some([2, 32, 4]), slots, ..keys(types, false, batch, [3, 2, 64], 64, HostTensor::new(&dims, &positions)) });
    }
    steps.into_iter().map(Step::case).collect()
}
