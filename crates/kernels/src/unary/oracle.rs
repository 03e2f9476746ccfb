//! The naive reference, in f64.

use elinvar_core::DType;

use super::{Approximation, Unary, UnaryOp};
use crate::{
    conformance::{Bound, Case, HostTensor, for_lengths},
    elementwise::check::{Viewed, layout, view},
    math::reference::{self, Function},
};

/// The reference of a function that [`crate::math`] defines.
fn defined(op: UnaryOp) -> Option<Function> {
    let name = match op {
        UnaryOp::Gelu(Approximation::None) => "gelu_erf",
        UnaryOp::Gelu(Approximation::Tanh) => "gelu_tanh",
        _ => op.name(),
    };
    reference::functions().into_iter().find(|f| f.name == name)
}

fn at(op: UnaryOp, x: f64) -> f64 {
    match op {
        UnaryOp::Abs => x.abs(),
        UnaryOp::Neg => -x,
        UnaryOp::Sign => {
            if x == 0.0 || x.is_nan() {
                x
            } else {
                x.signum()
            }
        }
        UnaryOp::Square => x * x,
        UnaryOp::Relu => {
            if x < 0.0 {
                0.0
            } else {
                x
            }
        }
        UnaryOp::Sqrt => x.sqrt(),
        UnaryOp::Reciprocal => 1.0 / x,
        UnaryOp::Floor => x.floor(),
        UnaryOp::Ceil => x.ceil(),
        UnaryOp::Round => x.round_ties_even(),
        UnaryOp::HardSwish => x * (x / 6.0 + 0.5).clamp(0.0, 1.0),
        UnaryOp::LeakyRelu(alpha) => {
            if x < 0.0 {
                f64::from(alpha) * x
            } else {
                x
            }
        }
        UnaryOp::Elu(alpha) => {
            if x < 0.0 {
                f64::from(alpha) * x.exp_m1()
            } else {
                x
            }
        }
        _ => f64::NAN,
    }
}

fn bound(op: UnaryOp) -> Bound {
    match op {
        // The sum before the product cancels near -3.
        UnaryOp::HardSwish => Bound::relative(3e-7).with_absolute(4e-7),
        UnaryOp::Elu(_) => Bound::relative(5e-7),
        _ => defined(op).map_or(Bound::EXACT, |f| Bound::relative(f.bound * 2f64.powi(-23)).with_absolute(2f64.powi(-148))),
    }
}

/// Unsigned integers wrap; the values are too small for signed ones to.
fn wrap(dtype: DType, y: f64) -> f64 {
    if matches!(dtype, DType::U8 | DType::U16 | DType::U32 | DType::U64) { y.rem_euclid(2f64.powi(8 * dtype.size() as i32)) } else { y }
}

fn case(op: UnaryOp, x: HostTensor) -> Case {
    let dtype = x.dtype();
    Case::new(Unary { op }, [Some(x)], bound(op), move |inputs| {
        let function: Box<dyn Fn(f64) -> f64> = match defined(op) {
            Some(function) => Box::new(function.oracle),
            None => Box::new(move |x| at(op, x)),
        };
        vec![inputs[0].iter().map(|&x| wrap(dtype, function(x))).collect()]
    })
}

pub(crate) fn cases() -> Vec<Case> {
    let special = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, 1.0, -1.0, 2.5, -3.5, 1e-8, -1e-30, 88.5, -104.0, 6e4];
    let ops = UnaryOp::ALL.iter().copied().chain([UnaryOp::Gelu(Approximation::Tanh), UnaryOp::LeakyRelu(0.3), UnaryOp::Elu(2.0)]);
    let mut cases = Vec::new();
    for (op, &dtype) in ops.flat_map(|op| op.dtypes().iter().map(move |d| (op, d))) {
        let (low, high) = if dtype.is_float() { (-30.0, 30.0) } else { (-11.0, 11.0) };
        cases.push(case(op, HostTensor::random(dtype, &[3, 11, 101], low, high, 1)));
        if dtype.is_float() {
            cases.push(case(op, HostTensor::from_f64(dtype, &[special.len()], &special)));
        }
    }
    // Zeros keep their sign.
    for op in [UnaryOp::LeakyRelu(-0.5), UnaryOp::Elu(-0.5)] {
        cases.push(case(op, HostTensor::new(&[2], &[0.0f32, -0.0])));
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
