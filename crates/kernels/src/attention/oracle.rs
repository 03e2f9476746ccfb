//! The naive reference, in f64, and the cases.

use elinvar_core::{DType, Result, Shape};

use super::{Attention, Scoring};
use crate::{
    Precision,
    conformance::case::{Bound, Case, HostTensor, made},
    quantized::Format,
    quantized_linear::oracle::random_rows,
};

/// Extents of `q [B, Hq, Tq, D]`, `k [B, Hkv, Tk, D]`, `v [B, Hkv, Tk, Dv]`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dims {
    pub(crate) batch: usize,
    pub(crate) heads: usize,
    pub(crate) kv_heads: usize,
    pub(crate) queries: usize,
    pub(crate) keys: usize,
    pub(crate) width: usize,
    pub(crate) value_width: usize,
}

impl Dims {
    /// One sequence with `D = Dv`.
    pub(crate) const fn new(heads: usize, kv_heads: usize, queries: usize, keys: usize, width: usize) -> Self {
        Self { batch: 1, heads, kv_heads, queries, keys, width, value_width: width }
    }

    /// Every `(b, h, t)` in order.
    pub(crate) fn rows(self) -> impl Iterator<Item = [usize; 3]> {
        (0..self.batch * self.heads * self.queries).map(move |i| [i / self.queries / self.heads, i / self.queries % self.heads, i % self.queries])
    }
}

/// Random keys or values of a cache, at most one; bytes are packed rows.
pub(crate) fn cache(dtype: DType, dims: &[usize], seed: u64) -> HostTensor {
    match dims.split_last() {
        Some((&width, rows)) if dtype == DType::U8 => {
            let packed = random_rows(Format::Q8_0, rows.iter().product(), width, seed);
            HostTensor::new(&[rows, &packed.dims()[1..]].concat(), packed.bytes())
        }
        _ => HostTensor::random(dtype, dims, -1.0, 1.0, seed),
    }
}

/// The elements of a cache of these extents.
pub(crate) fn elements(dtype: DType, dims: &[usize], values: &[f64]) -> Vec<f64> {
    if dtype != DType::U8 {
        return values.to_vec();
    }
    // A row has a multiple of 32 bytes, two for each of those 32, and less than 16 more.
    let extent = dims.last().copied().unwrap_or(0).max(1);
    let width = extent / 34 * 32;
    let row = |bytes: &[f64]| {
        let scale = |i: usize| half::f16::from_le_bytes([0, 1].map(|byte| bytes[width + i / 32 * 2 + byte] as u8)).to_f64();
        (0..width).map(|i| scale(i) * f64::from((bytes[i] as u8).cast_signed())).collect::<Vec<_>>()
    };
    values.chunks_exact(extent).flat_map(row).collect()
}

/// Scores `[B, Hq, Tq, Tk]`, −∞ where a key is not attended. `rest` holds mask, positions and lengths; an absent one is empty.
pub(crate) fn scores(s: &Scoring, d: Dims, mask_dims: &[usize], q: &[f64], k: &[f64], rest: &[Vec<f64>]) -> Vec<f64> {
    let [mask, positions, lengths] = rest else { return Vec::new() };
    let scale = f64::from(s.scale.unwrap_or(1.0 / (d.width as f32).sqrt()));
    let row = |[b, h, t]: [usize; 3]| {
        let position = match positions.len() {
            0 => s.offset + t as i64,
            n if n == d.queries => positions[t] as i64,
            _ => positions[b * d.queries + t] as i64,
        };
        let query = &q[((b * d.heads + h) * d.queries + t) * d.width..][..d.width];
        (0..d.keys).map(move |j| {
            let key = &k[((b * d.kv_heads + h / (d.heads / d.kv_heads)) * d.keys + j) * d.width..][..d.width];
            let after = j as i64 - position;
            let attended = (lengths.is_empty() || (j as f64) < lengths[b])
                && !(s.causal && after > 0)
                && s.left_window.is_none_or(|w| -after <= w as i64)
                && s.right_window.is_none_or(|w| after <= w as i64);
            let dot = query.iter().zip(key).map(|(a, b)| a * b).sum::<f64>() * scale;
            let cap = f64::from(s.softcap);
            let score = if cap > 0.0 { cap * (dot / cap).tanh() } else { dot };
            match mask_dims.is_empty() {
                _ if !attended => f64::NEG_INFINITY,
                true => score,
                false => score + mask[broadcast(mask_dims, [b, h, t, j])],
            }
        })
    };
    d.rows().flat_map(row).collect()
}

/// Index of an element of a tensor of up to four axes that is broadcast.
fn broadcast(dims: &[usize], at: [usize; 4]) -> usize {
    dims.iter().zip(&at[4 - dims.len()..]).fold(0, |index, (&n, &i)| index * n + if n == 1 { 0 } else { i })
}

/// Softmax of each row; a row without a key becomes zeros.
pub(crate) fn probabilities(scores: &[f64], keys: usize) -> Vec<f64> {
    let row = |row: &[f64]| -> Vec<f64> {
        let max = row.iter().copied().fold(f64::NEG_INFINITY, |max, s| if s > max || s.is_nan() { s } else { max });
        let weights: Vec<f64> = row.iter().map(|s| if max == f64::NEG_INFINITY { 0.0 } else { (s - max).exp() }).collect();
        let sum = weights.iter().sum::<f64>().max(f64::MIN_POSITIVE);
        weights.iter().map(|w| w / sum).collect()
    };
    scores.chunks(keys.max(1)).flat_map(row).collect()
}

