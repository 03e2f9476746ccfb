//! The executor that a model is loaded on.

use std::{ffi::CString, num::NonZeroUsize};

use elinvar::{BackendType, Error, Precision, Result};
use pyo3::{Bound, PyAny, PyErr, PyResult, Python, exceptions::PyUserWarning, types::PyAnyMethods};

use crate::{errors::raise, executor::Executor, work::wait_for};

/// Where and how to compute.
pub(super) enum Place {
    /// On this executor.
    Open(elinvar::Executor),
    /// On a device, several of them, or, if none is named, the one that is chosen.
    Named { backends: Vec<BackendType>, threads: Option<NonZeroUsize>, precision: Precision },
}

impl Place {
    /// `device` is an executor, a name, several with commas between them, or `auto`.
    ///
    /// # Errors
    /// An unknown device or precision, or threads for a GPU; precision or threads beside an executor, which has its own.
    pub(super) fn read(device: &Bound<'_, PyAny>, precision: Option<&str>, threads: Option<usize>) -> PyResult<Self> {
        if let Ok(executor) = device.cast::<Executor>() {
            let context = &executor.get().0;
            context.check()?;
            if precision.is_some() || threads.is_some() {
                return Err(raise(Error::invalid_argument("the executor has a precision and threads of its own: leave them out")));
            }
            return Ok(Self::Open(context.executor.clone()));
        }
        let device: String = device.extract()?;
        let read = || -> Result<Self> {
            let backends = if device == "auto" { Vec::new() } else { BackendType::parse_list(&device)? };
            let threads = threads.map(|count| NonZeroUsize::new(count).ok_or_else(|| Error::invalid_argument("threads is 0: give 1 or more")));
            let threads = threads.transpose()?;
            if threads.is_some() && !matches!(backends[..], [] | [BackendType::Cpu]) {
                return Err(Error::invalid_argument(format!("threads is for the cpu device, not for {device}")));
            }
            let precision = precision.map_or(Ok(elinvar::Executor::DEFAULT_PRECISION), str::parse)?;
            Ok(Self::Named { backends, threads, precision })
        };
        read().map_err(raise)
    }

    /// Opens it for work that needs so much memory: what `auto` chooses has it, or is the CPU. If a GPU that should be there was passed over, a warning says why.
    ///
    /// # Errors
    /// There is no such device.
    pub(super) fn open(self, py: Python<'_>, bytes: u64) -> PyResult<elinvar::Executor> {
        let (backends, threads, precision) = match self {
            Self::Open(executor) => return Ok(executor),
            Self::Named { backends, threads, precision } => (backends, threads, precision),
        };
        let (executor, passed_over) = wait_for(py, move || match (&backends[..], threads) {
            (_, Some(threads)) => Ok((elinvar::Executor::new_cpu(threads)?, None)),
            ([], None) => elinvar::Executor::new_auto_for(bytes),
            (&[backend], None) => Ok((elinvar::Executor::new_with_backend(backend)?, None)),
            (several, None) => Ok((elinvar::Executor::group(several)?, None)),
        })?;
        if let Some(reason) = passed_over {
            let message = CString::new(reason.to_string().replace('\0', " "))?;
            PyErr::warn(py, &py.get_type::<PyUserWarning>().into_any(), &message, 3)?;
        }
        Ok(executor.with_precision(precision))
    }
}
