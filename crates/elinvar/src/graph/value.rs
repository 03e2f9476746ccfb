//! Values, and what is done with them.

use std::{fmt, sync::Arc};

use elinvar_core::{Binding, Dispatch, Result};
use elinvar_kernels::{Operator, TensorInfo};

/// A value's index: memory that was given, or a node's result.
pub(crate) type Value = usize;

/// A value through a layout, whose offset counts from the value's first element.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Operand {
    pub(crate) value: Value,
    pub(crate) info: TensorInfo,
}

impl Operand {
    /// What an operator sees of it.
    pub(super) fn seen(&self) -> TensorInfo {
        TensorInfo { layout: self.info.layout.rebased(), ..self.info }
    }
}

/// Makes a dispatch of the bindings of a node's inputs, and its outputs after them; none if there is nothing to do.
pub(super) type MakeDispatch = dyn Fn(Vec<Option<Binding>>) -> Result<Option<Dispatch>> + Send + Sync;

/// What a node does.
#[derive(Clone)]
pub(crate) enum Action {
    /// An operator, planned when its turn comes.
    Operator(Arc<dyn Operator>),
    /// One dispatch: a user's kernel, or a program of fused operators.
    Dispatch {
        /// Whether it writes to an input, for each.
        writes: Arc<[bool]>,
        /// The types of its outputs, row-major.
        outputs: Arc<[TensorInfo]>,
        make: Arc<MakeDispatch>,
    },
}

impl Action {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Action::Operator(operator) => operator.name(),
            Action::Dispatch { .. } => "kernel",
        }
    }
}

impl fmt::Debug for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Operator(operator) => operator.fmt(f),
            Action::Dispatch { .. } => f.write_str("dispatch"),
        }
    }
}

/// Where a node's output goes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Output {
    /// To memory of its own.
    Value(Value),
    /// To elements that are there.
    Into(Operand),
}

/// The only output, if it has memory of its own.
pub(super) fn only(outputs: &[Output]) -> Option<Value> {
    let &[Output::Value(value)] = outputs else { return None };
    Some(value)
}

/// Where an operator stands: `operator 12 of the recording (rms_norm of [2, 4] f32)`.
pub(super) fn placed(place: usize, name: &str, inputs: impl Iterator<Item = TensorInfo>) -> String {
    let inputs: Vec<_> = inputs.map(|info| format!("{} {}", info.shape(), info.dtype)).collect();
    format!("operator {place} of the recording ({name}{}{})", if inputs.is_empty() { "" } else { " of " }, inputs.join(", "))
}
