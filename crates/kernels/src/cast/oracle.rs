//! The naive reference, in f64, which holds the wide integers tried.

use elinvar_core::DType;

use super::Cast;
use crate::{
    conformance::case::{Bound, Case, HostTensor},
    elementwise::check::{Viewed, layout, view},
};

fn at(to: DType, x: f64) -> f64 {
    let (low, high) = match to {
        DType::Bool => return if x == 0.0 { 0.0 } else { 1.0 },
        DType::F32 | DType::F16 | DType::BF16 | DType::F64 => return x,
        DType::I8 => (-128.0, 127.0),
        DType::I16 => (-32768.0, 32767.0),
        DType::I32 => (-(2f64.powi(31)), 2f64.powi(31) - 1.0),
        DType::I64 => (-(2f64.powi(63)), 2f64.powi(63)),
        DType::U8 => (0.0, 255.0),
        DType::U16 => (0.0, 65535.0),
        DType::U32 => (0.0, 2f64.powi(32) - 1.0),
        DType::U64 => (0.0, 2f64.powi(64)),
    };
    if x.is_nan() { 0.0 } else { x.trunc().clamp(low, high) }
}

fn wraps(from: DType, to: DType, x: f64) -> f64 {
    if from.is_float() {
        return at(to, x);
    }
    let low = x as i128;
    match to {
        DType::I8 => low as i8 as f64,
        DType::I16 => low as i16 as f64,
        DType::I32 => low as i32 as f64,
        DType::I64 => low as i64 as f64,
        DType::U8 => low as u8 as f64,
        DType::U16 => low as u16 as f64,
        DType::U32 => low as u32 as f64,
        DType::U64 => low as u64 as f64,
        DType::F32 | DType::F16 | DType::BF16 | DType::F64 | DType::Bool => at(to, x),
    }
}

/// Whole numbers next to the middle between two neighbours of a narrower type.
fn wide() -> Vec<f64> {
    let middles = (8..62).flat_map(|k| [8, 11, 24].map(|digits| 2f64.powi(k) + 2f64.powi((k - digits).max(0))));
    middles.flat_map(|middle| [-1.0, 0.0, 1.0].map(|d| middle + d)).flat_map(|x| [x, -x]).chain([2f64.powi(63), 2f64.powi(64)]).collect()
}

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (&from, &to) in DType::ALL.iter().flat_map(|from| DType::ALL.iter().map(move |to| (from, to))) {
        let mut values: Vec<f64> = (-300..=300).map(|i| f64::from(i) * if from.is_float() { 1.37 } else { 1.0 }).collect();
        if from.is_float() {
            values.extend([f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0, 65_519.0, 65_520.0, 3e9, -3e9, 1e19, 2e38, 1e-41, 0.5, -0.5]);
        }
        let x = HostTensor::from_f64(from, &[values.len()], &values);
        cases.push(Case::new(Cast { to }, [Some(x)], Bound::EXACT, move |inputs| vec![inputs[0].iter().map(|&x| wraps(from, to, x)).collect()]));
    }
    for (&from, &to) in [DType::I32, DType::U32, DType::I64, DType::U64].iter().flat_map(|from| DType::FLOATS.iter().map(move |to| (from, to))) {
        let x = HostTensor::from_f64(from, &[wide().len()], &wide());
        cases.push(Case::new(Cast { to }, [Some(x)], Bound::EXACT, |inputs| vec![inputs[0].clone()]));
    }
    let strided = layout(&[90, 40, 20]).permute(&[1, 2, 0]).unwrap_or_else(|e| unreachable!("{e}"));
    let x = HostTensor::random(DType::F32, &[90, 40, 20], -1000.0, 1000.0, 1);
    cases.push(Case::new(Viewed(Cast { to: DType::BF16 }, vec![Some(strided)]), [Some(x)], Bound::EXACT, move |i| vec![view(&i[0], &strided)]));
    cases
}
