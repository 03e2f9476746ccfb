//! The naive reference.

use elinvar_core::DType;

use super::{Arange, Fill};
use crate::{
    conformance::case::{Bound, Case},
    elementwise::scalar::Scalar,
};

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for &dtype in DType::ALL {
        cases.push(Case::new(Fill { shape: vec![3, 11], dtype, value: Scalar::Int(1) }, [], Bound::EXACT, |_| vec![vec![1.0; 33]]));
    }
    cases.push(Case::new(Fill { shape: vec![50_000], dtype: DType::BF16, value: Scalar::Float(0.1) }, [], Bound::EXACT, |_| vec![vec![0.1; 50_000]]));
    cases.push(Case::new(Fill { shape: vec![4, 0], dtype: DType::F32, value: Scalar::Int(1) }, [], Bound::EXACT, |_| vec![vec![]]));
    for &dtype in DType::NUMBERS {
        let (start, step, count) = (100, -3, 33);
        let arange = Arange { start: Scalar::Int(start), limit: Scalar::Int(3), step: Scalar::Int(step), dtype };
        cases.push(Case::new(arange, [], Bound::EXACT, move |_| vec![(0..count).map(|i| (start + i * step) as f64).collect()]));
    }
    let tenths = Arange { start: Scalar::Int(-5), limit: Scalar::Int(2000), step: Scalar::Float(0.1), dtype: DType::F32 };
    // The step is rounded to f32.
    cases.push(Case::new(tenths, [], Bound::relative(6e-8), |_| vec![(0..20_050).map(|i| f64::from(i) * f64::from(0.1f32) - 5.0).collect()]));
    cases
}
