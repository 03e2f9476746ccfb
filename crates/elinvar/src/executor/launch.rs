//! Operators planned, checked and run, or recorded.

use std::sync::Arc;

use elinvar_core::{Completion, Error, ListBuilder, Result};
use elinvar_kernels::{Operator, TensorInfo, copy::Copy};

use super::{
    calls::{Call, KeptOperator},
    types::{checked_types, infos},
};
use crate::{
    executor::Executor,
    gradient::write_down,
    graph::{Action, Recording, Shared, TensorMemory},
    tensor::Tensor,
};

impl Executor {
    /// Runs an operator, or records it where this executor, or one of the tensors, belongs to a [`Recorder`](crate::Recorder). Inputs it cannot take with
    /// strides are made row-major first.
    ///
    /// ```
    /// # use elinvar::{Executor, kernels::top_k::TopK};
    /// # let executor = Executor::new_auto()?;
    /// let x = executor.tensor(&[3], &[5i32, 1, 3])?;
    /// let smallest = TopK { k: 2, axis: 0, largest: false, sorted: true };
    /// let outputs = executor.apply(std::sync::Arc::new(smallest), &[Some(&x)])?;
    /// assert_eq!(outputs[0].to_vec::<i32>()?, [1, 3]);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// What the operator rejects, tensors of another device or another recorder, or out of memory.
    pub fn apply(&self, operator: Arc<dyn Operator>, inputs: &[Option<&Tensor>]) -> Result<Vec<Tensor>> {
        self.launch(&operator, None, inputs, None)
    }

    /// The same for an operator that is kept for many calls, each of which takes less time.
    ///
    /// ```
    /// # use elinvar::{Executor, KeptOperator, kernels::softmax::Softmax};
    /// # let executor = Executor::new_auto()?;
    /// let softmax = KeptOperator::new(std::sync::Arc::new(Softmax { axis: -1, log: false }));
    /// for row in [[0f32, 0.0], [1.0, 1.0]] {
    ///     let outputs = executor.apply_kept(&softmax, &[Some(&executor.tensor(&[2], &row)?)])?;
    ///     assert_eq!(outputs[0].to_vec::<f32>()?, [0.5, 0.5]);
    /// }
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Executor::apply`].
    pub fn apply_kept(&self, kept: &KeptOperator, inputs: &[Option<&Tensor>]) -> Result<Vec<Tensor>> {
        self.launch(&kept.operator, Some(&kept.identity), inputs, None)
    }

    /// The same with results that go to tensors that exist: row-major, of the results' types and shapes, in memory that no input has.
    ///
    /// ```
    /// # use elinvar::{DType, Executor, kernels::softmax::Softmax};
    /// # let executor = Executor::new_auto()?;
    /// let (x, y) = (executor.tensor(&[2], &[0f32, 0.0])?, executor.zeros(DType::F32, &[2])?);
    /// executor.apply_into(std::sync::Arc::new(Softmax { axis: 0, log: false }), &[Some(&x)], &[&y])?;
    /// assert_eq!(y.to_vec::<f32>()?, [0.5, 0.5]);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Executor::apply`]; tensors of other types or shapes, views with gaps, memory in common with an input, or read-only memory.
    pub fn apply_into(&self, operator: Arc<dyn Operator>, inputs: &[Option<&Tensor>], outputs: &[&Tensor]) -> Result<()> {
        self.launch(&operator, None, inputs, Some(outputs)).map(drop)
    }

    /// What records work on these tensors.
    ///
    /// # Errors
    /// Tensors of another device, or of different recorders.
    fn recorder_of<'a>(&'a self, tensors: impl Iterator<Item = &'a Tensor> + Clone) -> Result<Option<&'a Arc<Shared>>> {
        let mut recorder = self.recorder.as_ref();
        if let Some(ended) = recorder.filter(|recorder| !recorder.is_open()) {
            // What was moved to a recorder stays a tensor when that has ended.
            if !tensors.clone().any(|tensor| tensor.executor.recorder.as_ref().is_some_and(|other| Arc::ptr_eq(ended, other))) {
                return Err(Error::invalid_argument("the recorder of this executor ended: use the executor that it was made for"));
            }
            recorder = None;
        }
        for tensor in tensors {
            self.check_same_device(tensor.executor())?;
            match (recorder, tensor.recorder()) {
                (Some(known), Some(other)) if !Arc::ptr_eq(known, other) => {
                    return Err(Error::invalid_argument("tensors of different recorders: finish one and use its results in the other's recording"));
                }
                (known, other) => recorder = known.or(other),
            }
        }
        Ok(recorder)
    }

