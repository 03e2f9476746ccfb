//! The executor that a model is loaded on.

use std::{ffi::CString, num::NonZeroUsize};

use elinvar::{BackendType, Error, Executor, Precision, Result};
use pyo3::{PyErr, PyResult, Python, exceptions::PyUserWarning};

use super::work::wait_for;
use crate::errors::raise;

/// Where and how to compute.
#[derive(Clone)]
pub(super) struct Place {
    backend: Option<BackendType>,
    threads: Option<NonZeroUsize>,
    precision: Precision,
}

impl Place {
    /// `device` is a name, or `auto`.
    ///
    /// # Errors
    /// An unknown device or precision, or threads for a GPU.
    pub(super) fn read(device: &str, precision: Option<&str>, threads: Option<usize>) -> PyResult<Self> {
        let read = || -> Result<Self> {
            let backend = if device == "auto" { None } else { Some(device.parse()?) };
            let threads = threads.map(|count| NonZeroUsize::new(count).ok_or_else(|| Error::invalid_argument("threads is 0: give 1 or more")));
            let threads = threads.transpose()?;
            if let (Some(backend), Some(_)) = (backend.filter(|backend| *backend != BackendType::Cpu), threads) {
                return Err(Error::invalid_argument(format!("threads is for the cpu device, not for {backend}")));
            }
            Ok(Self { backend, threads, precision: precision.map_or(Ok(Executor::DEFAULT_PRECISION), str::parse)? })
        };
        read().map_err(raise)
    }

    /// Opens it for work that needs so much memory: what `auto` chooses has it, or is the CPU. If a GPU that should be there was passed over, a warning says why.
    ///
    /// # Errors
    /// There is no such device.
    pub(super) fn open(self, py: Python<'_>, bytes: u64) -> PyResult<Executor> {
        let precision = self.precision;
        let (executor, passed_over) = wait_for(py, move || match (self.backend, self.threads) {
            (_, Some(threads)) => Ok((Executor::new_cpu(threads)?, None)),
            (Some(backend), None) => Ok((Executor::new_with_backend(backend)?, None)),
            (None, None) => Executor::new_auto_for(bytes),
        })?;
        if let Some(reason) = passed_over {
            let message = CString::new(reason.to_string().replace('\0', " "))?;
            PyErr::warn(py, &py.get_type::<PyUserWarning>().into_any(), &message, 3)?;
        }
        Ok(executor.with_precision(precision))
    }
}
