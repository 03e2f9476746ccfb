//! The naive reference, in f64, and the cases.

use elinvar_core::{DType, Shape};

use super::AttentionGradient;
use crate::{
    Precision,
    attention::{
        Scoring,
        oracle::{Dims, Extra, PAIRS, additive, probabilities, scores},
    },
    conformance::case::{Bound, Case, HostTensor, made},
};

/// `dq`, `dk` and `dv`, given the inputs, the output and its gradient.
pub(crate) fn gradient(operator: &AttentionGradient, d: Dims, mask_dims: &[usize], i: &[&[f64]], rest: &[Vec<f64>]) -> [Vec<f64>; 3] {
    let [q, k, v, y, dy] = *i else { return [const { Vec::new() }; 3] };
    let s = &operator.scoring;
    let p = probabilities(&scores(s, d, mask_dims, q, k, rest), d.keys);
    let scale = f64::from(s.scale.unwrap_or(1.0 / (d.width as f32).sqrt()));
    let [mut dq, mut dk, mut dv] = [vec![0.0; q.len()], vec![0.0; k.len()], vec![0.0; v.len()]];
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    for (row, [b, h, t]) in d.rows().enumerate() {
        let at = if operator.tokens_first { (b * d.queries + t) * d.heads + h } else { row };
        let [y, dy] = [y, dy].map(|y| &y[at * d.value_width..][..d.value_width]);
        let query = &q[row * d.width..][..d.width];
        for j in (0..d.keys).filter(|j| p[row * d.keys + j] != 0.0) {
            let place = (b * d.kv_heads + h / (d.heads / d.kv_heads)) * d.keys + j;
            let (weight, key, value) = (p[row * d.keys + j], &k[place * d.width..][..d.width], &v[place * d.value_width..][..d.value_width]);
            let cap = f64::from(s.softcap);
            let slope = if cap > 0.0 { 1.0 - (scale * dot(query, key) / cap).tanh().powi(2) } else { 1.0 };
            let e = weight * (dot(dy, value) - dot(dy, y)) * slope * scale;
            for i in 0..d.width {
                dq[row * d.width + i] += e * key[i];
                dk[place * d.width + i] += e * query[i];
            }
            (0..d.value_width).for_each(|i| dv[place * d.value_width + i] += weight * dy[i]);
        }
    }
    [dq, dk, dv]
}

fn case_of(operator: AttentionGradient, d: Dims, [q, k, v]: [HostTensor; 3], extra: Extra) -> Case {
    let dims = if operator.tokens_first { [d.batch, d.queries, d.heads, d.value_width] } else { [d.batch, d.heads, d.queries, d.value_width] };
    let [y, dy] = [4, 5].map(|seed| HostTensor::random(q.dtype(), &dims, -1.0, 1.0, seed));
    let mask = extra.mask.clone();
    let on_tensor_cores = [64, 128].contains(&d.width) && d.width == d.value_width && operator.scoring.softcap == 0.0 && extra.mask.is_none();
    let bound = match (operator.precision, k.dtype()) {
        (Precision::Fast, DType::F16) if on_tensor_cores => Bound::normalised(2.0 * 2f64.powi(-11)),
        (Precision::Fast, DType::BF16) if on_tensor_cores => Bound::normalised(2.0 * 2f64.powi(-8)),
        // Products of up to one hundred elements of at most one.
        (Precision::Strict | Precision::Invariant | Precision::Fast, _) => Bound::relative(2e-5).with_absolute(3e-5),
    };
    let inputs = [Some(q), Some(k), Some(v), extra.mask, extra.positions, extra.lengths, Some(y), Some(dy)];
    Case::new(operator, inputs, bound, move |i| {
        let rest = [additive(&mask, &i[3]), i[4].clone(), i[5].clone()];
        let given: Vec<&[f64]> = [0, 1, 2, 6, 7].iter().map(|&at| &*i[at]).collect();
        gradient(&operator, d, mask.as_ref().map_or(&[], |mask| mask.dims()), &given, &rest).into()
    })
}

fn case(scoring: Scoring, d: Dims, [q, kv]: [DType; 2], extra: Extra) -> Case {
    let random = |dtype, dims: [usize; 4], seed: u64| HostTensor::random(dtype, &dims, -1.0, 1.0, seed + d.keys as u64);
    let q = random(q, [d.batch, d.heads, d.queries, d.width], 1);
    let k = random(kv, [d.batch, d.kv_heads, d.keys, d.width], 2);
    let v = random(kv, [d.batch, d.kv_heads, d.keys, d.value_width], 3);
    case_of(AttentionGradient { scoring, ..AttentionGradient::default() }, d, [q, k, v], extra)
}

