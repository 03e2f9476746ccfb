//! Gradients.

use std::sync::{Arc, PoisonError};

use pyo3::{
    Bound, Py, PyAny, PyRef, PyResult, Python,
    exceptions::{PyTypeError, PyValueError},
    pymethods,
    types::{PyAnyMethods, PyList, PyListMethods},
};

use super::{Leaf, Tensor};
use crate::{context::settle, errors::raise};

impl Tensor {
    /// Makes it a leaf of the tape.
    pub(crate) fn become_leaf(&self) -> PyResult<()> {
        if self.leaf.get().is_some() {
            return Ok(());
        }
        if self.made.is_tracked() {
            return Err(PyValueError::new_err(
                "the tensor is the result of a computation that has a gradient: only others can be made to require one",
            ));
        }
        let leaf = Arc::new(Leaf { tensor: self.made.requires_grad().map_err(raise)?, gradient: std::sync::Mutex::default() });
        self.context.add_leaf(&leaf);
        // Another thread may have been faster.
        let _ = self.leaf.set(leaf);
        Ok(())
    }

    fn gradients(&self, py: Python<'_>, upstream: Option<&Tensor>) -> PyResult<elinvar::Gradients> {
        let tensor = self.context.take(self)?;
        let upstream = upstream.map(|upstream| self.context.take(upstream)).transpose()?;
        let (shape, count) = (tensor.shape(), tensor.shape().elements());
        if upstream.is_none() && count != 1 {
            let message = format!("backward of a tensor of shape {shape}, which has {count} elements: one is expected, a loss; or give its gradient");
            return Err(PyValueError::new_err(message));
        }
        let shared = self.is_shared();
        py.detach(|| {
            let gradients = match &upstream {
                Some(upstream) => tensor.backward_from(upstream),
                None => tensor.backward(),
            }?;
            if shared {
                settle(&tensor)?;
            }
            Ok(gradients)
        })
        .map_err(raise)
    }
}

#[pymethods]
impl Tensor {
    /// Whether gradients flow to it, or through it.
    #[getter]
    fn requires_grad(&self) -> bool {
        self.tensor().is_tracked()
    }

    /// From now on what is computed from it can give its gradient. Returns itself. Raises `ValueError` for whole numbers and truth values.
    fn requires_grad_(slf: PyRef<'_, Self>) -> PyResult<PyRef<'_, Self>> {
        slf.become_leaf()?;
        Ok(slf)
    }

    /// The same elements in the same memory, without a way back to what they were computed from.
    fn detach(&self) -> Self {
        self.view(self.tensor().detach())
    }

    /// Adds the gradients of this loss, a tensor of one element, to the `grad` of every tensor that requires one and that it was computed from.
    ///
    /// For a tensor of several elements, `gradient` is the gradient of what follows by it.
    #[pyo3(signature = (gradient = None))]
    fn backward(&self, py: Python<'_>, gradient: Option<PyRef<'_, Self>>) -> PyResult<()> {
        let gradients = self.gradients(py, gradient.as_deref())?;
        for leaf in self.context.leaves() {
            let Some(found) = gradients.get(&leaf.tensor) else { continue };
            let before = leaf.gradient.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let sum = match &before {
                Some(before) => {
                    let before = self.context.take(before)?.detach();
                    py.detach(|| before.add(found)).map_err(raise)?
                }
                None => found.clone(),
            };
            let sum = Arc::new(Tensor::new(&self.context, sum));
            *leaf.gradient.lock().unwrap_or_else(PoisonError::into_inner) = Some(sum);
        }
        Ok(())
    }

    /// The gradients by these tensors, which require one, without a change of their `grad`.
    #[pyo3(signature = (of, gradient = None))]
    fn _gradients<'py>(&self, py: Python<'py>, of: Vec<PyRef<'py, Self>>, gradient: Option<PyRef<'_, Self>>) -> PyResult<Bound<'py, PyList>> {
        let gradients = self.gradients(py, gradient.as_deref())?;
        let found = PyList::empty(py);
        for tensor in of {
            let gradient = gradients.of(tensor.tensor()).map_err(raise)?;
            found.append(Py::new(py, Tensor::new(&self.context, gradient.clone()))?)?;
        }
        Ok(found)
    }

    /// What `backward` added up; None before it did. Set it to None to begin again.
    #[getter]
    fn grad(&self) -> Option<Self> {
        let gradient = self.leaf.get()?.gradient.lock().unwrap_or_else(PoisonError::into_inner);
        gradient.as_ref().map(|gradient| gradient.view(gradient.tensor().clone()))
    }

    #[setter]
    fn set_grad(&self, gradient: &Bound<'_, PyAny>) -> PyResult<()> {
        let Some(leaf) = self.leaf.get() else {
            return Err(PyValueError::new_err("the tensor requires no gradient: call requires_grad_() first"));
        };
        let gradient = if gradient.is_none() {
            None
        } else {
            let given = gradient.cast::<Tensor>().map_err(|_| PyTypeError::new_err("grad is an elinvar.Tensor or None"))?.get();
            if (given.dtype(), given.made.shape()) != (self.dtype(), self.made.shape()) {
                return Err(PyValueError::new_err(format!("{:?} cannot be the gradient of {:?}: type and shape must match", given.made, self.made)));
            }
            self.context.take(given)?;
            Some(Arc::new(given.view(given.tensor().detach())))
        };
        *leaf.gradient.lock().unwrap_or_else(PoisonError::into_inner) = gradient;
        Ok(())
    }
}