/// `p v`, passing over keys without weight.
pub(crate) fn weighted_sum(d: Dims, p: &[f64], v: &[f64]) -> Vec<f64> {
    let element = |(row, [b, h, _]): (usize, [usize; 3]), e: usize| {
        let head = b * d.kv_heads + h / (d.heads / d.kv_heads);
        let weights = p[row * d.keys..][..d.keys].iter().enumerate().filter(|(_, p)| **p != 0.0);
        weights.map(|(j, p)| p * v[(head * d.keys + j) * d.value_width + e]).sum()
    };
    d.rows().enumerate().flat_map(|row| (0..d.value_width).map(move |e| element(row, e))).collect()
}

/// Inputs besides `q`, `k`, `v`; the mask's values are added (a bool mask is known by its type).
#[derive(Default)]
pub(crate) struct Extra {
    pub(crate) mask: Option<HostTensor>,
    pub(crate) positions: Option<HostTensor>,
    pub(crate) lengths: Option<HostTensor>,
}

/// The mask as what is added to the scores.
pub(crate) fn additive(mask: &Option<HostTensor>, values: &[f64]) -> Vec<f64> {
    let is_bool = mask.as_ref().is_some_and(|m| m.dtype() == DType::Bool);
    values
        .iter()
        .map(|&m| {
            if !is_bool {
                m
            } else if m == 0.0 {
                f64::NEG_INFINITY
            } else {
                0.0
            }
        })
        .collect()
}

/// Error bound for values and products up to one in magnitude: see the documentation of the operator.
pub(crate) fn bound(d: Dims, s: &Scoring) -> f64 {
    let e = f64::from(s.scale.unwrap_or(1.0 / (d.width as f32).sqrt())) * d.width as f64 * 0.4;
    (2.0 * (13.0 * e + 4.0) + 60.0 + 6.0 * d.keys.div_ceil(256) as f64) * 2f64.powi(-24)
}

/// The same by simdgroup matrices; masks add at most one.
fn matrix_bound(d: Dims, s: &Scoring) -> f64 {
    let e = f64::from(s.scale.unwrap_or(1.0 / (d.width as f32).sqrt())) * d.width as f64 * 0.4;
    let keys = d.keys.max(1) as f64;
    (2.0 * (d.width as f64 * e + 10.0 * (e + 1.0) + 6.0 + 4.0 * keys.log2()) + 1.1 * keys + 16.0) * 2f64.powi(-24)
}

/// On tensor cores, which take no mask, weights and queries are rounded to the type of the keys, `unmasked`; the output's own rounding is included.
pub(crate) fn bound_of(precision: Precision, unmasked: Option<DType>, d: Dims, scoring: &Scoring) -> Bound {
    let tensor_cores = [64, 128].contains(&d.width) && d.width == d.value_width && scoring.softcap == 0.0;
    match (precision, unmasked) {
        (Precision::Fast, Some(DType::F16 | DType::U8)) | (Precision::Invariant, Some(DType::F16)) if tensor_cores => {
            Bound::normalised(2.0 * 2f64.powi(-11))
        }
        (Precision::Fast | Precision::Invariant, Some(DType::BF16)) if tensor_cores => Bound::normalised(2.0 * 2f64.powi(-8)),
        (Precision::Strict | Precision::Invariant, _) => Bound::EXACT.with_absolute(bound(d, scoring)),
        (Precision::Fast, _) => Bound::EXACT.with_absolute(matrix_bound(d, scoring)),
    }
}

fn case(scoring: Scoring, d: Dims, [q, kv]: [DType; 2], extra: Extra) -> Case {
    let random = |dtype, dims: [usize; 4], seed: u64| HostTensor::random(dtype, &dims, -1.0, 1.0, seed + d.keys as u64);
    let q = random(q, [d.batch, d.heads, d.queries, d.width], 1);
    let k = cache(kv, &[d.batch, d.kv_heads, d.keys, d.width], 2 + d.keys as u64);
    let v = cache(kv, &[d.batch, d.kv_heads, d.keys, d.value_width], 3 + d.keys as u64);
    case_of(Attention { scoring, ..Attention::default() }, d, [q, k, v], extra)
}

fn case_of(operator: Attention, d: Dims, [q, k, v]: [HostTensor; 3], extra: Extra) -> Case {
    let (mask, scoring) = (extra.mask.clone(), operator.scoring);
    let bound = bound_of(operator.precision, extra.mask.is_none().then_some(k.dtype()), d, &scoring);
    let [stored_keys, stored_values] = [&k, &v].map(|tensor| (tensor.dtype(), tensor.dims().to_vec()));
    let inputs = [Some(q), Some(k), Some(v), extra.mask, extra.positions, extra.lengths];
    Case::new(operator, inputs, bound, move |inputs| {
        let keys = elements(stored_keys.0, &stored_keys.1, &inputs[1]);
        let values = elements(stored_values.0, &stored_values.1, &inputs[2]);
        let rest = [additive(&mask, &inputs[3]), inputs[4].clone(), inputs[5].clone()];
        let scores = scores(&scoring, d, mask.as_ref().map_or(&[], |m| m.dims()), &inputs[0], &keys, &rest);
        let y = weighted_sum(d, &probabilities(&scores, d.keys), &values);
        vec![if operator.tokens_first { tokens_first(d, &y) } else { y }]
    })
}

