//! Gradients that are Python functions.

use elinvar::{Error, ErrorKind};
use pyo3::{
    Bound, Py, PyAny, PyErr, PyRef, PyResult, Python, pyfunction,
    types::{PyAnyMethods, PyList, PyListMethods},
};

use crate::{errors::raise, tensor::Tensor};

/// Puts results on the tape. `gradient` is called with the gradients of `outputs`, None where there is none, and gives those of `inputs`.
#[pyfunction]
pub(crate) fn with_gradient(
    py: Python<'_>,
    name: &str,
    inputs: Vec<PyRef<'_, Tensor>>,
    outputs: Vec<PyRef<'_, Tensor>>,
    gradient: Py<PyAny>,
) -> PyResult<Vec<Tensor>> {
    let context = match inputs.first() {
        Some(first) => first.context.clone(),
        None => return outputs.iter().map(|output| Ok(output.view(output.tensor().clone()))).collect(),
    };
    let taken = inputs.iter().map(|input| context.take(input)).collect::<PyResult<Vec<_>>>()?;
    let results = outputs.iter().map(|output| output.tensor().clone()).collect();
    let called = context.clone();
    let rule = move |upstream: &[Option<elinvar::Tensor>]| {
        Python::attach(|py| {
            let given = PyList::empty(py);
            for upstream in upstream {
                given.append(upstream.as_ref().map(|upstream| Tensor::new(&called, upstream.clone())))?;
            }
            let found: Vec<Option<Bound<'_, PyAny>>> = gradient.bind(py).call1((given,))?.extract()?;
            let found = found.into_iter().map(|found| found.map(|found| Ok(found.cast::<Tensor>()?.get().tensor().clone())).transpose());
            found.collect::<PyResult<Vec<_>>>()
        })
        .map_err(|error: PyErr| Error::with_source(ErrorKind::InvalidArgument, "the gradient, a Python function, failed", error))
    };
    let made = py.detach(|| {
        let inputs: Vec<_> = taken.iter().collect();
        elinvar::Tensor::with_gradient(name, &inputs, results, rule)
    });
    Ok(made.map_err(raise)?.into_iter().map(|made| Tensor::new(&context, made)).collect())
}
