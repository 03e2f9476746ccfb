//! Every operator either has a gradient, that of its oracle, or is one of those that have none.

use std::collections::{BTreeMap, BTreeSet};

use elinvar_kernels::{
    conformance::{Case, cases, check_gradient},
    registry,
};

/// Operators whose results are no real numbers or do not depend smoothly on anything, and those that change memory in place.
const NONE: &[&str] = &[
    "arange",
    "argmax",
    "argmin",
    "bitwise_and",
    "bitwise_count",
    "bitwise_not",
    "bitwise_or",
    "bitwise_xor",
    "decode_attention",
    "dequantize",
    "eq",
    "fill",
    "ge",
    "gt",
    "kv_append",
    "le",
    "left_shift",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    // Of inference.
    "lora_rows",
    "lt",
    "ne",
    // Of a cache, which is no leaf.
    "paged_attention",
    "paged_decode_attention",
    "right_shift",
    "rope_append",
    "sample",
    "sample_argmax",
];

/// Those that have none yet.
const MISSING: &[&str] = &[
    "attention_gradient",
    "cross_entropy_gradient",
    "cross_entropy_with_gradient",
    "layer_norm_gradient",
    "log_softmax_gradient",
    "rms_norm_gradient",
    "softmax_gradient",
    "swiglu_gradient",
];

/// Elements of a case at most.
const MOST: usize = 5900;

#[test]
fn every_operator_has_the_gradient_of_its_oracle_or_none() {
    // The fewest elements of each operator with these attributes and inputs.
    let mut smallest: BTreeMap<String, Vec<Case>> = BTreeMap::new();
    let size = |case: &Case| case.inputs.iter().flatten().map(|input| input.dims().iter().product::<usize>()).sum::<usize>();
    for case in cases() {
        // A wrapper of the suite has no gradient of its own.
        let floats = case.inputs.iter().flatten().filter(|input| input.dtype().is_float()).count();
        if floats == 0 || case.rounds || format!("{:?}", case.operator).starts_with("Viewed") || size(&case) > MOST || size(&case) < 2 {
            continue;
        }
        let ranks = |case: &Case| case.inputs.iter().map(|input| input.as_ref().map(|input| input.dims().len())).collect::<Vec<_>>();
        smallest.entry(format!("{} {:?} {:?}", case.operator.name(), case.operator, ranks(&case))).or_default().push(case);
    }
    let (mut with, mut failures) = (BTreeMap::<&str, usize>::new(), Vec::new());
    for mut cases in smallest.into_values() {
        cases.sort_by_key(size);
        for case in cases.iter().take(4) {
            let name = case.operator.name();
            match check_gradient(case) {
                Ok(compared) if compared.is_none_or(|compared| compared == 0) => {}
                Ok(compared) => *with.entry(name).or_default() += compared.unwrap_or_default(),
                // A reduction or a conversion of its own may have none.
                Err(error) if error.is_unsupported() => assert!(error.to_string().contains(&format!("{name} has no gradient")), "{error}"),
                Err(error) => failures.push(error.to_string()),
            }
        }
    }
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
    let listed: BTreeSet<_> = NONE.iter().chain(MISSING).copied().collect();
    let checked: BTreeSet<_> = with.into_keys().collect();
    assert!(checked.is_disjoint(&listed), "these have a gradient: {:?}", checked.intersection(&listed));
    let unknown: Vec<_> =
        registry::operators().iter().map(|operator| operator.name).filter(|name| !checked.contains(name) && !listed.contains(name)).collect();
    assert!(unknown.is_empty(), "no gradient was checked of these, and they are not listed: {unknown:?}");
}