/// `[B, Hq, Tq, Dv]` as `[B, Tq, Hq, Dv]`.
pub(crate) fn tokens_first(d: Dims, y: &[f64]) -> Vec<f64> {
    let row = |[b, h, t]: [usize; 3]| &y[((b * d.heads + h) * d.queries + t) * d.value_width..][..d.value_width];
    let places = (0..d.batch).flat_map(|b| (0..d.queries).flat_map(move |t| (0..d.heads).map(move |h| [b, h, t])));
    places.flat_map(row).copied().collect()
}

pub(crate) const PAIRS: [[DType; 2]; 5] =
    [[DType::F32, DType::F32], [DType::F32, DType::BF16], [DType::F32, DType::F16], [DType::F16, DType::F16], [DType::BF16, DType::BF16]];

/// Queries beside packed rows.
pub(crate) const PACKED: [DType; 2] = [DType::F32, DType::U8];

/// Queries, and keys whose weights grow from the last one to the first, by a hundred times and more every 128 keys.
fn growing(dtype: DType, d: Dims) -> [HostTensor; 2] {
    let random = |heads, rows, seed| HostTensor::random(dtype, &[d.batch, heads, rows, d.width], 0.0, 1.0, seed);
    let (q, k) = (random(d.heads, d.queries, 61), random(d.kv_heads, d.keys, 62));
    let factor = |at: usize| 16.0 - 15.0 * (at / d.width % d.keys) as f64 / d.keys as f64;
    let grown: Vec<f64> = k.to_f64().into_iter().enumerate().map(|(at, x)| x * factor(at)).collect();
    [q, HostTensor::from_f64(dtype, k.dims(), &grown)]
}

/// Positions `start, start + 1, …`.
fn positions(start: i32, count: usize) -> Option<HostTensor> {
    Some(HostTensor::new(&[count], &(start..start + count as i32).collect::<Vec<_>>()))
}

pub(crate) fn cases() -> Vec<Case> {
    let plain = Scoring::default();
    let causal = Scoring { causal: true, ..plain };
    let mut cases = Vec::new();
    for (i, keys) in [1, 31, 32, 33, 255, 256, 257, 600].into_iter().enumerate() {
        cases.push(case(plain, Dims::new(3, 3, 2, keys, 64), PAIRS[i % 5], Extra::default()));
        // One query at the end of a cache that is not full, as in decoding.
        let extra = Extra { positions: positions(keys as i32 - 1, 1), ..Extra::default() };
        cases.push(case(causal, Dims::new(8, 2, 1, keys + 40, 32), PAIRS[(i + 1) % 5], extra));
    }
    for (i, width) in [1, 8, 32, 64, 80, 128, 256, 300, 31].into_iter().enumerate() {
        let d = Dims { value_width: if width == 80 { 50 } else { width }, ..Dims::new(4, 2, 5, 290, width) };
        cases.push(case(Scoring { offset: 280, ..causal }, d, PAIRS[i % 5], Extra::default()));
    }
    for pair in PAIRS {
        // Prefill of a prompt: more rows than a task takes, and a second block.
        cases.push(case(
            causal,
            Dims { batch: 2, ..Dims::new(6, 2, 70, 300, 32) },
            pair,
            Extra { positions: positions(200, 70), ..Extra::default() },
        ));
    }
    // Enough rows to walk over the blocks one after the other, with wide values; and more blocks than are combined at once.
    let d = Dims { value_width: 200, ..Dims::new(16, 16, 40, 520, 24) };
    cases.push(case(Scoring { offset: 490, ..causal }, d, PAIRS[1], Extra::default()));
    // A panel and a few rows more, of each width of keys that parts make.
    for (width, pair) in [(64, PAIRS[3]), (128, PAIRS[0]), (130, PAIRS[2])] {
        let scoring = Scoring { offset: 40, softcap: 3.0, left_window: Some(50), ..causal };
        cases.push(case(scoring, Dims::new(4, 1, 9, 70, width), pair, Extra::default()));
    }
    // Panels enough for a large GPU.
    cases.push(case(causal, Dims::new(9, 9, 33, 40, 128), PAIRS[4], Extra::default()));
    cases.push(case(causal, Dims::new(2, 1, 1, 33_100, 4), PAIRS[4], Extra { positions: positions(33_000, 1), ..Extra::default() }));
    // Tiles of one row and of several on a large GPU, of the widest keys that models have.
    for keys in [600, 5000] {
        cases.push(case(plain, Dims::new(32, 8, 1, keys, 128), PAIRS[4], Extra::default()));
    }
    // Clusters of each size up to the largest; one that has no more room.
    for (i, keys) in [500, 700, 1024, 1100, 1500, 1700, 2048, 2049].into_iter().enumerate() {
        cases.push(case(plain, Dims::new(4, 1, 1, keys, 128), PAIRS[(i + 2) % 5], Extra::default()));
    }
    cases.extend(packed_cases());
    cases.extend(masked_cases());
    cases.extend(odd_cases());
    cases.extend(strided_cases());
    cases.extend(fast_cases());
    cases
}

