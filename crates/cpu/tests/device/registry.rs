//! The registry of operators.

use std::collections::HashMap;

use elinvar_core::{Backend, DType};
use elinvar_cpu::CpuBackend;
use elinvar_kernels::{
    Description, Operator, Precision, TensorInfo,
    attention::{Attention, Scoring},
    binary::{Binary, BinaryOp},
    cast::Cast,
    compare::{Compare, CompareOp},
    registry::{find, operators},
    unary::{Unary, UnaryOp},
};

#[test]
fn names_are_unique_and_everything_is_documented() {
    let all = operators();
    for pair in all.windows(2) {
        assert_ne!(pair[0].name, pair[1].name, "two operators of one name");
    }
    for operator in all {
        assert!(!operator.summary.is_empty(), "{}", operator.name);
        assert!(operator.inputs.iter().chain(operator.outputs).all(|p| !p.doc.is_empty() && !p.dtypes.is_empty()), "{}", operator.name);
        assert!(operator.inputs.iter().rev().skip(1).all(|p| !p.variadic), "{}: only the last input may be variadic", operator.name);
        assert!(operator.attributes.iter().all(|a| !a.doc.is_empty()), "{}", operator.name);
    }
}

#[test]
fn an_unknown_operator_is_reported_with_similar_names() {
    let message = find("log_soft").map(|d| d.name).unwrap_err().to_string();
    assert_eq!(message, "unknown operator 'log_soft': did you mean log, log_softmax?");
}

#[test]
fn every_function_of_elements_is_an_operator_of_its_name() {
    let made = |d: &'static Description| d.operator::<&str, &str>([]).ok().map(|operator| (format!("{operator:?}"), d));
    let all: HashMap<String, &Description> = operators().into_iter().filter_map(made).collect();
    let named = |operator: &dyn Operator| all.get(&format!("{operator:?}")).map(|d| d.name);
    for &op in UnaryOp::ALL {
        let name = match op {
            UnaryOp::Not => "bitwise_not",
            UnaryOp::Popcount => "bitwise_count",
            op => op.name(),
        };
        assert_eq!(named(&Unary { op }), Some(name));
        assert!(find(name).unwrap().inputs[0].dtypes.iter().all(|&dtype| op.takes(dtype)), "{name}");
    }
    for &op in BinaryOp::ALL {
        let name = match op {
            BinaryOp::Rem => Some("fmod"),
            BinaryOp::And => Some("bitwise_and"),
            BinaryOp::Or => Some("bitwise_or"),
            BinaryOp::Xor => Some("bitwise_xor"),
            BinaryOp::Shl => Some("left_shift"),
            BinaryOp::Shr => Some("right_shift"),
            BinaryOp::LeakyRelu | BinaryOp::Elu => None,
            op => Some(op.name()),
        };
        assert_eq!(named(&Binary { op }), name);
    }
    for &op in CompareOp::ALL {
        assert_eq!(named(&Compare { op }), Some(op.name()));
    }
}

#[test]
fn every_pair_of_types_is_cast() {
    let backend = CpuBackend::new(None).unwrap();
    for (&from, &to) in DType::ALL.iter().flat_map(|from| DType::ALL.iter().map(move |to| (from, to))) {
        let (operator, x) = (Cast { to }, [Some(TensorInfo::new(from, &[3]).unwrap())]);
        let plan = operator.plan(&x, &operator.infer(&x).unwrap(), backend.properties());
        assert!(plan.is_ok_and(|plan| plan.launches.len() == 1), "{from} to {to}");
    }
}

#[test]
fn attributes_make_the_operator() {
    let build = |attributes: &[(&str, &str)]| find("attention").and_then(|d| d.operator(attributes.iter().copied()));
    let made = build(&[("causal", "true"), ("left_window", "7"), ("scale", "0.5"), ("tokens_first", "1"), ("precision", "fast")]).unwrap();
    let scoring = Scoring { causal: true, left_window: Some(7), scale: Some(0.5), ..Scoring::default() };
    assert_eq!(format!("{made:?}"), format!("{:?}", Attention { scoring, tokens_first: true, precision: Precision::Fast }));
    assert!(build(&[("left_window", "-2")]).unwrap_err().to_string().contains("left_window is -2: -1 (all) or a number of keys expected"));
    assert!(build(&[("window", "1")]).unwrap_err().to_string().contains("unknown attribute 'window'"));
}

#[test]
fn attributes_of_a_product_reach_it() {
    let build = |attributes: &[(&str, &str)]| find("matmul").and_then(|d| d.operator(attributes.iter().copied()));
    let operator = build(&[("transpose_b", "true"), ("precision", "fast"), ("output", "bf16"), ("alpha", "0.5")]).unwrap();
    let text = format!("{operator:?}");
    assert!(text.contains("transpose_b: true") && text.contains("Fast") && text.contains("BF16") && text.contains("0.5"), "{text}");
    assert!(build(&[("precision", "sloppy")]).is_err());
}

#[test]
fn a_parameter_of_a_function_reaches_it() {
    let elu = find("elu").and_then(|d| d.operator([("alpha", "0.5")])).unwrap();
    assert!(format!("{elu:?}").contains("scalar: 0.5"));
}
