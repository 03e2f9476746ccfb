//! The naive reference, in f64.

use elinvar_core::DType;

use super::{Unary, UnaryOp, WithScalar};
use crate::{
    Operator,
    binary::BinaryOp,
    conformance::case::{Bound, Case, HostTensor, for_lengths},
    elementwise::check::{Viewed, layout, view},
    functions::ErrorBound,
};

/// The bound of a function.
pub(crate) fn bound(error: ErrorBound) -> Bound {
    if error.ulp == 0.0 { Bound::EXACT } else { Bound::relative(error.ulp * 2f64.powi(-23)).with_absolute(error.absolute + 2f64.powi(-148)) }
}

/// The low bits of an exact integer.
pub(crate) fn wrap(dtype: DType, y: f64) -> f64 {
    if matches!(dtype, DType::U8 | DType::U16 | DType::U32 | DType::U64) { y.rem_euclid(2f64.powi(8 * dtype.size() as i32)) } else { y }
}

fn case(op: UnaryOp, x: HostTensor) -> Case {
    let dtype = x.dtype();
    // An unsigned number's bits inverted are the low bits of those of the negative one.
    of(Unary { op }, op.error(), x, move |x| wrap(dtype, op.reference([x])))
}

fn of(operator: impl Operator + 'static, error: ErrorBound, x: HostTensor, at: impl Fn(f64) -> f64 + Send + Sync + 'static) -> Case {
    Case::new(operator, [Some(x)], bound(error), move |inputs| vec![inputs[0].iter().map(|&x| at(x)).collect()])
}

fn with_scalar(op: BinaryOp, scalar: f32, x: HostTensor) -> Case {
    of(WithScalar { op, scalar }, op.error(), x, move |x| op.reference([x, f64::from(scalar)]))
}

pub(crate) fn cases() -> Vec<Case> {
    let special = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, 1.0, -1.0, 2.5, -3.5, 1e-8, -1e-30, 88.5, -104.0, 6e4];
    let random = |dtype: DType, [low, high]: [f64; 2]| HostTensor::random(dtype, &[3, 11, 101], low, high, 1);
    let mut cases = Vec::new();
    for (&op, &dtype) in
        UnaryOp::ALL.iter().flat_map(|op| DType::NUMBERS.iter().map(move |dtype| (op, dtype))).filter(|(op, dtype)| op.takes(**dtype))
    {
        // How many bits a negative number has set depends on its type.
        let low = if op == UnaryOp::Popcount { 0.0 } else { -11.0 };
        cases.push(case(op, random(dtype, if dtype.is_float() { [-30.0, 30.0] } else { [low, 11.0] })));
        if dtype.is_float() {
            cases.push(case(op, HostTensor::from_f64(dtype, &[special.len()], &special)));
        }
    }
    let parameters = [(BinaryOp::LeakyRelu, 0.01), (BinaryOp::LeakyRelu, 0.3), (BinaryOp::Elu, 1.0), (BinaryOp::Elu, 2.0)];
    for (op, scalar) in parameters.into_iter().chain([(BinaryOp::HardSigmoid, 0.2), (BinaryOp::HardSigmoid, 0.1)]) {
        for &dtype in DType::FLOATS {
            cases.push(with_scalar(op, scalar, random(dtype, [-30.0, 30.0])));
            cases.push(with_scalar(op, scalar, HostTensor::from_f64(dtype, &[special.len()], &special)));
        }
        // Zeros keep their sign.
        cases.push(with_scalar(op, -0.5, HostTensor::new(&[2], &[0.0f32, -0.0])));
    }
    for (op, scalar) in
        [(BinaryOp::Add, 0.3), (BinaryOp::Sub, 1.7), (BinaryOp::Mul, -2.5), (BinaryOp::Div, 3.0), (BinaryOp::Rem, 0.7), (BinaryOp::Max, 0.5)]
    {
        for &dtype in DType::FLOATS {
            cases.push(with_scalar(op, scalar, random(dtype, [-30.0, 30.0])));
        }
    }
    // One element more than whole threads have.
    let transposed = layout(&[301, 69]).permute(&[1, 0]).unwrap_or_else(|e| unreachable!("{e}"));
    let strided = Viewed(Unary { op: UnaryOp::Abs }, vec![Some(transposed)]);
    cases.push(Case::new(strided, [Some(HostTensor::random(DType::F16, &[301, 69], -1.0, 1.0, 2))], Bound::EXACT, move |inputs| {
        vec![view(&inputs[0], &transposed).iter().map(|x| x.abs()).collect()]
    }));
    cases.push(case(UnaryOp::Silu, HostTensor::random(DType::F32, &[100_003], -20.0, 20.0, 3)));
    cases.push(case(UnaryOp::Exp, HostTensor::new::<f32>(&[0, 5], &[])));
    let lengths = |dtype, n| [case(UnaryOp::Square, HostTensor::random(dtype, &[n], 0.0, 11.0, 4))];
    cases.extend(for_lengths(&[DType::F32, DType::BF16, DType::I64, DType::U8], lengths));
    cases
}
