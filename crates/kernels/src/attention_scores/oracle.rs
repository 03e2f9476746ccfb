//! The cases; the reference is attention's.

use elinvar_core::DType;

use super::AttentionScores;
use crate::{
    attention::{
        Scoring,
        oracle::{Dims, Extra, PAIRS, additive, probabilities, scores},
    },
    conformance::case::{Bound, Case, HostTensor},
};

fn case(operator: AttentionScores, d: Dims, [q, kv]: [DType; 2], extra: Extra) -> Case {
    let q = HostTensor::random(q, &[d.batch, d.heads, d.queries, d.width], -1.0, 1.0, 11);
    let k = HostTensor::random(kv, &[d.batch, d.kv_heads, d.keys, d.width], -1.0, 1.0, 12);
    case_of(operator, d, [q, k], extra)
}

fn case_of(operator: AttentionScores, d: Dims, [q, k]: [HostTensor; 2], extra: Extra) -> Case {
    let (mask, s) = (extra.mask.clone(), operator.scoring);
    let e = f64::from(s.scale.unwrap_or(1.0 / (d.width as f32).sqrt())) * d.width as f64 * 0.4;
    let error = (12.0 * e + 16.0) * 2f64.powi(-24);
    // A probability is a little more than twice as far off, relative to itself.
    let bound = if operator.softmax { Bound::relative(2.1 * error + 4e-6) } else { Bound::EXACT.with_absolute(error) };
    Case::new(operator, [Some(q), Some(k), extra.mask, extra.positions, extra.lengths], bound, move |inputs| {
        let rest = [additive(&mask, &inputs[2]), inputs[3].clone(), inputs[4].clone()];
        let scores = scores(&s, d, mask.as_ref().map_or(&[], |m| m.dims()), &inputs[0], &inputs[1], &rest);
        vec![if operator.softmax { probabilities(&scores, d.keys) } else { scores }]
    })
}

pub(crate) fn cases() -> Vec<Case> {
    let plain = Scoring::default();
    let mut cases = Vec::new();
    for (i, keys) in [0, 1, 33, 256, 300].into_iter().enumerate() {
        for softmax in [false, true] {
            let d = Dims { batch: 2, ..Dims::new(4, 2, 3, keys, [8, 20, 64, 128, 300][i]) };
            cases.push(case(AttentionScores { scoring: plain, softmax }, d, PAIRS[i], Extra::default()));
        }
    }
    // Products below the least number, whose sum in all accumulators is -0.
    let d = Dims::new(1, 1, 1, 1, 256);
    let tiny = [1e-30f32, -1e-30].map(|x| HostTensor::new(&[1, 1, 1, 256], &[x; 256]));
    cases.push(case_of(AttentionScores { scoring: plain, softmax: false }, d, tiny, Extra::default()));
    let d = Dims::new(4, 1, 40, 90, 32);
    let window = Scoring { causal: true, offset: 50, left_window: Some(30), softcap: 1.5, ..plain };
    let mask = || Some(HostTensor::random(DType::F32, &[4, 1, 90], -1.0, 1.0, 13));
    let lengths = || Some(HostTensor::new(&[1], &[60i32]));
    for softmax in [false, true] {
        let operator = AttentionScores { scoring: window, softmax };
        cases.push(case(operator, d, PAIRS[0], Extra { mask: mask(), lengths: lengths(), ..Extra::default() }));
        let bools = HostTensor::from_f64(DType::Bool, &[1, 4, 40, 90], &[1.0, 0.0, 1.0].repeat(4800));
        let positions = HostTensor::new(&[1, 40], &[63i32; 40]);
        let operator = AttentionScores { scoring: Scoring { causal: true, ..plain }, softmax };
        cases.push(case(operator, d, PAIRS[2], Extra { mask: Some(bools), positions: Some(positions), ..Extra::default() }));
        // The first queries stand before the first key.
        let operator = AttentionScores { scoring: Scoring { causal: true, offset: -3, ..plain }, softmax };
        cases.push(case(operator, d, PAIRS[0], Extra::default()));
    }
    cases
}
