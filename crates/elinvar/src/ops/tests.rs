//! Every operator of the registry has a method, and every method an example.

use elinvar_kernels::registry;

/// The sources of methods of `Tensor` and constructors of `Executor`.
const SOURCES: &[&str] = &[
    include_str!("../creation.rs"),
    include_str!("../executor/launch.rs"),
    include_str!("../executor/choice.rs"),
    include_str!("../executor/mod.rs"),
    include_str!("../gradient/mod.rs"),
    include_str!("../group.rs"),
    include_str!("../host.rs"),
    include_str!("../shape.rs"),
    include_str!("../tensor.rs"),
    include_str!("attention.rs"),
    include_str!("einsum.rs"),
    include_str!("functions.rs"),
    include_str!("indexing.rs"),
    include_str!("layout.rs"),
    include_str!("mod.rs"),
    include_str!("losses.rs"),
    include_str!("norms.rs"),
    include_str!("optimizers.rs"),
    include_str!("pairs.rs"),
    include_str!("products.rs"),
    include_str!("reductions.rs"),
    include_str!("steps.rs"),
];

/// Operators whose methods have other names: NumPy's or PyTorch's.
const NAMES: &[(&str, &[&str])] = &[
    ("attention_gradient", &[]),
    ("cross_entropy_gradient", &[]),
    ("cross_entropy_with_gradient", &[]),
    ("layer_norm_gradient", &[]),
    ("log_softmax_gradient", &[]),
    ("lora_rows", &[]),
    ("rms_norm_gradient", &[]),
    ("softmax_gradient", &[]),
    ("swiglu_gradient", &[]),
    ("expand", &["broadcast_to"]),
    ("fill", &["full", "fill_"]),
    ("gather_elements", &["take_along_axis"]),
    ("max", &["maximum"]),
    ("min", &["minimum"]),
    ("projection", &["project"]),
    ("reduce_l2", &["norm"]),
    ("reduce_log_sum_exp", &["logsumexp"]),
    ("reduce_max", &["max"]),
    ("reduce_mean", &["mean"]),
    ("reduce_min", &["min"]),
    ("reduce_prod", &["prod"]),
    ("reduce_sum", &["sum"]),
    ("reduce_sum_square", &["sum_square"]),
    ("scatter_elements", &["scatter"]),
    ("trilu", &["triu", "tril"]),
    // A word of Rust's.
    ("where", &["select"]),
];

fn is_method(name: &str) -> bool {
    let (declared, row) = ([format!("pub fn {name}("), format!("pub fn {name}<")], format!("{name} {name}_into "));
    let is_it = |line: &str| declared.iter().any(|start| line.starts_with(start)) || format!("{line} ").starts_with(&row);
    SOURCES.iter().flat_map(|source| source.lines()).any(|line| is_it(line.trim_start()))
}

#[test]
fn every_operator_is_a_method() {
    let operators = registry::operators();
    for operator in &operators {
        let names = NAMES.iter().find(|(name, _)| *name == operator.name).map_or(std::slice::from_ref(&operator.name), |(_, names)| names);
        for name in names {
            assert!(is_method(name), "the operator '{}' has no method '{name}'", operator.name);
        }
    }
    assert!(NAMES.iter().all(|(name, _)| operators.iter().any(|operator| operator.name == *name)), "a name of no operator");
    assert!(!is_method("softmin") && !is_method("soft") && !is_method("reduce_sum"));
}

#[test]
fn every_method_has_an_example() {
    for source in SOURCES {
        let mut has_example = false;
        for line in source.lines().map(str::trim_start) {
            has_example |= line.starts_with("/// ```") || line.starts_with("#[doc = operators!(@example");
            if let Some(method) = line.strip_prefix("pub fn ") {
                assert!(std::mem::take(&mut has_example), "no example: {method}");
            }
        }
    }
}
