//! The tape, walked backwards.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use elinvar_core::{Error, Layout, Result};
use elinvar_kernels::{
    Definition, Operand, Operator, Scalar, Source, TensorInfo,
    binary::{Binary, BinaryOp},
    fill::Fill,
};

use super::{
    Gradients,
    tape::{Call, Origin, Taken},
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
            if let Some(found) = found.as_ref().filter(|_| call.operator.is_none() || kept.is_some_and(|kept| kept.is(&origin))) {
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
        let Some(operator) = &call.operator else { return Ok(()) };
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
            evaluate(&self.executor, &definition, &given).map_err(|error| error.context(format_args!("the gradient of {}", operator.name())))?;
        let origins = call.inputs.iter().flatten().filter_map(|input| input.origin.as_ref());
        origins.zip(found).try_for_each(|(origin, found)| self.add(origin, found))
    }
}

/// The outputs of a definition.
fn evaluate(executor: &Executor, definition: &Definition, given: &[Option<Tensor>]) -> Result<Vec<Tensor>> {
    let mut results: Vec<Vec<Tensor>> = Vec::new();
    // Of each step the last that takes something of it; what an output is stays.
    let mut last = vec![usize::MAX; definition.steps.len()];
    for (index, step) in definition.steps.iter().enumerate() {
        step.inputs.iter().flatten().filter_map(Operand::step).for_each(|used| last[used] = index);
    }
    definition.outputs.iter().filter_map(Operand::step).for_each(|used| last[used] = usize::MAX);
    let seen = |results: &[Vec<Tensor>], operand: &Operand| {
        let whole = match operand.source {
            Source::Input(index) => given.get(index).and_then(Option::as_ref),
            Source::Step(step, output) => results.get(step).and_then(|outputs| outputs.get(output)),
        };
        whole.ok_or_else(|| Error::internal("a gradient takes what was not kept")).map(|whole| whole.seen_as(&operand.info.layout))
    };
    for step in &definition.steps {
        let inputs = step.inputs.iter().map(|operand| operand.as_ref().map(|operand| seen(&results, operand)).transpose());
        let inputs = inputs.collect::<Result<Vec<_>>>()?;
        let inputs: Vec<_> = inputs.iter().map(Option::as_ref).collect();
        results.push(executor.apply(step.operator.clone(), &inputs)?);
        let index = results.len() - 1;
        step.inputs.iter().flatten().filter_map(Operand::step).filter(|used| last[*used] == index).for_each(|used| results[used].clear());
    }
    definition.outputs.iter().map(|operand| seen(&results, operand)).collect()
}

impl Executor {
    /// The gradients of an operator's wanted inputs, in their order, for a caller that has a tape of its own: from its inputs, its outputs, and the gradients
    /// of those, absent where one has none. Nothing is put on this library's tape.
    ///
    /// ```
    /// # use elinvar::{Executor, kernels::softmax::Softmax};
    /// # let executor = Executor::new_auto()?;
    /// let (softmax, x) = (std::sync::Arc::new(Softmax { axis: 0, log: false }), executor.tensor(&[2], &[1f32, 1.0])?);
    /// let y = executor.apply(softmax.clone(), &[Some(&x)])?;
    /// let dy = executor.tensor(&[2], &[1f32, 0.0])?;
    /// let dx = executor.gradient(&*softmax, &[Some(&x)], &y.iter().collect::<Vec<_>>(), &[Some(&dy)], &[true])?;
    /// assert_eq!(dx[0].to_vec::<f32>()?, [0.25, -0.25]);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// An operator without a gradient, or of an input that has none; inputs, outputs or gradients that do not fit; out of memory.
    pub fn gradient(
        &self,
        operator: &dyn Operator,
        inputs: &[Option<&Tensor>],
        outputs: &[&Tensor],
        upstream: &[Option<&Tensor>],
        wanted: &[bool],
    ) -> Result<Vec<Tensor>> {
        let infos = |tensors: &[Option<&Tensor>]| tensors.iter().map(|tensor| tensor.map(Tensor::info)).collect::<Vec<_>>();
        let taken = infos(inputs);
        let of = |info: &TensorInfo| (info.dtype, *info.shape());
        let expected: Vec<_> = operator.infer(&taken)?.iter().map(of).collect();
        let found: Vec<_> = outputs.iter().map(|output| of(&output.info())).collect();
        let fits = upstream.len() == expected.len() && upstream.iter().zip(&expected).all(|(up, output)| up.is_none_or(|up| of(&up.info()) == *output));
        if found != expected || !fits || wanted.len() != inputs.len() {
            let given = format!("outputs {outputs:?}, gradients {upstream:?}, {} inputs wanted or not", wanted.len());
            return Err(Error::invalid_argument(format!("the gradient of {}: {given}: those of its call are expected", operator.name())));
        }
        let definition = operator.gradient(&taken, &infos(upstream), wanted)?;
        let given = inputs.iter().copied().chain(outputs.iter().copied().map(Some)).chain(upstream.iter().copied());
        let given: Vec<_> = given.map(|tensor| tensor.map(Tensor::detach)).collect();
        evaluate(&self.no_grad(), &definition, &given).map_err(|error| error.context(format_args!("the gradient of {}", operator.name())))
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

impl Tensor {
    /// The same memory through a layout that counts from the first element it touches.
    fn seen_as(&self, layout: &Layout) -> Tensor {
        self.view(layout.moved(self.layout().span().start))
    }
}
