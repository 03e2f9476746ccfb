//! Elinvar's Python package. The module `elinvar` in `python/elinvar` imports what this library defines.

#[cfg(target_os = "linux")]
mod check;
mod devices;
mod errors;

/// What the Python package is made of.
#[pyo3::pymodule(gil_used = false)]
mod _elinvar {
    #[cfg(target_os = "linux")]
    #[pymodule_export]
    use crate::check::serve_check;
    #[pymodule_export]
    use crate::devices::{DeviceInfo, devices};
    #[pymodule_export]
    use crate::errors::{CompileError, DeviceError, InternalError};
}
