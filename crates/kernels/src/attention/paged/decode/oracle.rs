//! The naive reference, in f64, and the cases.

use elinvar_core::{DType, Result};

use super::{PagedDecodeAttention, operands::AT};
use crate::{
    Precision,
    attention::{
        decode::oracle::unit,
        oracle::{Dims, PACKED, PAIRS, bound, cache as stored, elements, probabilities, scores, weighted_sum},
        scoring::Scoring,
    },
    conformance::case::{Bound, Case, HostTensor, made},
    rope::{RopeScaling, frequencies, oracle::rotate},
};

/// Tokens at these positions, a text each, of heads of which `rotary` elements rotate; `d.keys` is what a table has room for.
fn case(operator: PagedDecodeAttention, d: Dims, [rows, kv]: [DType; 2], rotary: usize, positions: &'static [i32]) -> Result<Case> {
    let (page, batch) = (operator.page as usize, positions.len());
    let (d, entries) = (Dims { batch, ..d }, d.keys / page);
    // A page that texts have in common, one of each text's entries, and one for tokens of no text.
    let (shared, spare) = (0, batch * entries + 1);
    let pages = spare + 1;
    // The others from the end on; what is beyond the last key has no page, and the first one is shared once a text is beyond it.
    let own = |b: usize, entry: usize| batch * entries - (b * entries + entry);
    let place = move |b: usize, entry: usize| match positions[b] {
        position if (entry * page) as i32 > position => {
            if (b + entry).is_multiple_of(2) {
                -1
            } else {
                pages as i32
            }
        }
        position if entry == 0 && position >= page as i32 => shared,
        _ => own(b, entry) as i32,
    };
    let table: Vec<i32> = (0..batch).flat_map(|b| (0..entries).map(move |entry| place(b, entry))).collect();
    let slot = |b: usize| match positions[b] {
        position @ 0.. => place(b, position as usize / page) * page as i32 + position % page as i32,
        _ => (spare * page + b) as i32,
    };
    let slots: Vec<i32> = (0..batch).map(slot).collect();
    let random = |dtype, heads: usize, width: usize, seed| HostTensor::random(dtype, &[batch, heads, width], -1.0, 1.0, seed);
    // What lies at the slots before must not matter.
    let filled = |width: usize, seed| {
        let filled = stored(kv, &[d.kv_heads, pages * page, width], seed);
        let (extent, mut values) = (filled.dims()[2], filled.to_f64());
        let unknown = if kv == DType::U8 { 255.0 } else { f64::NAN };
        for (head, &slot) in (0..d.kv_heads).flat_map(|head| slots.iter().map(move |slot| (head, slot))) {
            values[(head * pages * page + slot as usize) * extent..][..extent].fill(unknown);
        }
        HostTensor::from_f64(kv, filled.dims(), &values)
    };
    let inputs = [
        filled(d.width, 71),
        random(rows, d.kv_heads, d.width, 72),
        HostTensor::new(&[batch], positions),
        HostTensor::new(&[rotary / 2], &frequencies(&RopeScaling::None, 10_000.0, rotary)?),
        filled(d.value_width, 73),
        random(rows, d.kv_heads, d.value_width, 74),
        random(rows, d.heads, d.width, 75),
        HostTensor::new(&[batch], &slots),
        HostTensor::new(&[batch, entries], &table),
    ];
    let PagedDecodeAttention { scale, softcap, left_window, .. } = operator;
    let scoring = Scoring { scale, softcap, left_window, causal: true, ..Scoring::default() };
    // Rotated elements, up to 1.5, are rounded to the rows' type and to the cache's: what that makes of scores and values.
    let furthest = positions.iter().max().copied().unwrap_or(0).max(0);
    let rounding = 1.5 * (unit(rows) + unit(kv)) + 1e-6 * f64::from(furthest);
    // Unless strict: queries and weights are rounded to the cache's type too.
    let twice = if operator.precision == Precision::Strict { 1.0 } else { 2.0 };
    let bound = Bound::EXACT.with_absolute(bound(d, &scoring) + 4.0 * twice * rounding);
    let dims = [AT.cache, AT.value_cache].map(|index| inputs[index].dims().to_vec());
    let case = Case::new(operator, inputs.map(Some), bound, move |inputs| {
        let rotated = |rows: &[f64], heads: usize| -> Vec<f64> {
            let of_row = |(row, values): (usize, &[f64])| {
                let position = positions[row / heads];
                let angles: Vec<f64> = inputs[AT.frequencies].iter().map(|&f| f64::from(position as f32 * f as f32)).collect();
                rotate(values, &angles, operator.interleaved)
            };
            rows.chunks(d.width).enumerate().flat_map(of_row).collect()
        };
        let appended = |index: usize, rows: &[f64], width: usize| {
            let mut cache = elements(kv, &dims[usize::from(index == AT.value_cache)], &inputs[index]);
            for (i, row) in rows.chunks(width).enumerate() {
                let (b, head) = (i / d.kv_heads, i % d.kv_heads);
                cache[(head * pages * page + slots[b] as usize) * width..][..width].copy_from_slice(row);
            }
            cache
        };
        let keys = appended(AT.cache, &rotated(&inputs[AT.rows], d.kv_heads), d.width);
        let values = appended(AT.value_cache, &inputs[AT.values], d.value_width);
        // The keys of each text in one piece; zeros where there is no page.
        let gathered = |all: &[f64], width: usize| -> Vec<f64> {
            let mut gathered = Vec::new();
            for (b, head) in (0..batch).flat_map(|b| (0..d.kv_heads).map(move |head| (b, head))) {
                for &entry in &table[b * entries..][..entries] {
                    match usize::try_from(entry).ok().filter(|&entry| entry < pages) {
                        Some(entry) => gathered.extend_from_slice(&all[(head * pages + entry) * page * width..][..page * width]),
                        None => gathered.extend(vec![0.0; page * width]),
                    }
                }
            }
            gathered
        };
        let places: Vec<f64> = positions.iter().map(|&position| f64::from(position)).collect();
        let (own_keys, own_values) = (gathered(&keys, d.width), gathered(&values, d.value_width));
        let scores = scores(&scoring, d, &[], &rotated(&inputs[AT.queries], d.heads), &own_keys, &[vec![], places, vec![]]);
        vec![weighted_sum(d, &probabilities(&scores, d.keys), &own_values), keys, values]
    });
    Ok(case.updating(AT.cache).updating(AT.value_cache).with_packed_caches())
}

