//! What notebooks show, and what the package's own Python asks of tensors.

use pyo3::{Bound, PyAny, PyRef, PyResult, Python, pymethods, types::PyAnyMethods};

use crate::tensor::Tensor;

#[pymethods]
impl Tensor {
    /// Whether another library sees its memory.
    #[getter]
    fn _is_shared(&self) -> bool {
        self.is_shared()
    }

    fn _repr_html_<'py>(slf: PyRef<'py, Self>, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        py.import("elinvar.display")?.call_method1("tensor_html", (slf,))
    }
}
