//! The registry of operators.

use std::collections::HashMap;

use elinvar_core::{Backend, DType};
use elinvar_cpu::CpuBackend;
use elinvar_kernels::{
    AttributeInfo, Description, Operator, Precision, TensorInfo,
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
    assert_eq!(message, "unknown operator 'log_soft': did you mean log, log_softmax, log_softmax_gradient?");
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
            BinaryOp::LeakyRelu | BinaryOp::Elu | BinaryOp::HardSigmoid => None,
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
    assert_eq!(format!("{made:?}"), format!("{:?}", Attention { scoring, tokens_first: true, precision: Precision::Fast, output: None }));
}

#[test]
fn attributes_that_do_not_fit_are_named_with_what_is_allowed() {
    for (operator, name, value, expected) in [
        ("softmax", "axis", "x", "softmax: attribute 'axis' is 'x': expected a whole number (The axis; negative counts from the end.)"),
        ("attention", "left_window", "-2", "attention: attribute 'left_window' is '-2': expected a whole number from 0 on"),
        ("attention", "precision", "sloppy", "attention: attribute 'precision' is 'sloppy': expected strict, invariant or fast"),
        ("scatter_nd", "reduction", "sum", "scatter_nd: attribute 'reduction' is 'sum': expected none, add, mul, min or max"),
        ("cumsum", "reverse", "yes", "cumsum: attribute 'reverse' is 'yes': expected true or false"),
        ("rms_norm", "epsilon", "", "rms_norm: attribute 'epsilon' is '': expected a number"),
        ("cast", "to", "f64", "cast: attribute 'to' is 'f64': expected f32, f16, bf16, i8"),
        ("reshape", "shape", "2,x", "reshape: attribute 'shape' is '2,x': expected whole numbers separated by commas"),
        ("fill", "shape", "-1", "fill: attribute 'shape' is '-1': expected whole numbers from 0 on, separated by commas"),
        ("softmax", "axes", "1", "softmax: unknown attribute 'axes': expected axis"),
        ("copy", "axes", "1", "copy: unknown attribute 'axes': expected none"),
    ] {
        let message = find(operator).and_then(|d| d.operator([(name, value)])).unwrap_err().to_string();
        assert!(message.starts_with(expected), "{message}");
    }
    let message = |given: &[(&str, &str)]| find("top_k").and_then(|d| d.operator(given.iter().copied())).unwrap_err().to_string();
    assert!(message(&[]).starts_with("top_k: attribute 'k' is missing: expected a whole number from 0 on"), "{}", message(&[]));
    assert_eq!(message(&[("k", "1"), ("k", "2")]), "top_k: attribute 'k' is given twice");
}

#[test]
fn attributes_are_described_as_they_are_declared() {
    let shown = |operator: &str| {
        let attribute = |a: &AttributeInfo| format!("{} {}={}", a.kind, a.name, a.default.unwrap_or("?"));
        find(operator).unwrap().attributes.iter().map(attribute).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(shown("top_k"), "count k=? int axis=-1 bool largest=true bool sorted=true");
    assert_eq!(shown("layer_norm"), "int axis=-1 float epsilon=1e-5 bool statistics=false");
    assert_eq!(shown("split"), "int axis=0 counts sizes= count parts=");
    assert_eq!(shown("reduce_sum"), "ints axes=[] bool keepdims=true");
    assert_eq!(
        shown("attention_scores"),
        "float scale= float softcap=0 bool causal=false int offset=0 count left_window= count right_window= bool softmax=false"
    );
    assert_eq!(shown("argmax"), "int axis= bool keepdims=true bool select_last_index=false word dtype=i64");
    let made = find("reduce_sum").and_then(|d| d.operator([("axes", " [0, -1] "), ("keepdims", "0")])).unwrap();
    assert_eq!(format!("{made:?}"), "Reduce { axes: [0, -1], keepdims: false, reduction: Sum }");
}

#[test]
fn attributes_of_a_product_reach_it() {
    let build = |attributes: &[(&str, &str)]| find("matmul").and_then(|d| d.operator(attributes.iter().copied()));
    let operator = build(&[("transpose_b", "true"), ("precision", "fast"), ("output", "bf16"), ("alpha", "0.5")]).unwrap();
    let text = format!("{operator:?}");
    assert!(text.contains("transpose_b: true") && text.contains("Fast") && text.contains("BF16") && text.contains("0.5"), "{text}");
}

#[test]
fn a_parameter_of_a_function_reaches_it() {
    let elu = find("elu").and_then(|d| d.operator([("alpha", "0.5")])).unwrap();
    assert!(format!("{elu:?}").contains("scalar: 0.5"));
}