pub(crate) fn cases() -> Vec<Case> {
    let plain = Scoring::default();
    let causal = Scoring { causal: true, ..plain };
    let mut cases = Vec::new();
    for (i, keys) in [1, 31, 32, 33, 70].into_iter().enumerate() {
        cases.push(case(plain, Dims::new(3, 3, 2, keys, 40), PAIRS[i % 5], Extra::default()));
    }
    for pair in PAIRS {
        // Grouped heads, several blocks of queries and keys, and positions.
        let positions = Some(HostTensor::new(&[40], &(30..70).collect::<Vec<i32>>()));
        cases.push(case(causal, Dims { batch: 2, ..Dims::new(4, 2, 40, 75, 16) }, pair, Extra { positions, ..Extra::default() }));
    }
    for (i, width) in [1, 31, 33, 64, 128, 300].into_iter().enumerate() {
        let d = Dims { value_width: if width == 33 { 70 } else { width }, ..Dims::new(2, 1, 5, 37, width) };
        cases.push(case(Scoring { offset: 32, ..causal }, d, PAIRS[i % 5], Extra::default()));
    }
    let d = Dims { batch: 2, ..Dims::new(2, 1, 35, 67, 8) };
    for (left_window, right_window) in [(Some(3), None), (None, Some(2)), (Some(33), Some(0))] {
        cases.push(case(Scoring { left_window, right_window, offset: 20, ..plain }, d, PAIRS[0], Extra::default()));
    }
    let lengths = |lengths: &[i32]| Some(HostTensor::new(&[2], lengths));
    let mask = |dtype, dims: &[usize]| Some(HostTensor::random(dtype, dims, if dtype == DType::Bool { -0.5 } else { -2.0 }, 2.0, 9));
    let softcap = Scoring { softcap: 0.7, scale: Some(0.5), ..plain };
    cases.push(case(softcap, d, PAIRS[0], Extra { mask: mask(DType::F32, &[35, 67]), ..Extra::default() }));
    let attend: Vec<f64> = (0..35 * 67).map(|at| f64::from(u8::from(at / 67 != 5 && at % 3 != 0))).collect();
    let some = Some(HostTensor::from_f64(DType::Bool, &[35, 67], &attend));
    cases.push(case(plain, d, PAIRS[1], Extra { mask: some, lengths: lengths(&[67, 11]), ..Extra::default() }));
    cases.push(case(plain, d, PAIRS[3], Extra { mask: mask(DType::F16, &[2, 1, 67]), lengths: lengths(&[0, 60]), ..Extra::default() }));
    let empty = Dims::new(2, 1, 3, 4, 8);
    cases.extend(
        [Dims { batch: 0, ..empty }, Dims { queries: 0, ..empty }, Dims { keys: 0, ..empty }].map(|d| case(causal, d, PAIRS[0], Extra::default())),
    );
    // Token by token; values backwards.
    let strided = PAIRS.map(|[q, kv]| {
        let stored = |dtype, dims: [usize; 4], seed| HostTensor::random(dtype, &dims, -1.0, 1.0, seed);
        let q = stored(q, [2, 6, 4, 16], 31).viewed(|layout| layout.permute(&[0, 2, 1, 3]));
        let k = stored(kv, [2, 40, 2, 16], 32).viewed(|layout| layout.permute(&[0, 2, 1, 3]));
        let v = stored(kv, [2, 2, 50, 16], 33).viewed(|layout| layout.slice(2, 44, 40, -1));
        let operator = AttentionGradient { scoring: Scoring { offset: 34, ..causal }, tokens_first: true, precision: Precision::Strict };
        case_of(operator, Dims { batch: 2, ..Dims::new(4, 2, 6, 40, 16) }, [q, k, v].map(made), Extra::default())
    });
    cases.extend(strided);
    // What no query attends may be no number.
    let d = Dims::new(2, 1, 3, 40, 8);
    let wild = |seed| {
        let mut values = HostTensor::random(DType::F32, &[1, 1, 40, 8], -1.0, 1.0, seed).to_f64();
        values[35 * 8..].fill(f64::NAN);
        HostTensor::from_f64(DType::F32, &[1, 1, 40, 8], &values)
    };
    let q = HostTensor::random(DType::F32, &[1, 2, 3, 8], -20.0, 20.0, 4);
    cases.push(case_of(
        AttentionGradient { scoring: Scoring { offset: 32, ..causal }, ..AttentionGradient::default() },
        d,
        [q, wild(5), wild(6)],
        Extra::default(),
    ));
    cases.extend(fast_cases());
    cases
}