    /// The row-major copy of a tensor with any strides.
    pub(crate) fn copy(&self, tensor: &Tensor) -> Result<Tensor> {
        only(self.apply(Arc::new(Copy), &[Some(tensor)])?)
    }

    /// `identity` is the operator's, if that is known.
    fn launch(
        &self,
        operator: &Arc<dyn Operator>,
        identity: Option<&[u8]>,
        inputs: &[Option<&Tensor>],
        into: Option<&[&Tensor]>,
    ) -> Result<Vec<Tensor>> {
        let given = inputs.iter().copied().flatten();
        let recorder = self.recorder_of(given.clone().chain(into.unwrap_or_default().iter().copied()));
        let done = recorder.and_then(|recorder| {
            self.check_changes(&**operator, inputs, into)?;
            self.launch_on(recorder, (operator, identity), inputs, into)
        });
        let mut outputs = done.map_err(|error| self.placed(error, operator.name(), given))?;
        if self.tracks(inputs) {
            write_down(operator, inputs, &mut outputs);
        }
        Ok(outputs)
    }

    /// Whether memory may be changed in place: no gradient flows through that. Counts the changes.
    fn check_changes(&self, operator: &dyn Operator, inputs: &[Option<&Tensor>], into: Option<&[&Tensor]>) -> Result<()> {
        let updated = inputs.iter().enumerate().filter(|(index, _)| operator.updates(*index)).filter_map(|(_, tensor)| *tensor);
        let changed: Vec<_> = updated.chain(into.unwrap_or_default().iter().copied()).collect();
        if !changed.is_empty() && (self.tracks(inputs) || self.tracks(&changed.iter().copied().map(Some).collect::<Vec<_>>())) {
            let why = "no gradient flows through a change in place: use the operator that gives a new tensor, or detach what requires a gradient";
            return Err(Error::invalid_argument(format!("{}: {why}", operator.name())));
        }
        changed.iter().for_each(|tensor| tensor.memory().change());
        Ok(())
    }

