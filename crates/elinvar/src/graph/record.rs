//! What a recorder is asked for becomes nodes.

use std::sync::Arc;

use elinvar_core::{Error, Result};
use elinvar_kernels::{Operator, TensorInfo};

use super::{
    node::Node,
    shared::{Memory, Open, Pending, Shared, TensorMemory},
    value::{Action, Operand, Output},
};
use crate::{executor::Executor, tensor::Tensor};

impl Open {
    /// A tensor as an operand.
    fn operand(&mut self, recorder: &Arc<Shared>, tensor: &Tensor) -> Result<Operand> {
        let info = TensorInfo { dtype: tensor.dtype(), layout: *tensor.layout() };
        let memory = tensor.memory();
        if let Some(pending) = memory.pending() {
            let is_own = Arc::ptr_eq(&pending.recorder, recorder);
            return if is_own { Ok(Operand { value: pending.value, info }) } else { Err(pending.error()) };
        }
        let address = Arc::as_ptr(memory).addr();
        let value = match self.given.get(&address) {
            Some(value) => *value,
            None => {
                let value = self.value(Memory::Given(memory.clone()));
                self.given.insert(address, value);
                value
            }
        };
        Ok(Operand { value, info })
    }
}

impl Shared {
    /// Adds an operator; its results, of `types`, go to `into`, if that is given, else to tensors that get their memory when the recorder ends.
    ///
    /// # Errors
    /// The recorder ended; or a tensor of another recorder.
    pub(crate) fn operator(
        self: &Arc<Self>,
        executor: &Executor,
        operator: Arc<dyn Operator>,
        inputs: &[Option<&Tensor>],
        types: &[TensorInfo],
        into: Option<&[&Tensor]>,
    ) -> Result<Vec<Tensor>> {
        let mut guard = self.open();
        let open = guard.as_mut().ok_or_else(ended)?;
        let mut operand = |tensor: &Tensor| open.operand(self, tensor);
        let inputs = inputs.iter().map(|tensor| tensor.map(&mut operand).transpose()).collect::<Result<Vec<_>>>()?;
        let mut results = Vec::new();
        let outputs = match into {
            Some(targets) => targets.iter().map(|target| operand(target).map(Output::Into)).collect::<Result<Vec<_>>>()?,
            None => {
                let mut output = |info: &TensorInfo| {
                    let memory = TensorMemory::pending_on(Pending { recorder: self.clone(), value: open.memories.len() });
                    let value = open.value(Memory::Result(Arc::downgrade(&memory)));
                    results.push(Tensor::new(&executor.with_recorder(None), memory, info.dtype, info.layout));
                    Output::Value(value)
                };
                types.iter().map(&mut output).collect()
            }
        };
        open.push(Node::new(Action::Operator(operator), inputs, outputs));
        Ok(results)
    }

    /// Adds a dispatch over these buffers.
    ///
    /// # Errors
    /// The recorder ended, or a tensor of another recorder.
    pub(crate) fn dispatch(self: &Arc<Self>, inputs: &[Option<Tensor>], action: Action) -> Result<()> {
        let mut guard = self.open();
        let open = guard.as_mut().ok_or_else(ended)?;
        let operand = |tensor: &Option<Tensor>| tensor.as_ref().map(|tensor| open.operand(self, tensor)).transpose();
        let inputs = inputs.iter().map(operand).collect::<Result<Vec<_>>>()?;
        open.push(Node::new(action, inputs, Vec::new()));
        Ok(())
    }
}

fn ended() -> Error {
    Error::invalid_argument("the recorder ended: finish it when everything is recorded")
}
