//! Memory on NVIDIA's GPUs, shared with other libraries.

use std::sync::Arc;

use elinvar::Error;
use pyo3::{PyResult, Python, exceptions::PyNotImplementedError};

use crate::{context::Context, host::Lent, tensor::Tensor};

pub(crate) fn address(_tensor: &elinvar::Tensor, _stream: Option<i64>) -> elinvar::Result<(usize, bool)> {
    Err(Error::unsupported("a tensor on a GPU is not shared yet"))
}

pub(crate) fn stream(_context: &Context) -> PyResult<i64> {
    Err(PyNotImplementedError::new_err("a tensor on a GPU is not shared yet"))
}

pub(crate) fn adopt(_py: Python<'_>, _context: &Arc<Context>, _lent: Lent, _copy: Option<bool>) -> PyResult<Tensor> {
    Err(PyNotImplementedError::new_err("a tensor on a GPU is not shared yet"))
}
