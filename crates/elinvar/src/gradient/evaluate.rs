//! Definitions of gradients, executed.

use std::sync::Arc;

use elinvar_core::{Error, Layout, Result, Storage};
use elinvar_kernels::{Definition, Operand, Operator, Source, TensorInfo, copy::Copy};

use crate::{executor::Executor, tensor::Tensor};

/// The outputs of a definition, in these tensors where they are given.
pub(super) fn evaluate(executor: &Executor, definition: &Definition, given: &[Option<Tensor>], into: &[&Tensor]) -> Result<Vec<Tensor>> {
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
    for (index, step) in definition.steps.iter().enumerate() {
        let inputs = step.inputs.iter().map(|operand| operand.as_ref().map(|operand| seen(&results, operand)).transpose());
        let inputs = inputs.collect::<Result<Vec<_>>>()?;
        let inputs: Vec<_> = inputs.iter().map(Option::as_ref).collect();
        // The tensor that an output of the step is to go to, where the gradient is all of it.
        let target = |output: usize| {
            let is_all = |operand: &Operand| operand.source == Source::Step(index, output) && operand.info.layout.is_contiguous();
            definition.outputs.iter().zip(into).find(|(operand, into)| is_all(operand) && into.shape() == operand.info.shape()).map(|(_, into)| *into)
        };
        results.push(run(executor, &step.operator, &inputs, target)?);
        step.inputs.iter().flatten().filter_map(Operand::step).filter(|used| last[*used] == index).for_each(|used| results[used].clear());
    }
    let found = definition.outputs.iter().map(|operand| seen(&results, operand)).collect::<Result<Vec<_>>>()?;
    for (found, into) in found.iter().zip(into).filter(|(found, into)| !found.same_memory(into)) {
        executor.apply_into(Arc::new(Copy), &[Some(found)], &[into])?;
    }
    Ok(found)
}

/// Applies an operator whose outputs go to these tensors, where there is one of the output's shape.
fn run<'a>(
    executor: &Executor,
    operator: &Arc<dyn Operator>,
    inputs: &[Option<&Tensor>],
    target: impl Fn(usize) -> Option<&'a Tensor>,
) -> Result<Vec<Tensor>> {
    let types = operator.infer(&infos(inputs))?;
    let targets: Vec<_> = (0..types.len()).map(|output| target(output).filter(|to| to.shape() == types[output].shape())).collect();
    if targets.iter().all(Option::is_none) {
        return executor.apply(operator.clone(), inputs);
    }
    let outputs = targets.iter().zip(&types).map(|(target, info)| match target {
        Some(target) => Ok((*target).clone()),
        None => executor.empty(info.dtype, info.shape(), Storage::Automatic),
    });
    let outputs = outputs.collect::<Result<Vec<_>>>()?;
    executor.apply_into(operator.clone(), inputs, &outputs.iter().collect::<Vec<_>>())?;
    Ok(outputs)
}

fn infos(tensors: &[Option<&Tensor>]) -> Vec<Option<TensorInfo>> {
    tensors.iter().map(|tensor| tensor.map(Tensor::info)).collect()
}

impl Executor {
    /// The gradients of an operator's wanted inputs, in their order, for a caller that has a tape of its own: from its inputs, its outputs, and the gradients
    /// of those, absent where one has none. Nothing is put on this library's tape. The gradients go to the tensors `into`, as in
    /// [`Executor::apply_into`], or to new ones where that is empty.
    ///
    /// ```
    /// # use elinvar::{Executor, kernels::softmax::Softmax};
    /// # let executor = Executor::new_auto()?;
    /// let (softmax, x) = (std::sync::Arc::new(Softmax { axis: 0, log: false }), executor.tensor(&[2], &[1f32, 1.0])?);
    /// let y = executor.apply(softmax.clone(), &[Some(&x)])?;
    /// let dy = executor.tensor(&[2], &[1f32, 0.0])?;
    /// let dx = executor.gradient(&*softmax, &[Some(&x)], &y.iter().collect::<Vec<_>>(), &[Some(&dy)], &[true], &[])?;
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
        into: &[&Tensor],
    ) -> Result<Vec<Tensor>> {
        let taken = infos(inputs);
        let of = |info: &TensorInfo| (info.dtype, *info.shape());
        let expected: Vec<_> = operator.infer(&taken)?.iter().map(of).collect();
        let found: Vec<_> = outputs.iter().map(|output| of(&output.info())).collect();
        let fits =
            upstream.len() == expected.len() && upstream.iter().zip(&expected).all(|(up, output)| up.is_none_or(|up| of(&up.info()) == *output));
        let gradients: Vec<_> = taken.iter().zip(wanted).filter(|(_, wanted)| **wanted).filter_map(|(input, _)| input.as_ref().map(of)).collect();
        let into_fits = into.is_empty() || into.iter().map(|into| of(&into.info())).eq(gradients);
        if found != expected || !fits || wanted.len() != inputs.len() || !into_fits {
            let given = format!("outputs {outputs:?}, gradients {upstream:?}, {} inputs wanted or not, into {into:?}", wanted.len());
            return Err(Error::invalid_argument(format!("the gradient of {}: {given}: those of its call are expected", operator.name())));
        }
        let definition = operator.gradient(&taken, &infos(upstream), wanted)?;
        let given = inputs.iter().copied().chain(outputs.iter().copied().map(Some)).chain(upstream.iter().copied());
        let given: Vec<_> = given.map(|tensor| tensor.map(Tensor::detach)).collect();
        evaluate(&self.no_grad(), &definition, &given, into).map_err(|error| error.context(format_args!("the gradient of {}", operator.name())))
    }
}

impl Tensor {
    /// The same memory through a layout that counts from the first element it touches.
    fn seen_as(&self, layout: &Layout) -> Tensor {
        self.view(layout.moved(self.layout().span().start))
    }
}
