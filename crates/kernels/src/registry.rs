//! Every operator by name, as data: what `elinvar op --list` prints and `elinvar op NAME` runs.

use elinvar_core::{DType, Error, Result};

use crate::{AttributeInfo, Attributes, Operator};

/// One input or output of an operator.
#[derive(Clone, Copy, Debug)]
pub struct Port {
    /// Its name: the tensor's name in the files of `elinvar op`.
    pub name: &'static str,
    /// Data types it takes.
    pub dtypes: &'static [DType],
    /// May be absent.
    pub optional: bool,
    /// Stands for any number of tensors, named `name0`, `name1`, …; only the last input may.
    pub variadic: bool,
    /// Its shape and meaning.
    pub doc: &'static str,
}

impl Port {
    /// A required tensor.
    pub const fn new(name: &'static str, dtypes: &'static [DType], doc: &'static str) -> Self {
        Self { name, dtypes, optional: false, variadic: false, doc }
    }

    /// The same, but it may be absent.
    pub const fn or_absent(self) -> Self {
        Self { optional: true, ..self }
    }

    /// The same, for any number of tensors.
    pub const fn repeated(self) -> Self {
        Self { variadic: true, ..self }
    }
}

/// An operator, described.
#[derive(Clone, Copy)]
pub struct Description {
    /// Its name.
    pub name: &'static str,
    /// What it computes, in a line.
    pub summary: &'static str,
    /// Inputs in order.
    pub inputs: &'static [Port],
    /// Outputs in order. For an operator that updates inputs in place: those inputs' names.
    pub outputs: &'static [Port],
    /// Attributes.
    pub attributes: &'static [AttributeInfo],
    /// Makes the operator from its attributes.
    pub build: fn(&Attributes) -> Result<Box<dyn Operator>>,
}

impl Description {
    /// Makes the operator from attribute texts.
    ///
    /// # Errors
    /// Attributes that are unknown, missing or do not parse.
    pub fn operator<K: Into<String>, V: Into<String>>(&self, attributes: impl IntoIterator<Item = (K, V)>) -> Result<Box<dyn Operator>> {
        Attributes::new(self.name, self.attributes, attributes).and_then(|a| (self.build)(&a)).map_err(|e| e.context(self.name))
    }
}

/// Every operator, in alphabetical order.
pub fn operators() -> Vec<&'static Description> {
    let folders: &[&'static [Description]] = &[
        crate::attention::DESCRIPTIONS,
        crate::attention::decode::DESCRIPTIONS,
        crate::attention_scores::DESCRIPTIONS,
        crate::binary::DESCRIPTIONS,
        crate::cast::DESCRIPTIONS,
        crate::compare::DESCRIPTIONS,
        crate::copy::DESCRIPTIONS,
        crate::cumsum::DESCRIPTIONS,
        crate::fill::DESCRIPTIONS,
        crate::gather::DESCRIPTIONS,
        crate::greedy::DESCRIPTIONS,
        crate::kv_append::DESCRIPTIONS,
        crate::layer_norm::DESCRIPTIONS,
        crate::lora::DESCRIPTIONS,
        crate::matmul::DESCRIPTIONS,
        crate::projection::DESCRIPTIONS,
        crate::reduce::DESCRIPTIONS,
        crate::rms_norm::DESCRIPTIONS,
        crate::rope::DESCRIPTIONS,
        crate::rope_append::DESCRIPTIONS,
        crate::sample::DESCRIPTIONS,
        crate::scatter::DESCRIPTIONS,
        crate::softmax::DESCRIPTIONS,
        crate::swiglu::DESCRIPTIONS,
        crate::ternary::DESCRIPTIONS,
        crate::top_k::DESCRIPTIONS,
        crate::unary::DESCRIPTIONS,
        crate::weighted_sum::DESCRIPTIONS,
    ];
    let mut all: Vec<_> = folders.iter().copied().flatten().collect();
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