/// Rows packed in blocks: of one block, of as many elements as lanes take at once, of others, and of more than there are accumulators.
fn packed_cases() -> Vec<Case> {
    let causal = Scoring { causal: true, ..Scoring::default() };
    let of = |operator: Attention, d: Dims, extra: Extra| {
        let q = HostTensor::random(DType::F32, &[d.batch, d.heads, d.queries, d.width], -1.0, 1.0, 81);
        let [k, v] = [(d.width, 82), (d.value_width, 83)].map(|(width, seed)| cache(DType::U8, &[d.batch, d.kv_heads, d.keys, width], seed));
        case_of(operator, d, [q, k, v], extra)
    };
    let strict = |scoring: Scoring| Attention { scoring, ..Attention::default() };
    let mut cases = Vec::new();
    for (width, value_width) in [(32, 32), (64, 128), (96, 64), (128, 96), (256, 160), (320, 32)] {
        // Prefill, and one query of a cache that is not full.
        let d = Dims { value_width, ..Dims::new(4, 2, 5, 290, width) };
        cases.push(of(strict(Scoring { offset: 280, ..causal }), d, Extra::default()));
        cases.push(of(strict(causal), Dims { queries: 1, keys: 600, ..d }, Extra { positions: positions(500, 1), ..Extra::default() }));
    }
    let prompt = Dims { batch: 2, ..Dims::new(6, 2, 70, 300, 64) };
    cases.push(of(strict(causal), prompt, Extra { positions: positions(200, 70), ..Extra::default() }));
    let windowed = Scoring { left_window: Some(3), softcap: 0.7, ..Scoring::default() };
    let mask = Some(HostTensor::random(DType::F32, &[7, 270], -2.0, 2.0, 9));
    cases.push(of(strict(windowed), Dims::new(4, 2, 7, 270, 32), Extra { mask, positions: positions(255, 7), ..Extra::default() }));
    // For many queries they are decoded for matrix units, to f16.
    let fast = |scoring| Attention { scoring, precision: Precision::Fast, ..Attention::default() };
    cases.push(of(fast(Scoring { offset: 90, ..causal }), Dims::new(4, 2, 70, 200, 64), Extra::default()));
    cases.push(of(fast(causal), Dims { batch: 2, ..Dims::new(4, 2, 70, 180, 128) }, Extra { positions: positions(100, 70), ..Extra::default() }));
    cases.push(of(fast(Scoring { offset: 649, ..causal }), Dims::new(8, 2, 1, 700, 128), Extra::default()));
    cases.push(made(packed_strided()));
    cases
}

/// Token by token; rows of which the next begins at any byte, backwards.
fn packed_strided() -> Result<Case> {
    let d = Dims::new(4, 2, 6, 40, 64);
    let q = HostTensor::random(DType::F32, &[1, 4, 6, 64], -1.0, 1.0, 84);
    let k = cache(DType::U8, &[1, 40, 2, 64], 85).viewed(|layout| layout.permute(&[0, 2, 1, 3]))?;
    let rows = cache(DType::U8, &[1, 2, 50, 64], 86);
    let apart: Vec<u8> = rows.bytes().chunks_exact(80).flat_map(|row| [row, &[255; 3]].concat()).collect();
    let v = HostTensor::new(&[1, 2, 50, 83], &apart).viewed(|layout| layout.slice(3, 0, 80, 1)?.slice(2, 44, 40, -1))?;
    let scoring = Scoring { causal: true, offset: 34, ..Scoring::default() };
    Ok(case_of(Attention { scoring, tokens_first: true, ..Attention::default() }, d, [q, k, v], Extra::default()))
}

fn masked_cases() -> Vec<Case> {
    let plain = Scoring::default();
    let d = Dims { batch: 2, ..Dims::new(4, 2, 7, 270, 24) };
    let mask = |dtype, dims: &[usize]| {
        let (low, high) = if dtype == DType::Bool { (0.0, 1.0) } else { (-2.0, 2.0) };
        let values = HostTensor::random(DType::F32, dims, low, high, 9).to_f64();
        let round = |v: f64| {
            if dtype == DType::Bool {
                v.round()
            } else if v > 1.7 {
                f64::NEG_INFINITY
            } else {
                v
            }
        };
        Some(HostTensor::from_f64(dtype, dims, &values.into_iter().map(round).collect::<Vec<_>>()))
    };
    let lengths = |values: &[i32]| Some(HostTensor::new(&[values.len()], values));
    let windows = [(Some(3), None), (None, Some(2)), (Some(100), Some(0)), (Some(0), Some(0))];
    let mut cases: Vec<_> = windows
        .into_iter()
        .map(|(left_window, right_window)| {
            let extra = Extra { positions: positions(255, 7), ..Extra::default() };
            case(Scoring { left_window, right_window, ..plain }, d, PAIRS[0], extra)
        })
        .collect();
    // A sequence that ends before the windows begin.
    let extra = Extra { positions: positions(255, 7), lengths: lengths(&[270, 5]), ..Extra::default() };
    cases.push(case(Scoring { left_window: Some(3), ..plain }, d, PAIRS[0], extra));
    let softcap = Scoring { softcap: 0.7, scale: Some(0.5), ..plain };
    cases.push(case(softcap, d, PAIRS[0], Extra { mask: mask(DType::F32, &[7, 270]), ..Extra::default() }));
    cases.push(case(plain, d, PAIRS[1], Extra { mask: mask(DType::Bool, &[2, 1, 7, 270]), lengths: lengths(&[270, 11]), ..Extra::default() }));
    cases.push(case(plain, d, PAIRS[3], Extra { mask: mask(DType::F16, &[4, 1, 270]), lengths: lengths(&[0, 300]), ..Extra::default() }));
    cases.push(case(plain, d, PAIRS[4], Extra { mask: mask(DType::BF16, &[2, 4, 7, 1]), ..Extra::default() }));
    // Rows with every key masked, before and after a row with one key.
    let mut attend = vec![0.0; 7 * 270];
    attend[3 * 270 + 260] = 1.0;
    let extra = Extra { mask: Some(HostTensor::from_f64(DType::Bool, &[7, 270], &attend)), ..Extra::default() };
    cases.push(case(Scoring { causal: true, offset: 265, ..plain }, d, PAIRS[0], extra));
    let per_sequence = HostTensor::new(&[2, 7], &[-3i32, -2, -1, 0, 1, 2, 3, 250, 251, 252, 253, 254, 400, 0]);
    cases.push(case(Scoring { causal: true, ..plain }, d, PAIRS[0], Extra { positions: Some(per_sequence), ..Extra::default() }));
    cases
}

