//! Several operators as one: recorded, so that those on elements become one program, and others the fused ones that they stand for.

use std::sync::Arc;

use elinvar::{Error, Executor, Operator, Result, Tensor};
use pyo3::{Bound, Py, PyAny, PyResult, Python, pyclass, pymethods};

use super::{Call, TorchOperator, perform, recorded::Calls};
use crate::errors::raise;

/// An operator of one result, and which values it takes: the inputs first, then the results of the steps before.
struct Step {
    operator: Arc<dyn Operator>,
    inputs: Vec<Option<usize>>,
}

/// A graph of operators over tensors of PyTorch's.
#[pyclass(frozen, module = "elinvar._elinvar")]
pub(crate) struct TorchRegion {
    steps: Vec<Step>,
    inputs: usize,
    /// The values that are its results.
    results: Vec<usize>,
    calls: Calls,
}

#[pymethods]
impl TorchRegion {
    /// Of so many inputs; each step is an operator and the numbers of the values that it takes.
    #[new]
    fn new(inputs: usize, steps: Vec<(Py<TorchOperator>, Vec<Option<usize>>)>, results: Vec<usize>) -> PyResult<Self> {
        let steps = steps.into_iter().map(|(operator, inputs)| Step { operator: operator.get().operator.clone(), inputs });
        let steps: Vec<_> = steps.collect();
        let is_known = |(index, step): (usize, &Step)| step.inputs.iter().flatten().all(|value| *value < inputs + index);
        let are_results = results.iter().all(|value| (inputs..inputs + steps.len()).contains(value));
        if steps.is_empty() || !are_results || !steps.iter().enumerate().all(is_known) {
            return Err(raise(Error::invalid_argument("a region takes values that come before, and gives results of its steps")));
        }
        Ok(Self { steps, inputs, results, calls: Calls::default() })
    }

    /// Writes its results on `inputs` to `outputs`, as an operator does.
    fn apply(&self, py: Python<'_>, inputs: Vec<Option<Bound<'_, PyAny>>>, outputs: Vec<Bound<'_, PyAny>>) -> PyResult<()> {
        if (inputs.len(), outputs.len()) != (self.inputs, self.results.len()) {
            let (given, wanted) = (format!("{} and {}", inputs.len(), outputs.len()), format!("{} and {}", self.inputs, self.results.len()));
            return Err(raise(Error::invalid_argument(format!("a region of {wanted} inputs and outputs got {given}"))));
        }
        let mut call = Call::default();
        call.add_all(inputs.iter().map(Option::as_ref).chain(outputs.iter().map(Some)))?;
        perform(py, "a compiled region", call, outputs.len(), (&self.calls, false), |recorded, reads, writes| {
            self.record(recorded, reads.to_vec(), writes)
        })
    }

    fn __len__(&self) -> usize {
        self.steps.len()
    }
}

impl TorchRegion {
    fn record(&self, recorded: &Executor, mut values: Vec<Option<Tensor>>, outputs: &[Tensor]) -> Result<()> {
        for (index, step) in self.steps.iter().enumerate() {
            let taken: Vec<_> = step.inputs.iter().map(|value| value.and_then(|value| values[value].as_ref())).collect();
            let into = self.results.iter().position(|value| *value == self.inputs + index).map(|result| &outputs[result]);
            let value = match into {
                Some(into) => {
                    recorded.apply_into(step.operator.clone(), &taken, &[into])?;
                    into.clone()
                }
                None => {
                    let found = recorded.apply(step.operator.clone(), &taken)?;
                    found.into_iter().next().ok_or_else(|| Error::internal("an operator without a result"))?
                }
            };
            values.push(Some(value));
        }
        Ok(())
    }
}
