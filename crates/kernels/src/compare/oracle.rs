//! The naive reference.

use elinvar_core::DType;

use super::{Compare, CompareOp, Logical, LogicalNot, LogicalOp};
use crate::{
    Operator,
    conformance::case::{Bound, Case, HostTensor},
    elementwise::check::{Viewed, broadcast, layout, shape, view},
};

fn case(operator: impl Operator + 'static, a: HostTensor, b: HostTensor, at: impl Fn(f64, f64) -> bool + Send + Sync + 'static) -> Case {
    let (left, right) = (a.dims().to_vec(), b.dims().to_vec());
    Case::new(operator, [Some(a), Some(b)], Bound::EXACT, move |inputs| {
        let y = shape(&left).broadcast(&shape(&right)).unwrap_or_else(|e| unreachable!("{e}"));
        let (a, b) = (broadcast(&inputs[0], &left, y), broadcast(&inputs[1], &right, y));
        vec![a.iter().zip(&b).map(|(&a, &b)| f64::from(u8::from(at(a, b)))).collect()]
    })
}

fn tensor(dtype: DType, dims: &[usize], seed: u64) -> HostTensor {
    let (low, high) = match dtype {
        DType::Bool => (-0.5, 0.5),
        DType::U8 | DType::U16 | DType::U32 | DType::U64 => (0.0, 9.0),
        DType::F32 | DType::F16 | DType::BF16 | DType::F64 | DType::I8 | DType::I16 | DType::I32 | DType::I64 => (-4.0, 4.0),
    };
    let values = HostTensor::random(DType::F32, dims, low, high, seed).to_f64();
    let whole: Vec<f64> = values.iter().map(|v| if dtype == DType::Bool { f64::from(u8::from(*v > 0.0)) } else { v.trunc() }).collect();
    HostTensor::from_f64(dtype, dims, &whole)
}

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (&op, &dtype) in CompareOp::ALL.iter().flat_map(|op| DType::ALL.iter().map(move |d| (op, d))) {
        let compare = Compare { op };
        cases.push(case(compare, tensor(dtype, &[5, 1, 67], 1), tensor(dtype, &[9, 1], 2), move |a, b| op.holds(a, b)));
        if dtype.is_float() {
            let special = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, 1.0];
            let (a, b) = (HostTensor::from_f64(dtype, &[6, 1], &special), HostTensor::from_f64(dtype, &[6], &special));
            cases.push(case(compare, a, b, move |a, b| op.holds(a, b)));
        }
    }
    cases.push(case(Compare { op: CompareOp::Lt }, tensor(DType::F32, &[40_001], 3), tensor(DType::F32, &[40_001], 4), |a, b| a < b));
    for &op in LogicalOp::ALL {
        cases.push(case(Logical { op }, tensor(DType::Bool, &[3, 300], 5), tensor(DType::Bool, &[1, 300], 6), move |a, b| match op {
            LogicalOp::And => a * b == 1.0,
            LogicalOp::Or => a + b >= 1.0,
            LogicalOp::Xor => a + b == 1.0,
        }));
    }
    let transposed = layout(&[31, 47]).permute(&[1, 0]).unwrap_or_else(|e| unreachable!("{e}"));
    let not = Viewed(LogicalNot, vec![Some(transposed)]);
    cases.push(Case::new(not, [Some(tensor(DType::Bool, &[31, 47], 7))], Bound::EXACT, move |inputs| {
        vec![view(&inputs[0], &transposed).iter().map(|x| 1.0 - x).collect()]
    }));
    cases
}
