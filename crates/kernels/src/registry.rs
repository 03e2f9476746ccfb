//! Every operator by name, as data: what `elinvar op --list` prints and `elinvar op NAME` runs.

use elinvar_core::{Error, Result};

#[cfg(any(test, feature = "conformance"))]
use crate::conformance::case::Case;
pub use crate::{description::Description, signature::Port};

/// The folders of operators: the descriptions of each, and its cases of the conformance suite.
macro_rules! folders {
    ($($folder:ident $(:: $inner:ident)*,)*) => {
        const FOLDERS: &[&[Description]] = &[$(crate::$folder $(::$inner)*::DESCRIPTIONS,)*];

        #[cfg(any(test, feature = "conformance"))]
        pub(crate) const CASES: &[fn() -> Vec<Case>] = &[$(crate::$folder $(::$inner)*::oracle::cases,)*];
    };
}

folders! {
    attention,
    attention::decode,
    attention::gradient,
    attention::paged,
    attention::paged::decode,
    attention_scores,
    binary,
    cast,
    compare,
    copy,
    cross_entropy,
    cumsum,
    dequantize,
    fill,
    gather,
    sample_argmax,
    kv_append,
    layer_norm,
    lora,
    lora_rows,
    matmul,
    norm_gradient,
    projection,
    quantized_linear,
    reduce,
    rms_norm,
    rope,
    rope_append,
    sample,
    scatter,
    softmax,
    softmax::gradient,
    swiglu,
    swiglu::gradient,
    ternary,
    top_k,
    unary,
    weighted_sum,
}

/// Every operator, in alphabetical order.
pub fn operators() -> Vec<&'static Description> {
    let mut all: Vec<_> = FOLDERS.iter().copied().flatten().collect();
    all.sort_by_key(|d| d.name);
    all
}

/// The operator called `name`.
///
/// # Errors
/// No such operator; the error lists the nearest names.
pub fn find(name: &str) -> Result<&'static Description> {
    let all = operators();
    if let Some(found) = all.iter().find(|d| d.name == name) {
        return Ok(found);
    }
    let near: Vec<_> = all.iter().map(|d| d.name).filter(|n| n.contains(name) || name.contains(n)).collect();
    let hint = if near.is_empty() { "list them with 'elinvar op --list'".to_owned() } else { format!("did you mean {}?", near.join(", ")) };
    Err(Error::invalid_argument(format!("unknown operator '{name}': {hint}")))
}
