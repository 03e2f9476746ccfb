//! What tensors were computed by, where a gradient flows through it.

use std::sync::Arc;

use elinvar_core::{Error, Result};
use elinvar_kernels::{Operator, TensorInfo};

use crate::tensor::Tensor;

/// A tensor's place on the tape: which result of a call it is.
#[derive(Clone)]
pub(crate) struct Origin {
    pub(super) call: Arc<Call>,
    pub(super) output: usize,
}

impl Origin {
    pub(super) fn is(&self, other: &Origin) -> bool {
        Arc::ptr_eq(&self.call, &other.call) && self.output == other.output
    }
}

/// What was applied to tensors of which one needs a gradient, or such a tensor itself.
pub(super) struct Call {
    pub(super) rule: Rule,
    pub(super) inputs: Vec<Option<Taken>>,
    pub(super) outputs: Vec<Taken>,
}

/// How gradients flow through a call.
pub(super) enum Rule {
    /// They end here: this is a tensor that requires one.
    Leaf,
    /// As the operator says.
    Operator(Arc<dyn Operator>),
    /// As a caller says.
    Custom(CustomRule),
}

/// A caller's rule: from the gradients of the outputs, as far as there are some, to those of the inputs.
pub(super) struct CustomRule {
    pub(super) name: String,
    pub(super) gradient: Box<CustomGradient>,
}

pub(super) type CustomGradient = dyn Fn(&[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> + Send + Sync;

/// An operand of a call.
pub(super) struct Taken {
    pub(super) info: TensorInfo,
    pub(super) origin: Option<Origin>,
    kept: Option<Kept>,
}

/// A tensor whose elements the gradient needs as they were.
struct Kept {
    tensor: Tensor,
    version: u64,
    /// Of a recording's result that comes with the tape each replay gives the elements of both.
    replays: Option<u64>,
}

impl Taken {
    fn new(tensor: &Tensor, is_needed: bool) -> Self {
        let memory = tensor.memory();
        let kept = || {
            let replays = memory.pending().is_none().then(|| memory.replays());
            Kept { tensor: tensor.detach(), version: memory.version(), replays }
        };
        Self { info: tensor.info(), origin: None, kept: is_needed.then(kept) }
    }

    /// Its elements, where the gradient of `operator` needs them.
    ///
    /// # Errors
    /// They were changed since.
    pub(super) fn tensor(&self, operator: &dyn Operator) -> Result<Option<Tensor>> {
        let Some(Kept { tensor, version, replays }) = &self.kept else { return Ok(None) };
        let memory = tensor.memory();
        if memory.version() != *version || replays.is_some_and(|replays| memory.replays() != replays) {
            let found = format!("the gradient of {} needs {tensor:?} as it was, and it was changed in place, or by a replay", operator.name());
            return Err(Error::invalid_argument(format!("{found}: change a copy, or change it after the backward pass")));
        }
        Ok(Some(tensor.clone()))
    }
}

impl Call {
    /// A tensor that gradients are computed of.
    pub(super) fn leaf(tensor: &Tensor) -> Origin {
        let call = Call { rule: Rule::Leaf, inputs: Vec::new(), outputs: vec![Taken::new(tensor, false)] };
        Origin { call: Arc::new(call), output: 0 }
    }

    /// The gradient's types of the outputs: row-major, of those that may have one.
    fn upstream(outputs: &[Tensor]) -> Vec<Option<TensorInfo>> {
        outputs.iter().map(|output| output.dtype().is_float().then(|| TensorInfo::of(output.dtype(), *output.shape()))).collect()
    }

    pub(super) fn wanted(&self) -> Vec<bool> {
        self.inputs.iter().map(|input| input.as_ref().is_some_and(|input| input.origin.is_some())).collect()
    }
}

impl Drop for Call {
    /// One after the other: a chain of calls may be longer than the stack is deep.
    fn drop(&mut self) {
        let origins = |call: &mut Call| call.inputs.iter_mut().flatten().filter_map(|input| input.origin.take()).collect::<Vec<_>>();
        let mut pending = origins(self);
        while let Some(origin) = pending.pop() {
            if let Some(mut call) = Arc::into_inner(origin.call) {
                pending.extend(origins(&mut call));
            }
        }
    }
}

/// Writes down that an operator gave `outputs`, where a gradient flows through it.
pub(crate) fn write_down(operator: &Arc<dyn Operator>, inputs: &[Option<&Tensor>], outputs: &mut [Tensor]) {
    let tracked: Vec<_> = inputs.iter().map(|input| input.is_some_and(|input| input.origin().is_some())).collect();
    if !tracked.contains(&true) || !outputs.iter().any(|output| output.dtype().is_float()) {
        return;
    }
    let infos: Vec<_> = inputs.iter().map(|input| input.map(Tensor::info)).collect();
    // What has no gradient says so when that is asked for; until then it may have one of some of its outputs.
    let used = match operator.gradient(&infos, &Call::upstream(outputs), &tracked) {
        Ok(gradient) => gradient.used_inputs().collect(),
        Err(_) => (0..inputs.len() + outputs.len()).collect::<Vec<_>>(),
    };
    let taken = |(index, input): (usize, &Option<&Tensor>)| {
        input.map(|input| Taken { origin: input.origin().cloned(), ..Taken::new(input, used.contains(&index)) })
    };
    let given = |(index, output): (usize, &Tensor)| Taken::new(output, used.contains(&(inputs.len() + index)));
    let call = Call {
        rule: Rule::Operator(operator.clone()),
        inputs: inputs.iter().enumerate().map(taken).collect(),
        outputs: outputs.iter().enumerate().map(given).collect(),
    };
    set_origins(call, outputs);
}

/// Writes down that a caller's computation gave `outputs`.
pub(super) fn write_down_custom(rule: CustomRule, inputs: &[&Tensor], outputs: &mut [Tensor]) {
    let taken = |input: &&Tensor| Some(Taken { origin: input.origin().cloned(), ..Taken::new(input, false) });
    let given = outputs.iter().map(|output| Taken::new(output, false)).collect();
    set_origins(Call { rule: Rule::Custom(rule), inputs: inputs.iter().map(taken).collect(), outputs: given }, outputs);
}

fn set_origins(call: Call, outputs: &mut [Tensor]) {
    let call = Arc::new(call);
    for (output, tensor) in outputs.iter_mut().enumerate().filter(|(_, tensor)| tensor.dtype().is_float()) {
        tensor.set_origin(Origin { call: call.clone(), output });
    }
}