fn odd_cases() -> Vec<Case> {
    let causal = Scoring { causal: true, ..Scoring::default() };
    let empty = |d: Dims| case(causal, d, PAIRS[0], Extra::default());
    let d = Dims::new(2, 1, 3, 4, 8);
    let mut cases =
        vec![empty(Dims { batch: 0, ..d }), empty(Dims { queries: 0, ..d }), empty(Dims { keys: 0, ..d }), empty(Dims { value_width: 0, ..d })];
    // What lies in a cache after the last key must not matter, nor must great scores.
    let d = Dims::new(2, 1, 3, 300, 16);
    let wild = |dims: &[usize], high: f64, seed| {
        let mut values = HostTensor::random(DType::F32, dims, -high, high, seed).to_f64();
        values[280 * 16..].fill(f64::NAN);
        HostTensor::from_f64(DType::F32, dims, &values)
    };
    let q = HostTensor::random(DType::F32, &[1, 2, 3, 16], -20.0, 20.0, 4);
    let kv = [1, 1, 300, 16];
    let scoring = Scoring { scale: Some(1e-3), ..causal };
    let operator = Attention { scoring, ..Attention::default() };
    cases.push(case_of(operator, d, [q, wild(&kv, 40.0, 5), wild(&kv, 1.0, 6)], Extra { positions: positions(277, 3), ..Extra::default() }));
    cases
}

fn strided_cases() -> Vec<Case> {
    let d = Dims { batch: 2, ..Dims::new(4, 2, 20, 40, 32) };
    let stored = |dtype, dims: [usize; 4], seed| HostTensor::random(dtype, &dims, -1.0, 1.0, seed);
    let heads_second = |t: HostTensor| t.viewed(|layout| layout.permute(&[0, 2, 1, 3]));
    let operator = Attention { scoring: Scoring { causal: true, offset: 20, ..Scoring::default() }, tokens_first: true, ..Attention::default() };
    let cases = PAIRS.map(|[q, kv]| -> Result<Case> {
        // Queries and keys token by token; a part of the values, backwards; a mask whose rows are its columns.
        let q = heads_second(stored(q, [2, 20, 4, 32], 31))?;
        let k = heads_second(stored(kv, [2, 40, 2, 32], 32))?;
        let v = stored(kv, [2, 2, 50, 32], 33).viewed(|layout| layout.slice(2, 44, 40, -1))?;
        let mask = HostTensor::random(DType::F32, &[40, 20], -1.0, 1.0, 34).viewed(|layout| layout.permute(&[1, 0]))?;
        Ok(case_of(operator, d, [q, k, v], Extra { mask: Some(mask), ..Extra::default() }))
    });
    // A window that begins one key after a group of 32 does, and values one element narrower than the words of their rows, of which the last ends the input.
    let d = Dims { value_width: 31, ..Dims::new(1, 1, 1, 65, 16) };
    let window = Attention { scoring: Scoring { causal: true, offset: 64, left_window: Some(31), ..Scoring::default() }, ..Attention::default() };
    let narrow = stored(DType::F32, [1, 1, 65, 32], 35).viewed(|layout| layout.slice(3, 0, 31, 1));
    let [q, k] = [1, 65].map(|rows| stored(DType::F32, [1, 1, rows, 16], 36));
    let narrow = narrow.map(|v| case_of(window, d, [q, k, v], Extra::default()));
    cases.into_iter().chain([narrow]).map(made).collect()
}