/// What a device may compute on tensor cores: several tiles of queries and of keys, the last of each not full.
fn fast_cases() -> Vec<Case> {
    let causal = Scoring { causal: true, ..Scoring::default() };
    let fast = |scoring, d: Dims, dtype, extra| {
        let random = |dims: [usize; 4], seed: u64| HostTensor::random(dtype, &dims, -1.0, 1.0, seed + d.keys as u64);
        let q = random([d.batch, d.heads, d.queries, d.width], 1);
        let [k, v] = [2, 3].map(|seed| random([d.batch, d.kv_heads, d.keys, d.width], seed));
        case_of(AttentionGradient { scoring, precision: Precision::Fast, ..AttentionGradient::default() }, d, [q, k, v], extra)
    };
    let mut cases = Vec::new();
    for dtype in [DType::F16, DType::BF16] {
        cases.push(fast(causal, Dims { batch: 2, ..Dims::new(4, 2, 135, 135, 64) }, dtype, Extra::default()));
        let positions = Some(HostTensor::new(&[70], &(80..150).collect::<Vec<i32>>()));
        cases.push(fast(causal, Dims::new(2, 1, 70, 150, 128), dtype, Extra { positions, ..Extra::default() }));
    }
    cases.push(fast(Scoring { left_window: Some(20), ..causal }, Dims::new(2, 1, 130, 130, 64), DType::BF16, Extra::default()));
    let lengths = Some(HostTensor::new(&[3], &[0, 33, 130]));
    cases.push(fast(Scoring::default(), Dims { batch: 3, ..Dims::new(2, 1, 65, 130, 64) }, DType::F16, Extra { lengths, ..Extra::default() }));
    // More tiles of keys, and more of queries, than a ring in shared memory holds twice.
    cases.push(fast(Scoring { offset: 1036, ..causal }, Dims::new(1, 1, 64, 1100, 64), DType::BF16, Extra::default()));
    cases.push(fast(Scoring::default(), Dims::new(2, 1, 448, 40, 64), DType::F16, Extra::default()));
    // Positions in no order, some of them before the first key.
    let places: Vec<i32> = (0..2 * 80).map(|i| i * 37 % 190 - 5).collect();
    let extra = Extra { positions: Some(HostTensor::new(&[2, 80], &places)), ..Extra::default() };
    cases.push(fast(causal, Dims { batch: 2, ..Dims::new(2, 2, 80, 170, 64) }, DType::BF16, extra));
    // Token by token; rows that begin at any element.
    let stored = |dims: [usize; 4], seed| HostTensor::random(DType::BF16, &dims, -1.0, 1.0, seed);
    let q = stored([1, 70, 4, 64], 41).viewed(|layout| layout.permute(&[0, 2, 1, 3]));
    let k = stored([1, 90, 2, 67], 42).viewed(|layout| layout.slice(3, 1, 64, 1)?.permute(&[0, 2, 1, 3]));
    let v = stored([1, 90, 2, 64], 43).viewed(|layout| layout.permute(&[0, 2, 1, 3]));
    let operator = AttentionGradient { scoring: Scoring { offset: 20, ..causal }, tokens_first: true, precision: Precision::Fast };
    cases.push(case_of(operator, Dims::new(4, 2, 70, 90, 64), [q, k, v].map(made), Extra::default()));
    // Queries backwards, and keys and values that all batches share: rows that no tensor map has.
    let shared = |seed| stored([1, 2, 150, 64], seed).viewed(|layout| layout.broadcast_to(Shape::new(&[2, 2, 150, 64])?));
    let q = stored([2, 4, 80, 64], 44).viewed(|layout| layout.slice(2, 74, 70, -1));
    let operator = AttentionGradient { scoring: Scoring { offset: 80, ..causal }, precision: Precision::Fast, ..AttentionGradient::default() };
    cases.push(case_of(operator, Dims { batch: 2, ..Dims::new(4, 2, 70, 150, 64) }, [q, shared(45), shared(46)].map(made), Extra::default()));
    cases
}
