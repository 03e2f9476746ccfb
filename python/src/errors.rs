//! What Elinvar's errors are in Python.

use elinvar::{Error, ErrorKind};
use pyo3::{
    PyErr, Python, create_exception,
    exceptions::{PyMemoryError, PyNotImplementedError, PyOSError, PyRuntimeError, PyValueError},
};

create_exception!(elinvar, DeviceError, PyRuntimeError, "The device is not there, or it stopped working.");
create_exception!(elinvar, CompileError, PyValueError, "A kernel or a program did not compile.");
create_exception!(elinvar, InternalError, PyRuntimeError, "Elinvar contradicts itself: please report it.");

/// The exception of the kind that Python's users expect, with the error's own sentence.
pub(crate) fn raise(error: Error) -> PyErr {
    // What a Python function raised that was called back.
    if let Some(raised) = std::error::Error::source(&error).and_then(|source| source.downcast_ref::<PyErr>()) {
        return Python::attach(|py| raised.clone_ref(py));
    }
    let message = error.to_string();
    match error.kind() {
        ErrorKind::OutOfMemory => PyMemoryError::new_err(message),
        ErrorKind::DeviceLost | ErrorKind::DeviceUnavailable => DeviceError::new_err(message),
        ErrorKind::CompileFailed => CompileError::new_err(message),
        ErrorKind::InvalidLaunch | ErrorKind::InvalidArgument | ErrorKind::InvalidData => PyValueError::new_err(message),
        ErrorKind::Unsupported => PyNotImplementedError::new_err(message),
        ErrorKind::Io => PyOSError::new_err(message),
        // The enum is not exhaustive for other crates.
        ErrorKind::Internal | _ => InternalError::new_err(message),
    }
}
