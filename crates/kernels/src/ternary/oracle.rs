//! The naive reference, in f64.

use elinvar_core::DType;

use super::{Clamp, Fma, Where};
use crate::{
    Operator,
    conformance::case::{Bound, Case, HostTensor},
    elementwise::{
        check::{broadcast, shape},
        scalar::Scalar,
    },
};

type Three = [Option<HostTensor>; 3];

fn case(operator: impl Operator + 'static, inputs: Three, bound: Bound, at: impl Fn([f64; 3]) -> f64 + Send + Sync + 'static) -> Case {
    let dims = inputs.each_ref().map(|i| i.as_ref().map(|t| t.dims().to_vec()));
    Case::new(operator, inputs, bound, move |inputs| {
        let shapes = dims.iter().flatten().map(|d| shape(d));
        let Some(y) = shapes.reduce(|a, b| a.broadcast(&b).unwrap_or_else(|e| unreachable!("{e}"))) else { return Vec::new() };
        let operand = |i: usize| dims[i].as_ref().map_or_else(|| vec![f64::NAN; y.elements()], |d| broadcast(&inputs[i], d, y));
        let (a, b, c) = (operand(0), operand(1), operand(2));
        vec![(0..y.elements()).map(|i| at([a[i], b[i], c[i]])).collect()]
    })
}

fn random(dtype: DType, dims: &[usize], seed: u64) -> Option<HostTensor> {
    let low = if matches!(dtype, DType::U8 | DType::U16 | DType::U32 | DType::U64 | DType::Bool) { 0.0 } else { -20.0 };
    Some(HostTensor::random(dtype, dims, low, 20.0, seed))
}

fn clamp([x, low, high]: [f64; 3], attributes: [Option<f64>; 2]) -> f64 {
    let low = if low.is_nan() { attributes[0].unwrap_or(f64::NEG_INFINITY) } else { low };
    let high = if high.is_nan() { attributes[1].unwrap_or(f64::INFINITY) } else { high };
    if x.is_nan() { x } else { x.max(low).min(high) }
}

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for &dtype in DType::FLOATS {
        // Exact but for f32's rounding, which f64 is wide enough to show.
        let bound = Bound::relative(2f64.powi(-24)).with_absolute(1e-5);
        cases.push(case(Fma, [random(dtype, &[4, 1, 30], 1), random(dtype, &[700, 1], 2), random(dtype, &[], 3)], bound, |[a, b, c]| a * b + c));
        for n in [33, 20_000] {
            cases.push(case(Fma, [1, 2, 3].map(|seed| random(dtype, &[n], seed)), bound, |[a, b, c]| a * b + c));
        }
        let special = HostTensor::from_f64(dtype, &[3], &[f64::NAN, f64::INFINITY, f64::NEG_INFINITY]);
        let [min, max] = [-1.5, 2.0];
        let both = Clamp { min: Some(Scalar::from(min)), max: Some(Scalar::from(max)) };
        cases.push(case(both, [Some(special), None, None], Bound::EXACT, move |v| clamp(v, [Some(min), Some(max)])));
    }
    for &dtype in DType::NUMBERS {
        let max = Clamp { min: None, max: Some(Scalar::from(7)) };
        let tensors = [random(dtype, &[3, 300], 4), random(dtype, &[3, 1], 5), None];
        cases.push(case(max, tensors, Bound::EXACT, |v| clamp(v, [None, Some(7.0)])));
        cases.push(case(Clamp::default(), [4, 5, 6].map(|seed| random(dtype, &[130], seed)), Bound::EXACT, |v| clamp(v, [None; 2])));
        let far = Clamp { min: Some(Scalar::from(-1e9)), max: Some(Scalar::from(f64::INFINITY)) };
        cases.push(case(far, [random(dtype, &[33], 4), None, None], Bound::EXACT, |[x, ..]| x));
    }
    for &dtype in DType::ALL {
        let choice = |[condition, a, b]: [f64; 3]| if condition != 0.0 { a } else { b };
        let condition = HostTensor::random(DType::U8, &[9, 1, 33], 0.0, 2.0, 7).to_f64();
        let condition = HostTensor::from_f64(DType::Bool, &[9, 1, 33], &condition);
        cases.push(case(Where, [Some(condition), random(dtype, &[70, 1], 8), random(dtype, &[33], 9)], Bound::EXACT, choice));
    }
    // One element more than threads have.
    cases.push(case(Where, [random(DType::Bool, &[3, 1], 1), random(DType::F32, &[3], 2), random(DType::F32, &[], 3)], Bound::EXACT, |[c, a, b]| {
        if c != 0.0 { a } else { b }
    }));
    cases.push(case(Where, [random(DType::Bool, &[0, 3], 1), random(DType::F32, &[3], 2), random(DType::F32, &[], 3)], Bound::EXACT, |v| v[1]));
    cases
}