/// What a device may compute on matrix units.
fn fast_cases() -> Vec<Case> {
    let causal = Scoring { causal: true, ..Scoring::default() };
    let of = |precision: Precision, scoring: Scoring, d: Dims, [q, kv]: [DType; 2], extra: Extra| {
        let random = |dtype, dims: [usize; 4], seed: u64| HostTensor::random(dtype, &dims, -1.0, 1.0, seed + d.keys as u64);
        let q = random(q, [d.batch, d.heads, d.queries, d.width], 41);
        let mut kv = [42, 43].map(|seed| random(kv, [d.batch, d.kv_heads, d.keys, d.width], seed));
        if let Some(first) = scoring.causal.then_some(scoring.offset as usize + d.queries).filter(|&n| scoring.offset > 0 && n < d.keys) {
            kv = kv.map(|t| without_rows_from(first, d, &t));
        }
        let [k, v] = kv;
        case_of(Attention { scoring, precision, ..Attention::default() }, d, [q, k, v], extra)
    };
    let fast = |scoring, d, pair, extra| of(Precision::Fast, scoring, d, pair, extra);
    let mut cases = Vec::new();
    for pair in &PAIRS[1..] {
        // A second tile of queries, more blocks of keys than one, and a cache that is not full.
        cases.push(fast(Scoring { offset: 90, ..causal }, Dims::new(4, 2, 135, 300, 64), *pair, Extra::default()));
        cases.push(fast(causal, Dims::new(2, 1, 70, 150, 128), *pair, Extra { positions: positions(80, 70), ..Extra::default() }));
    }
    let [wide, narrow] = [PAIRS[1], PAIRS[3]];
    cases.push(fast(Scoring::default(), Dims::new(2, 2, 64, 257, 64), narrow, Extra::default()));
    cases.push(fast(Scoring { left_window: Some(20), offset: 200, ..causal }, Dims::new(2, 1, 130, 330, 64), narrow, Extra::default()));
    cases.push(fast(Scoring { right_window: Some(2), ..Scoring::default() }, Dims::new(1, 1, 66, 140, 128), wide, Extra::default()));
    // Sequences without a key and with all of them; positions in no order, some of them before the first key.
    let lengths = Some(HostTensor::new(&[3], &[0, 33, 130]));
    cases.push(fast(Scoring::default(), Dims { batch: 3, ..Dims::new(2, 1, 65, 130, 64) }, wide, Extra { lengths, ..Extra::default() }));
    let places: Vec<i32> = (0..2 * 80).map(|i| i * 37 % 190 - 5).collect();
    let extra = Extra { positions: Some(HostTensor::new(&[2, 80], &places)), ..Extra::default() };
    cases.push(fast(causal, Dims { batch: 2, ..Dims::new(2, 2, 80, 170, 64) }, narrow, extra));
    cases.push(fast(causal, Dims { keys: 0, ..Dims::new(1, 1, 64, 1, 64) }, narrow, Extra::default()));
    for pair in &PAIRS[1..] {
        // One query over a cache that is not full, and more rows than a tile has.
        cases.push(fast(Scoring { offset: 649, ..causal }, Dims::new(8, 2, 1, 700, 128), *pair, Extra::default()));
        cases.push(fast(Scoring { offset: 300, ..causal }, Dims::new(6, 2, 5, 310, 64), *pair, Extra::default()));
        // The same of more keys than a cluster takes.
        cases.push(fast(Scoring { offset: 2449, ..causal }, Dims::new(8, 2, 1, 2500, 128), *pair, Extra::default()));
        cases.push(fast(Scoring { offset: 2300, ..causal }, Dims::new(6, 2, 5, 2310, 64), *pair, Extra::default()));
        // So many heads that there are few parts of each one's keys, of which a warp takes several steps.
        cases.push(fast(Scoring { offset: 3949, ..causal }, Dims::new(8, 8, 1, 4000, 128), *pair, Extra::default()));
    }
    cases.push(fast(Scoring { left_window: Some(20), offset: 250, ..causal }, Dims::new(2, 1, 4, 330, 64), narrow, Extra::default()));
    cases.push(fast(Scoring { right_window: Some(2), ..Scoring::default() }, Dims::new(1, 1, 6, 270, 128), wide, Extra::default()));
    cases.push(fast(causal, Dims::new(2, 1, 1, 33_100, 64), narrow, Extra { positions: positions(33_000, 1), ..Extra::default() }));
    for keys in [600, 2100, 3100] {
        let lengths = Some(HostTensor::new(&[3], &[0, 33, keys as i32]));
        cases.push(fast(Scoring::default(), Dims { batch: 3, ..Dims::new(2, 1, 1, keys, 64) }, wide, Extra { lengths, ..Extra::default() }));
    }
    let extra = Extra { positions: Some(HostTensor::new(&[2, 4], &[-5, 299, 17, 400, 3, -1, 255, 256])), ..Extra::default() };
    cases.push(fast(causal, Dims { batch: 2, ..Dims::new(2, 1, 4, 300, 128) }, narrow, extra));
    cases.push(fast(causal, Dims::new(1, 1, 0, 300, 64), narrow, Extra::default()));
    // Keys that all batches share, and values backwards: rows that no tensor map has.
    for (dtype, width) in [(DType::BF16, 64), (DType::F16, 128)] {
        let stored = |dims: [usize; 4], seed| HostTensor::random(dtype, &dims, -1.0, 1.0, seed);
        let k = stored([1, 2, 150, width], 46).viewed(|layout| layout.broadcast_to(Shape::new(&[2, 2, 150, width])?));
        let v = stored([2, 2, 160, width], 47).viewed(|layout| layout.slice(2, 154, 150, -1));
        let operator = Attention { scoring: Scoring { offset: 80, ..causal }, precision: Precision::Fast, ..Attention::default() };
        let d = Dims { batch: 2, ..Dims::new(4, 2, 70, 150, width) };
        cases.push(case_of(operator, d, [stored([2, 4, 70, width], 45), made(k), made(v)], Extra::default()));
    }
    // Weights that grow out of what they are relative to, again and again.
    for (dtype, width) in [(DType::F16, 64), (DType::BF16, 128)] {
        let d = Dims::new(2, 1, 70, 520, width);
        let ([q, k], v) = (growing(dtype, d), HostTensor::random(dtype, &[1, 1, 520, width], -1.0, 1.0, 63));
        let operator = Attention { scoring: Scoring { offset: 450, ..causal }, precision: Precision::Fast, ..Attention::default() };
        cases.push(case_of(operator, d, [q, k, v], Extra::default()));
    }
    // A query that is no number gives none; the others of its tile do.
    let d = Dims::new(4, 2, 1, 300, 64);
    let operator = Attention { precision: Precision::Fast, ..Attention::default() };
    let [mut q, k, v] =
        [(4, 1), (2, 300), (2, 300)].map(|(heads, rows)| HostTensor::random(DType::F16, &[1, heads, rows, 64], -1.0, 1.0, 60 + heads as u64));
    let mut values = q.to_f64();
    values[64 + 3] = f64::NAN;
    q = HostTensor::from_f64(DType::F16, q.dims(), &values);
    cases.push(case_of(operator, d, [q, k, v], Extra::default()));
    cases.extend(PAIRS.into_iter().flat_map(|pair| [(66, 70), (3, 270)].map(|(queries, keys)| made(fast_strided(pair, queries, keys)))));
    // In blocks of keys: tiles that have all their blocks or share them out, rows that are no whole tiles, a cache that is not full, sequences without a key.
    let invariant = |scoring, d, pair, extra| of(Precision::Invariant, scoring, d, pair, extra);
    for pair in &PAIRS[1..] {
        cases.push(invariant(Scoring { offset: 90, ..causal }, Dims::new(6, 2, 45, 300, 64), *pair, Extra::default()));
        cases.push(invariant(Scoring { offset: 2449, ..causal }, Dims::new(8, 2, 1, 2500, 128), *pair, Extra::default()));
        // Tiles of 16, 32 and 64 rows.
        for (queries, width) in [(3, 128), (7, 64), (15, 128)] {
            cases.push(invariant(Scoring { offset: 250, ..causal }, Dims::new(8, 2, queries, 300, width), *pair, Extra::default()));
        }
        cases.push(invariant(
            causal,
            Dims { batch: 33, ..Dims::new(4, 4, 2, 150, 64) },
            *pair,
            Extra { positions: positions(140, 2), ..Extra::default() },
        ));
    }
    cases.push(invariant(Scoring { left_window: Some(20), offset: 250, ..causal }, Dims::new(2, 1, 4, 330, 64), narrow, Extra::default()));
    for batch in [3, 150] {
        let lengths = Some(HostTensor::new(&[batch], &(0..batch).map(|i| [0, 33, 280][i % 3]).collect::<Vec<_>>()));
        cases.push(invariant(Scoring::default(), Dims { batch, ..Dims::new(2, 2, 1, 280, 64) }, wide, Extra { lengths, ..Extra::default() }));
    }
    cases.extend([270, 4300].map(fast_narrow).map(made));
    cases.extend(matrix_cases());
    cases
}