    /// The error of an operator, with its place where it was to be recorded.
    fn placed<'a>(&'a self, error: Error, name: &str, inputs: impl Iterator<Item = &'a Tensor> + Clone) -> Error {
        let recorder = self.recorder.as_ref().or_else(|| inputs.clone().find_map(Tensor::recorder));
        match recorder {
            Some(recorder) => recorder.rejected(error, name, inputs.map(Tensor::info)),
            None => error,
        }
    }

    fn launch_on(
        &self,
        recorder: Option<&Arc<Shared>>,
        (operator, identity): (&Arc<dyn Operator>, Option<&[u8]>),
        inputs: &[Option<&Tensor>],
        into: Option<&[&Tensor]>,
    ) -> Result<Vec<Tensor>> {
        let is_refused = |(index, tensor): &(usize, &Tensor)| !tensor.layout().is_contiguous() && !operator.accepts_strides(*index);
        let refused = inputs.iter().enumerate().filter_map(|(index, tensor)| Some((index, (*tensor)?))).find(is_refused);
        if let Some((index, tensor)) = refused {
            if operator.updates(index) {
                return Err(Error::invalid_argument(format!("input {index} is updated in place and must be row-major: pass it without a view")));
            }
            let (copy, mut inputs) = (self.copy(&tensor.detach())?, inputs.to_vec());
            inputs[index] = Some(&copy);
            return self.launch_on(recorder, (operator, identity), &inputs, into);
        }
        if let Some(recorder) = recorder {
            let types = checked_types(&**operator, &infos(inputs))?;
            check_targets(&types, inputs, into)?;
            return recorder.operator(self, operator.clone(), inputs, &types, into);
        }
        let call = self.call(&**operator, identity, inputs)?;
        check_targets(&call.types, inputs, into)?;
        self.run(&call, inputs, into)
    }

    /// Submits a call's commands over these tensors.
    fn run(&self, call: &Call, inputs: &[Option<&Tensor>], into: Option<&[&Tensor]>) -> Result<Vec<Tensor>> {
        let allocate = |bytes| self.device.allocate(bytes)?.bind(0, bytes);
        let mut given = Vec::with_capacity(call.places.len());
        for input in inputs.iter().copied().flatten() {
            given.push(input.binding()?);
        }
        let mut outputs = Vec::new();
        match into {
            Some(targets) => {
                for target in targets {
                    given.push(target.binding()?);
                }
            }
            None => {
                outputs.reserve_exact(call.types.len());
                for info in &call.types {
                    let made = allocate(info.bytes())?;
                    outputs.push(Tensor::new(self, TensorMemory::new(made.buffer().clone()), info.dtype, info.layout));
                    given.push(made);
                }
            }
        }
        for &bytes in &call.scratch {
            given.push(allocate(bytes)?);
        }
        if !call.list.commands().is_empty() {
            self.device.submit_over(&call.list, &call.places, &given)?;
        }
        Ok(outputs)
    }

    /// Runs a dispatch over these buffers, or records it.
    pub(crate) fn dispatch(&self, inputs: &[Option<Tensor>], action: Action) -> Result<()> {
        let name = action.name();
        self.dispatch_on(inputs, action).map_err(|error| self.placed(error, name, inputs.iter().flatten()))
    }

    fn dispatch_on(&self, inputs: &[Option<Tensor>], action: Action) -> Result<()> {
        if let Action::Dispatch { writes, .. } = &action {
            let changed = inputs.iter().zip(&**writes).filter(|(_, written)| **written).filter_map(|(input, _)| input.as_ref());
            changed.for_each(|tensor| tensor.memory().change());
        }
        if self.tracks(&inputs.iter().map(Option::as_ref).collect::<Vec<_>>()) {
            return Err(Error::unsupported("a kernel of one's own has no gradient: detach what it takes"));
        }
        if let Some(recorder) = self.recorder_of(inputs.iter().flatten())? {
            return recorder.dispatch(inputs, action);
        }
        let Action::Dispatch { make, .. } = action else { return Err(Error::internal("an operator is dispatched as a kernel")) };
        let bindings = inputs.iter().map(|tensor| tensor.as_ref().map(Tensor::binding).transpose()).collect::<Result<Vec<_>>>()?;
        let Some(dispatch) = make(bindings)? else { return Ok(()) };
        let mut list = ListBuilder::new();
        list.dispatch(dispatch, self.properties())?;
        self.device.submit(&list.finish()).map(drop)
    }

    /// Starts a recording; its errors are reported by the completion, and by the next read.
    ///
    /// ```
    /// # let executor = elinvar::Executor::new_auto()?;
    /// let x = executor.tensor(&[2], &[1i32, 2])?;
    /// let (double, ()) = executor.record(|recorded| x.on(recorded)?.add_(&x))?;
    /// executor.replay(&double)?;
    /// executor.replay(&double)?.wait()?;
    /// assert_eq!(x.to_vec::<i32>()?, [4, 8]);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// It was recorded on another device, or the device is lost.
    pub fn replay(&self, recording: &Recording) -> Result<Completion> {
        recording.count_replay();
        self.device.submit(&recording.list)
    }

    /// Waits until the kernels of a recording are compiled, which recording them only begins where compiling takes long; else the first replay waits.
    ///
    /// ```
    /// # let executor = elinvar::Executor::new_auto()?;
    /// let x = executor.tensor(&[2], &[1f32, 2.0])?;
    /// let (recording, _y) = executor.record(|recorded| x.on(recorded)?.exp())?;
    /// executor.compile(&recording)?;
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// A kernel does not compile.
    pub fn compile(&self, recording: &Recording) -> Result<()> {
        recording.list.kernels().try_for_each(|kernel| self.device.ready(kernel))
    }
}

/// The single output of an operator that has one.
pub(crate) fn only(mut outputs: Vec<Tensor>) -> Result<Tensor> {
    match outputs.pop() {
        Some(output) if outputs.is_empty() => Ok(output),
        Some(_) | None => Err(Error::invalid_argument("the operator does not have exactly one output")),
    }
}

/// Whether results of these types can go to these tensors, if some are given.
fn check_targets(types: &[TensorInfo], inputs: &[Option<&Tensor>], targets: Option<&[&Tensor]>) -> Result<()> {
    let Some(targets) = targets else { return Ok(()) };
    if types.len() != targets.len() {
        return Err(Error::invalid_argument(format!("{} tensors are given for {} results", targets.len(), types.len())));
    }
    for (info, target) in types.iter().zip(targets) {
        if (info.dtype, info.shape()) != (target.dtype(), target.shape()) || !target.layout().is_contiguous() {
            let found = format!("{target:?}{}", if target.layout().is_contiguous() { "" } else { ", a view with gaps," });
            return Err(Error::invalid_argument(format!("the result is {}{}: {found} cannot take it", info.dtype, info.shape())));
        }
        if inputs.iter().flatten().any(|input| input.same_memory(target)) || targets.iter().filter(|other| other.same_memory(target)).count() > 1 {
            return Err(Error::invalid_argument(format!("{target:?} shares memory with another operand: results need memory of their own")));
        }
    }
    Ok(())
}
