//! Operators on elements.

use elinvar_core::{DType, Result};
use elinvar_kernels::{
    Operator, Scalar, TensorInfo,
    binary::{Binary, BinaryOp},
    compare::{Compare, CompareOp},
    fill::Fill,
    swiglu::SwiGlu,
    ternary::{Clamp, Fma, Where},
    unary::{Unary, UnaryOp},
};

use super::info;

fn binary(op: BinaryOp, a: (DType, &[usize]), b: (DType, &[usize])) -> Result<Vec<TensorInfo>> {
    Binary { op }.infer(&[info(a.0, a.1), info(b.0, b.1)])
}

#[test]
fn operands_of_functions_that_do_not_fit_are_rejected() {
    let error = binary(BinaryOp::Add, (DType::F32, &[2]), (DType::F16, &[2])).unwrap_err().to_string();
    assert_eq!(error, "add: b is f16, a is f32: expected one type");
    assert!(binary(BinaryOp::Mul, (DType::F32, &[2]), (DType::F32, &[3])).is_err());
    assert!(binary(BinaryOp::Mul, (DType::Bool, &[2]), (DType::Bool, &[2])).is_err());
    assert!(binary(BinaryOp::Pow, (DType::F32, &[2]), (DType::Bool, &[2])).is_err());
    assert!(binary(BinaryOp::And, (DType::F32, &[2]), (DType::F32, &[2])).unwrap_err().to_string().contains("bitwise_and: a is f32: expected i8"));
    assert!(Binary { op: BinaryOp::Add }.infer(&[None, None]).is_err());
}

#[test]
fn broadcasting_and_mixed_exponents_are_inferred() {
    let y = binary(BinaryOp::Pow, (DType::I8, &[2, 1]), (DType::F32, &[3])).unwrap();
    assert_eq!((y[0].dtype, &**y[0].shape()), (DType::I8, &[2, 3][..]));
}

#[test]
fn types_are_checked_by_function() {
    let infer = |op, dtype| Unary { op }.infer(&[info(dtype, &[2])]);
    assert!(infer(UnaryOp::Abs, DType::I64).is_ok());
    assert_eq!(infer(UnaryOp::Exp, DType::I64).unwrap_err().to_string(), "exp: x is i64: expected f32, f16 or bf16");
    assert!(infer(UnaryOp::Neg, DType::Bool).is_err() && Unary { op: UnaryOp::Neg }.infer(&[None]).is_err());
}

#[test]
fn comparisons_take_two_of_one_type_and_give_bool() {
    let info = |dtype| info(dtype, &[3]);
    for &op in CompareOp::ALL {
        assert_eq!(Compare { op }.infer(&[info(DType::I8), info(DType::I8)]).unwrap()[0].dtype, DType::Bool);
        assert!(Compare { op }.infer(&[info(DType::I8), info(DType::U8)]).is_err());
    }
}

#[test]
fn three_operands_are_checked() {
    let (x, flag) = (info(DType::F16, &[2, 1]), info(DType::Bool, &[3]));
    assert_eq!(&**Fma.infer(&[x, x, info(DType::F16, &[5])]).unwrap()[0].shape(), [2, 5]);
    assert!(Fma.infer(&[info(DType::I32, &[2]); 3]).is_err() && Fma.infer(&[x, x, None]).is_err());
    assert_eq!(&**Where.infer(&[flag, x, x]).unwrap()[0].shape(), [2, 3]);
    assert!(Where.infer(&[x, x, x]).unwrap_err().to_string().contains("condition is f16: expected bool"));
    assert!(Where.infer(&[flag, x, info(DType::F32, &[2, 1])]).is_err());
}

#[test]
fn bounds_of_clamp_are_checked() {
    let x = |dtype| info(dtype, &[3]);
    let infer =
        |min: Option<f64>, dtype, bounds| Clamp { min: min.map(Scalar::from), max: None }.infer(&[x(dtype), bounds, None]).map_err(|e| e.to_string());
    assert!(infer(None, DType::I8, None).is_ok() && infer(Some(-1e9), DType::F16, None).is_ok());
    assert_eq!(infer(Some(0.5), DType::I8, None).unwrap_err(), "clamp: x is i8, min: 0.5 is no value of i8: a whole number from -128 to 127 is");
    assert!(infer(Some(0.0), DType::F32, x(DType::F32)).unwrap_err().contains("expected one"));
    assert!(infer(None, DType::F32, x(DType::F16)).is_err() && infer(None, DType::Bool, None).is_err());
}

#[test]
fn swiglu_halves_the_last_axis_or_takes_two() {
    let op = SwiGlu { alpha: 1.0 };
    assert_eq!(**op.infer(&[info(DType::BF16, &[3, 8]), None]).unwrap()[0].shape(), [3, 4]);
    assert!(op.infer(&[info(DType::F32, &[3, 7]), None]).unwrap_err().to_string().contains("even"));
    assert!(op.infer(&[info(DType::F32, &[]), None]).is_err());
    assert!(
        op.infer(&[info(DType::F32, &[4]), info(DType::F32, &[5])])
            .unwrap_err()
            .to_string()
            .contains("a has shape [4], b has shape [5]: expected one shape")
    );
    assert!(op.infer(&[info(DType::I32, &[4]), None]).is_err());
}

#[test]
fn values_the_type_does_not_have_are_rejected() {
    let infer = |dtype, value: f64| Fill { shape: vec![2, 3], dtype, value: value.into() }.infer(&[]);
    assert_eq!(&**infer(DType::F16, 0.1).unwrap()[0].shape(), [2, 3]);
    assert!(infer(DType::U8, -1.0).is_err() && infer(DType::I32, 0.5).is_err() && infer(DType::Bool, 2.0).is_err());
    assert!(Fill { shape: vec![usize::MAX, 2], dtype: DType::U8, value: 0.0.into() }.infer(&[]).is_err());
}
