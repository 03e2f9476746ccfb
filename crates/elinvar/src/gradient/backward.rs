//! The tape, walked backwards.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use elinvar_core::{Error, Result};
use elinvar_kernels::{
    Scalar,
    binary::{Binary, BinaryOp},
    fill::Fill,
};

use super::{
    Gradients,
    evaluate::evaluate,
    tape::{Call, CustomRule, Origin, Rule, Taken},
};
use crate::{
    executor::{Executor, only},
    tensor::Tensor,
};

/// Gradients of what `tensor` was computed from, given its own; of `kept` beside the leaves.
pub(super) fn backward(tensor: &Tensor, upstream: &Tensor, kept: Option<&Origin>) -> Result<Gradients> {
    let Some(origin) = tensor.origin() else {
        return Err(Error::invalid_argument(format!("backward of {tensor:?}: nothing that it was computed from requires a gradient")));
    };
    if (upstream.dtype(), upstream.shape()) != (tensor.dtype(), tensor.shape()) {
        return Err(Error::invalid_argument(format!("backward of {tensor:?} from {upstream:?}: a gradient of its type and shape is expected")));
    }
    let executor = tensor.executor().with_recorder(tensor.recorder().cloned()).no_grad();
    let mut gradients = Gradients::default();
    let mut sums = Sums { executor, of: HashMap::new() };
    sums.add(origin, upstream.detach())?;
    for call in in_order(origin).iter().rev() {
        let found = sums.of.remove(&Arc::as_ptr(call)).unwrap_or_default();
        for (output, found) in found.iter().enumerate() {
            let origin = Origin { call: call.clone(), output };
            if let Some(found) = found.as_ref().filter(|_| matches!(call.rule, Rule::Leaf) || kept.is_some_and(|kept| kept.is(&origin))) {
                gradients.insert(origin, found.clone());
            }
        }
        if found.iter().any(Option::is_some) {
            sums.step(call, found)?;
        }
    }
    Ok(gradients)
}

/// The calls that a tensor depends on, each after those that it depends on itself.
fn in_order(last: &Origin) -> Vec<Arc<Call>> {
    let (mut order, mut seen) = (Vec::new(), HashSet::new());
    let mut pending = vec![(last.call.clone(), 0)];
    seen.insert(Arc::as_ptr(&last.call));
    while let Some((call, next)) = pending.pop() {
        let Some(input) = call.inputs.get(next) else {
            order.push(call);
            continue;
        };
        let before = input.as_ref().and_then(|input| input.origin.as_ref()).map(|origin| origin.call.clone());
        pending.push((call, next + 1));
        if let Some(before) = before.filter(|before| seen.insert(Arc::as_ptr(before))) {
            pending.push((before, 0));
        }
    }
    order
}

/// What calls' outputs have got so far.
struct Sums {
    executor: Executor,
    of: HashMap<*const Call, Vec<Option<Tensor>>>,
}

impl Sums {
    fn add(&mut self, origin: &Origin, found: Tensor) -> Result<()> {
        let count = origin.call.outputs.len();
        let sum = &mut self.of.entry(Arc::as_ptr(&origin.call)).or_insert_with(|| vec![None; count])[origin.output];
        *sum = Some(match sum.take() {
            None => found,
            Some(before) => only(self.executor.apply(Arc::new(Binary { op: BinaryOp::Add }), &[Some(&before), Some(&found)])?)?,
        });
        Ok(())
    }

    /// From the gradients of a call's outputs to those of its inputs.
    fn step(&mut self, call: &Call, upstream: Vec<Option<Tensor>>) -> Result<()> {
        let operator = match &call.rule {
            Rule::Leaf => return Ok(()),
            Rule::Operator(operator) => operator,
            Rule::Custom(rule) => return self.custom_step(rule, call, &upstream),
        };
        let infos: Vec<_> = call.inputs.iter().map(|input| input.as_ref().map(|input| input.info)).collect();
        let types: Vec<_> = upstream.iter().map(|upstream| upstream.as_ref().map(Tensor::info)).collect();
        let wanted = call.wanted();
        let definition = operator.gradient(&infos, &types, &wanted)?;
        let kept = |taken: &Taken| taken.tensor(&**operator);
        let mut given = Vec::new();
        for input in &call.inputs {
            given.push(input.as_ref().map(kept).transpose()?.flatten());
        }
        for output in &call.outputs {
            given.push(kept(output)?);
        }
        given.extend(upstream);
        let found =
            evaluate(&self.executor, &definition, &given, &[]).map_err(|error| error.context(format_args!("the gradient of {}", operator.name())))?;
        let origins = call.inputs.iter().flatten().filter_map(|input| input.origin.as_ref());
        origins.zip(found).try_for_each(|(origin, found)| self.add(origin, found))
    }
}

impl Sums {
    fn custom_step(&mut self, rule: &CustomRule, call: &Call, upstream: &[Option<Tensor>]) -> Result<()> {
        let name = &rule.name;
        let found = (rule.gradient)(upstream)?;
        if found.len() != call.inputs.len() {
            let (found, inputs) = (found.len(), call.inputs.len());
            return Err(Error::invalid_argument(format!(
                "the gradient of {name} gives {found} gradients: one for each of its {inputs} inputs is expected"
            )));
        }
        for (place, (input, found)) in call.inputs.iter().zip(found).enumerate() {
            let Some((input, origin)) = input.as_ref().and_then(|input| Some((input, input.origin.as_ref()?))) else { continue };
            let found =
                found.ok_or_else(|| Error::invalid_argument(format!("the gradient of {name} gives none of input {place}, which requires one")))?;
            if (found.dtype(), found.shape()) != (input.info.dtype, input.info.shape()) {
                let wanted = format!("one of {} {} is expected", input.info.shape(), input.info.dtype);
                return Err(Error::invalid_argument(format!("the gradient of {name} gives {found:?} of input {place}: {wanted}")));
            }
            self.add(origin, found.detach())?;
        }
        Ok(())
    }
}

/// The gradient of a loss by itself.
pub(super) fn one(tensor: &Tensor) -> Result<Tensor> {
    if tensor.shape().elements() != 1 {
        let found = format!("backward of {tensor:?}, which has {} elements", tensor.shape().elements());
        return Err(Error::invalid_argument(format!("{found}: one is expected, a loss; give the gradient of several with backward_from")));
    }
    let executor = tensor.executor().with_recorder(tensor.recorder().cloned());
    only(executor.apply(Arc::new(Fill { shape: tensor.shape().to_vec(), dtype: tensor.dtype(), value: Scalar::Int(1) }), &[])?)
}