/// What a device may compute on simdgroup matrices, of extents that are none of theirs, and whatever makes a score.
fn matrix_cases() -> Vec<Case> {
    let plain = Scoring::default();
    let causal = Scoring { causal: true, ..plain };
    let fast = |scoring, d: Dims, [q, kv]: [DType; 2], extra| {
        let random = |dtype, dims: [usize; 4], seed: u64| HostTensor::random(dtype, &dims, -1.0, 1.0, seed + d.width as u64);
        let q = random(q, [d.batch, d.heads, d.queries, d.width], 71);
        let k = random(kv, [d.batch, d.kv_heads, d.keys, d.width], 72);
        let v = random(kv, [d.batch, d.kv_heads, d.keys, d.value_width], 73);
        case_of(Attention { scoring, precision: Precision::Fast, ..Attention::default() }, d, [q, k, v], extra)
    };
    // Three heads a tile's rows, a second tile with one row, a soft cap and what is added to it; rows narrower than a matrix, in keys with no number after each.
    let narrow = Dims { value_width: 15, ..Dims::new(3, 1, 11, 70, 23) };
    let [q, v] = [[1, 3, 11, 23], [1, 1, 70, 15]].map(|dims| HostTensor::random(DType::F32, &dims, -1.0, 1.0, 78));
    let mut k = HostTensor::random(DType::F32, &[1, 1, 70, 24], -1.0, 1.0, 79).to_f64();
    k.iter_mut().skip(23).step_by(24).for_each(|after| *after = f64::NAN);
    let k = made(HostTensor::from_f64(DType::F32, &[1, 1, 70, 24], &k).viewed(|layout| layout.slice(3, 0, 23, 1)));
    let extra = Extra { mask: Some(HostTensor::random(DType::F32, &[3, 11, 70], -1.0, 1.0, 74)), ..Extra::default() };
    let capped = Scoring { softcap: 0.7, scale: Some(0.5), ..plain };
    let mut cases = vec![case_of(Attention { scoring: capped, precision: Precision::Fast, ..Attention::default() }, narrow, [q, k, v], extra)];
    // A window before positions in no order; sequences without keys, with some and with all.
    let places: Vec<i32> = (0..3 * 20).map(|i| i * 37 % 130 - 5).collect();
    let extra =
        Extra { positions: Some(HostTensor::new(&[3, 20], &places)), lengths: Some(HostTensor::new(&[3], &[0, 33, 100])), ..Extra::default() };
    let sequences = Dims { batch: 3, value_width: 41, ..Dims::new(2, 2, 20, 100, 40) };
    cases.push(fast(Scoring { left_window: Some(40), ..causal }, sequences, PAIRS[3], extra));
    for pair in PAIRS {
        // The last tile is no whole one, the keys end within a block, and values are wider than keys.
        cases.push(fast(Scoring { offset: 60, ..causal }, Dims { value_width: 96, ..Dims::new(4, 2, 21, 81, 72) }, pair, Extra::default()));
    }
    // Results of another type.
    for (precision, [q, kv], output) in [
        (Precision::Fast, [DType::F32, DType::BF16], DType::BF16),
        (Precision::Invariant, [DType::F32, DType::BF16], DType::BF16),
        (Precision::Strict, [DType::F16, DType::F16], DType::F32),
    ] {
        let (d, operator) = (Dims::new(4, 2, 70, 70, 64), Attention { scoring: causal, precision, output: Some(output), ..Attention::default() });
        let stored = |dtype, heads, seed| HostTensor::random(dtype, &[1, heads, 70, 64], -1.0, 1.0, seed);
        cases.push(case_of(operator, d, [stored(q, 4, 81), stored(kv, 2, 82), stored(kv, 2, 83)], Extra::default()));
    }
    // A row without a key beside rows with one or all, a query that is no number, and scores that grow from block to block.
    let d = Dims { value_width: 104, ..Dims::new(1, 1, 40, 90, 80) };
    let attended = |i: usize| i / 90 != 5 && (!(i / 90).is_multiple_of(3) || i % 90 == 7);
    let mask: Vec<f64> = (0..40 * 90).map(|i| f64::from(u8::from(attended(i)))).collect();
    let extra = Extra { mask: Some(HostTensor::from_f64(DType::Bool, &[40, 90], &mask)), ..Extra::default() };
    let random = |rows, width, seed| HostTensor::random(DType::F32, &[1, 1, rows, width], -1.0, 1.0, seed);
    let (mut q, mut k) = (random(40, 80, 75).to_f64(), random(90, 80, 76).to_f64());
    q[9 * 80 + 3] = f64::NAN;
    k.iter_mut().enumerate().for_each(|(i, x)| *x *= (i / 80) as f64 / 90.0);
    let [q, k] = [(40, q), (90, k)].map(|(rows, values)| HostTensor::from_f64(DType::F32, &[1, 1, rows, 80], &values));
    let operator = Attention { precision: Precision::Fast, scoring: Scoring { scale: Some(1.0), ..plain }, ..Attention::default() };
    cases.push(case_of(operator, d, [q, k, random(90, 104, 77)], extra));
    cases
}

