//! The cases; the reference is attention's.

use elinvar_core::DType;

use super::WeightedSum;
use crate::{
    attention::oracle::{Dims, PAIRS, weighted_sum},
    conformance::case::{Bound, Case, HostTensor},
};

fn case(d: Dims, [p, v]: [DType; 2]) -> Case {
    // Some weights are zero.
    let weights = HostTensor::random(DType::F32, &[d.batch * d.heads * d.queries, d.keys], -0.2, 1.0, 21);
    let weights: Vec<f64> = weights.to_f64().into_iter().map(|w| w.max(0.0)).collect();
    let p = HostTensor::from_f64(p, &[d.batch, d.heads, d.queries, d.keys], &weights);
    let v = HostTensor::random(v, &[d.batch, d.kv_heads, d.keys, d.value_width], -1.0, 1.0, 22);
    let keys = d.keys as f64;
    let bound = Bound::EXACT.with_absolute((33.0 + keys / 32.0) * 2f64.powi(-24) * 0.3 * keys);
    Case::new(WeightedSum, [Some(p), Some(v)], bound, move |inputs| vec![weighted_sum(d, &inputs[0], &inputs[1])])
}

pub(crate) fn cases() -> Vec<Case> {
    let widths = [1, 20, 64, 128, 48];
    let mut cases: Vec<_> =
        [1, 31, 33, 256, 600].into_iter().enumerate().map(|(i, keys)| case(Dims::new(4, 2, 3, keys, widths[i]), PAIRS[i])).collect();
    // As many heads of values: the row after a tile's last is beyond the tensor.
    cases.push(case(Dims::new(2, 2, 3, 40, 8), PAIRS[0]));
    cases.push(case(Dims { batch: 2, ..Dims::new(6, 2, 40, 70, 32) }, PAIRS[0]));
    cases.push(case(Dims { value_width: 200, ..Dims::new(4, 1, 3, 40, 8) }, PAIRS[1]));
    cases.push(case(Dims::new(2, 1, 3, 0, 8), PAIRS[0]));
    cases.push(case(Dims { value_width: 0, ..Dims::new(2, 1, 3, 5, 8) }, PAIRS[0]));
    cases
}
