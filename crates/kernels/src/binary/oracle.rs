//! The naive reference, in f64.

use elinvar_core::{DType, Shape};

use super::{Binary, BinaryOp, operator_name};
use crate::{
    conformance::case::{Bound, Case, HostTensor},
    elementwise::check::{Viewed, broadcast, layout, shape, view},
    unary::oracle::{bound, wrap},
};

fn at(op: BinaryOp, a: f64, b: f64, dtype: DType) -> f64 {
    if !dtype.is_integer() {
        return op.reference([a, b]);
    }
    match op {
        BinaryOp::Div if b == 0.0 => 0.0,
        BinaryOp::Rem if b == 0.0 => a,
        op => wrap(dtype, op.reference([a, b]).trunc()),
    }
}

fn case(op: BinaryOp, a: HostTensor, b: HostTensor) -> Case {
    let (left, right) = (a.dims().to_vec(), b.dims().to_vec());
    let dtype = a.dtype();
    let oracle = move |inputs: &[Vec<f64>]| {
        let y: Shape = shape(&left).broadcast(&shape(&right)).unwrap_or_else(|e| unreachable!("{e}"));
        let (a, b) = (broadcast(&inputs[0], &left, y), broadcast(&inputs[1], &right, y));
        vec![a.iter().zip(&b).map(|(&a, &b)| at(op, a, b, dtype)).collect()]
    };
    Case::new(Binary { op }, [Some(a), Some(b)], bound(op.error()), oracle)
}

/// Values that neither overflow nor lose digits, for any operation.
fn values(op: BinaryOp, dtype: DType, dims: &[usize], exponent: bool, seed: u64) -> HostTensor {
    let unsigned = matches!(dtype, DType::U8 | DType::U16 | DType::U32 | DType::U64);
    let general = if unsigned { (0.0, 11.0) } else { (-11.0, 11.0) };
    let (low, high) = match op {
        BinaryOp::Pow if exponent => {
            if dtype.is_float() {
                (-3.0, 3.0)
            } else {
                (0.0, 4.0)
            }
        }
        BinaryOp::Pow => {
            if dtype.is_float() {
                (0.1, 4.0)
            } else {
                (0.0, 3.99)
            }
        }
        // Shifted by less than the width, and what is shifted to the left stays in it.
        BinaryOp::Shl | BinaryOp::Shr => (if unsigned || exponent { 0.0 } else { -7.0 }, if exponent { 4.0 } else { 7.0 }),
        BinaryOp::Sub if unsigned && !exponent => (12.0, 24.0),
        BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul | BinaryOp::Div | BinaryOp::Rem | BinaryOp::Min | BinaryOp::Max => general,
        BinaryOp::And | BinaryOp::Or | BinaryOp::Xor | BinaryOp::LeakyRelu | BinaryOp::Elu | BinaryOp::HardSigmoid => general,
    };
    HostTensor::random(dtype, dims, low, high, seed)
}

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let shapes: &[(&[usize], &[usize])] =
        &[(&[], &[]), (&[0, 3], &[3]), (&[1000], &[1]), (&[7, 1, 33], &[5, 1]), (&[3, 600], &[600]), (&[3, 600], &[3, 1]), (&[40_000], &[40_000])];
    for &op in BinaryOp::ALL.iter().filter(|op| operator_name(**op).is_some()) {
        let takes = |dtype: &&DType| op.takes(**dtype) || op == BinaryOp::Pow;
        for (seed, (&dtype, (a, b))) in DType::NUMBERS.iter().filter(takes).flat_map(|d| shapes.iter().map(move |s| (d, s))).enumerate() {
            let make = |dims, exponent| values(op, dtype, dims, exponent, 2 * seed as u64 + u64::from(exponent));
            cases.push(case(op, make(a, false), make(b, true)));
        }
    }
    for (base, exponent) in [(DType::F32, DType::I64), (DType::BF16, DType::F32), (DType::I64, DType::F32), (DType::I32, DType::U8)] {
        let (a, b) = (values(BinaryOp::Pow, base, &[4, 9], false, 1), values(BinaryOp::Pow, DType::I8, &[9], true, 2));
        cases.push(case(BinaryOp::Pow, a, HostTensor::from_f64(exponent, &[9], &b.to_f64())));
    }
    let special = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, 1.5];
    let pairs: Vec<(f64, f64)> = special.iter().flat_map(|&a| special.iter().map(move |&b| (a, b))).collect();
    for (op, &dtype) in [BinaryOp::Add, BinaryOp::Mul, BinaryOp::Min, BinaryOp::Max].iter().flat_map(|&op| DType::FLOATS.iter().map(move |d| (op, d)))
    {
        let tensor = |pick: fn(&(f64, f64)) -> f64| HostTensor::from_f64(dtype, &[36], &pairs.iter().map(pick).collect::<Vec<_>>());
        cases.push(case(op, tensor(|p| p.0), tensor(|p| p.1)));
    }
    cases.extend(views());
    cases
}

/// Transposed, reversed and broadcast operands, along few axes and many, of short rows and long; one above the size that goes past the caches.
fn views() -> Vec<Case> {
    let transposed = layout(&[70, 300]).permute(&[1, 0]).unwrap_or_else(|e| unreachable!("{e}"));
    let reversed = layout(&[300, 140]).slice(1, 138, 70, -2).and_then(|l| l.slice(0, 299, 300, -1)).unwrap_or_else(|e| unreachable!("{e}"));
    let operands = [HostTensor::random(DType::F32, &[70, 300], -1.0, 1.0, 5), HostTensor::random(DType::F32, &[300, 140], -1.0, 1.0, 6)];
    let sum = Viewed(Binary { op: BinaryOp::Add }, vec![Some(transposed), Some(reversed)]);
    let strided = Case::new(sum, operands.map(Some), Bound::EXACT, move |inputs| {
        let (a, b) = (view(&inputs[0], &transposed), view(&inputs[1], &reversed));
        vec![a.iter().zip(&b).map(|(a, b)| a + b).collect()]
    });
    let axes = layout(&[3, 4, 5, 6]).permute(&[1, 3, 0, 2]).unwrap_or_else(|e| unreachable!("{e}"));
    let difference = Viewed(Binary { op: BinaryOp::Sub }, vec![Some(axes), None]);
    let operands = [HostTensor::random(DType::BF16, &[3, 4, 5, 6], -9.0, 9.0, 9), HostTensor::random(DType::BF16, &[4, 6, 3, 5], -9.0, 9.0, 10)];
    let many = Case::new(difference, operands.map(Some), Bound::EXACT, move |inputs| {
        vec![view(&inputs[0], &axes).iter().zip(&inputs[1]).map(|(a, b)| a - b).collect()]
    });
    let short = [(&[333, 3][..], &[3][..]), (&[333, 3], &[333, 1]), (&[50, 8], &[50, 1]), (&[9, 16], &[16]), (&[5, 2, 7], &[2, 1])];
    let short =
        short.map(|(a, b)| case(BinaryOp::Add, HostTensor::random(DType::F16, a, -9.0, 9.0, 11), HostTensor::random(DType::F16, b, -9.0, 9.0, 12)));
    let (rows, columns) = (1031, 4099);
    let large =
        case(BinaryOp::Mul, HostTensor::random(DType::F32, &[rows, columns], -1.0, 1.0, 7), HostTensor::random(DType::F32, &[columns], -1.0, 1.0, 8));
    short.into_iter().chain([strided, many, large]).collect()
}