/// Queries and keys token by token; a part of the values, backwards.
fn fast_strided([q, kv]: [DType; 2], queries: usize, keys: usize) -> Result<Case> {
    let d = Dims::new(4, 2, queries, keys, 64);
    let stored = |dtype, dims: [usize; 4], seed| HostTensor::random(dtype, &dims, -1.0, 1.0, seed);
    let q = stored(q, [1, queries, 4, 64], 51).viewed(|layout| layout.permute(&[0, 2, 1, 3]))?;
    let k = stored(kv, [1, keys, 2, 64], 52).viewed(|layout| layout.permute(&[0, 2, 1, 3]))?;
    let v = stored(kv, [1, 2, keys + 10, 64], 53).viewed(|layout| layout.slice(2, keys + 4, keys, -1))?;
    let scoring = Scoring { causal: true, offset: (keys - queries) as i64, ..Scoring::default() };
    Ok(case_of(Attention { scoring, tokens_first: true, precision: Precision::Fast, output: None }, d, [q, k, v], Extra::default()))
}

/// Keys and values one element apart from the words of their rows.
fn fast_narrow(keys: usize) -> Result<Case> {
    let d = Dims::new(4, 2, 3, keys, 64);
    let q = HostTensor::random(DType::BF16, &[1, 4, 3, 64], -1.0, 1.0, 54);
    let stored = |seed| HostTensor::random(DType::BF16, &[1, 2, keys, 65], -1.0, 1.0, seed).viewed(|layout| layout.slice(3, 1, 64, 1));
    Ok(case_of(Attention { precision: Precision::Fast, ..Attention::default() }, d, [q, stored(55)?, stored(56)?], Extra::default()))
}

/// The same with NaN in place of rows that no query attends.
fn without_rows_from(first: usize, d: Dims, tensor: &HostTensor) -> HostTensor {
    let mut values = tensor.to_f64();
    values.chunks_mut(d.keys * d.width).for_each(|head| head[first * d.width..].fill(f64::NAN));
    HostTensor::from_f64(tensor.dtype(), tensor.dims(), &values)
}