pub(crate) fn cases() -> Vec<Case> {
    let plain = PagedDecodeAttention::default();
    // So small that numbers near zero are tried of it, too.
    let mut cases = vec![case(plain, Dims::new(2, 1, 1, 32, 8), PAIRS[0], 8, &[20, 3])];
    // The first token of a text, the last of a page, tokens of no text, the first and the last of a page, the last of the table.
    const PLACES: &[i32] = &[0, 31, -1, 128, 255, -1, 319];
    for (i, types) in PAIRS.into_iter().chain([PACKED]).enumerate() {
        cases.push(case(plain, Dims::new(4, 2, 1, 320, 64), types, 64, PLACES));
        let interleaved = PagedDecodeAttention { interleaved: i % 2 == 0, page: 64, ..plain };
        cases.push(case(interleaved, Dims::new(6, 2, 1, 128, 32), types, 32, &[100, 3]));
    }
    let window = PagedDecodeAttention { left_window: Some(40), softcap: 0.7, scale: Some(0.5), ..plain };
    cases.push(case(window, Dims { value_width: 37, ..Dims::new(4, 2, 1, 96, 40) }, PAIRS[0], 24, &[80, 20]));
    // In blocks of keys, by clusters of each number of thread blocks: a text and many, of one block and of several, more blocks than thread blocks.
    for (i, &types) in PAIRS[1..].iter().enumerate() {
        let invariant = PagedDecodeAttention { precision: Precision::Invariant, ..plain };
        for operator in [PagedDecodeAttention { precision: Precision::Fast, ..plain }, invariant] {
            cases.push(case(operator, Dims::new(8, 2, 1, 320, 64), types, 64, PLACES));
        }
        cases.push(case(invariant, Dims::new(8, 8, 1, 2080, 128), types, 128, &[1100, 2079]));
        cases.push(case(invariant, Dims::new(24, 2, 1, 416, 128), types, 64, &[390]));
        const MANY: &[i32] = &[0, 40, 127, 128, 255, 200, 64, -1, 100, 31, 32, 254];
        cases.push(case(invariant, Dims::new(12, 12, 1, 256, 64), types, 64, MANY));
        cases.push(case(PagedDecodeAttention { page: 64, ..invariant }, Dims::new(16, 16, 1, 512, 128), types, 128, &[500, 30, 511, 131]));
        let window = PagedDecodeAttention { left_window: Some(200), scale: Some(0.5), interleaved: i % 2 == 0, ..invariant };
        cases.push(case(window, Dims::new(4, 1, 1, 608, 64), types, 32, &[590, 100, 150]));
        cases.push(case(PagedDecodeAttention { output: Some(DType::BF16), ..invariant }, Dims::new(8, 2, 1, 320, 128), types, 128, PLACES));
    }
    cases.into_iter().map(made).collect()
}
